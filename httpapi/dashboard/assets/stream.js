// What the page asks of the node: a stream of events, read with fetch so that it can have a token, and answers.

const tokenKey = "jatah-token";

function stored() { try { return sessionStorage.getItem(tokenKey) || ""; } catch { return ""; } }
let token = stored();

export function hasToken() { return token !== ""; }

export function setToken(t) {
	token = t;
	try {
		if (t) sessionStorage.setItem(tokenKey, t);
		else sessionStorage.removeItem(tokenKey);
	} catch { /* then it is asked for again */ }
}

export class Refused extends Error {
	constructor(status, detail) { super(detail); this.status = status; }
}

async function call(path, signal) {
	const headers = token ? { Authorization: "Bearer " + token } : {};
	const r = await fetch(path, { headers, signal, cache: "no-store", credentials: "same-origin" });
	if (r.ok) return r;
	let detail = r.status + " " + r.statusText;
	try { detail = (await r.json()).detail || detail; } catch { /* no problem in JSON */ }
	throw new Refused(r.status, detail);
}

export async function get(path, signal) { return (await call(path, signal)).json(); }

// follow reads one stream until it ends; on is called with the name and the data of each event.
async function follow(path, signal, on) {
	const reader = (await call(path, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		const { value, done } = await reader.read();
		if (done) return;
		const parts = (rest + value).split("\n\n");
		rest = parts.pop();
		for (const part of parts) {
			let name = "message";
			const data = [];
			for (const line of part.split("\n")) {
				if (line.startsWith("event: ")) name = line.slice(7);
				else if (line.startsWith("data: ")) data.push(line.slice(6));
			}
			on(name, data.length ? JSON.parse(data.join("\n")) : null); // a comment says that the node is still there
		}
	}
}

// Stream is opened again when it breaks, after a pause that grows.
export class Stream {
	// state is called with "wait", "live", "lost" or "token", and why.
	constructor(on, state) { this.on = on; this.state = state; this.abort = null; }

	open(path) {
		this.close();
		const abort = new AbortController();
		this.abort = abort;
		this.run(path, abort.signal);
	}

	close() { if (this.abort) this.abort.abort(); this.abort = null; }

	async run(path, signal) {
		let pause = 500;
		this.state("wait", "");
		while (!signal.aborted) {
			let why = "the connection ended";
			try {
				await follow(path, signal, (name, data) => {
					if (signal.aborted) return;
					pause = 500;
					this.on(name, data);
				});
			} catch (err) {
				if (signal.aborted) return;
				if (err instanceof Refused && (err.status === 401 || err.status === 403)) {
					this.state("token", err.message);
					return;
				}
				if (err instanceof Refused) why = err.message;
				else why = "the node does not answer";
			}
			if (signal.aborted) return;
			this.state("lost", why);
			await new Promise((done) => setTimeout(done, pause));
			pause = Math.min(2 * pause, 10000);
		}
	}
}
