// The parts of the page that are drawn anew with each frame.
import { el, put, toggle, count, rate, bytes, millis, duration, percent, time, rows } from "/dashboard/format.js";

const $ = (id) => document.getElementById(id);

// tiles are the numbers on top.
export function tiles(f) {
	const alive = f.members.filter((m) => m.state === "alive").length;
	const list = [
		{ name: "Allowed", value: rate(f.now.allowed), unit: "/s", more: f.scope === "cluster" ? "whole cluster" : "at this node", kind: "allowed" },
		{ name: "Refused", value: rate(f.now.refused), unit: "/s", more: f.now.refused + f.now.allowed > 0 ? percent(f.now.refused / (f.now.refused + f.now.allowed)) + " of all" : "nothing asked", kind: "refused" },
		{ name: "Ask the owner", value: millis(f.ask.p50_ms), more: f.ask.p50_ms === null ? "nothing asked lately" : "p99 " + millis(f.ask.p99_ms) + " · " + rate(f.ask.sent) + "/s", warn: f.ask.timed_out > 0 ? rate(f.ask.timed_out) + "/s timed out" : "" },
		{ name: "Keys", value: count(f.keys), more: f.overflows ? "" : count(f.evictions) + " forgotten", warn: f.overflows ? count(f.overflows) + " refused: table full" : "" },
		{ name: "Debt", value: rate(f.debt), unit: "/s", more: count(f.debt_total) + " tokens in all", level: f.debt > 0 },
		{ name: "Share", value: f.weight > 0 ? (f.k === 1 ? "all" : "1/" + Math.round(1 / f.weight)) : "none", more: "K = " + f.k + " · " + alive + " alive" },
		{ name: "Sync", value: f.members.length > 1 ? millis(f.tick_ms) : "–", more: f.members.length === 1 ? "nobody to sync with" : bytes(f.bytes_out) + "/s sent" },
		{ name: "Hand-offs", value: count(f.handing), more: f.handing ? "in flight" : "none in flight", warn: f.pauses ? count(f.pauses) + (f.pauses === 1 ? " pause" : " pauses") : "" },
	];
	rows($("tiles"), list, (t) => t.name, (t) => {
		const e = el("div", "tile " + (t.kind || ""));
		const dd = el("dd");
		dd.append(el("span", "value"), el("span", "unit"), el("span", "more"));
		e.append(el("dt", "", t.name), dd);
		return e;
	}, (e, t) => {
		put(e.querySelector(".value"), t.value);
		put(e.querySelector(".unit"), t.unit || "");
		put(e.querySelector(".more"), t.warn || t.more || "\u00a0");
		toggle(e, "warn", t.warn);
	});
}

const states = {
	alive: ["alive", "ok"], silent: ["silent", "warn"], failed: ["failed", "bad"], left: ["left", "off"],
};

function cell(row, label, className) {
	const td = el("td", className);
	td.dataset.label = label;
	row.append(td);
	return td;
}

export function members(f) {
	const state = (m) => (m.state === "alive" && m.silent ? "silent" : m.state);
	const present = f.members.filter((m) => m.state === "alive");
	put($("members-note"), f.members.length === 1 ? "this node is alone" : present.length + " of " + f.members.filter((m) => m.state !== "left").length + " alive · " + f.partitions + " partitions");
	rows($("members"), f.members, (m) => m.name, () => {
		const tr = el("tr");
		const th = el("th", "who");
		th.scope = "row";
		th.append(el("span", "name"), el("span", "tag"), el("span", "sub"));
		tr.append(th);
		cell(tr, "State").append(el("span", "chip"), el("span", "sub"));
		const owns = cell(tr, "Owns", "owns");
		const track = el("span", "track");
		track.setAttribute("aria-hidden", "true");
		track.append(el("i"));
		owns.append(track, el("span", "val"));
		const shares = cell(tr, "Shares", "shares");
		shares.append(el("span", "lends"), el("span", "sub borrows"));
		for (const [label, name] of [["Allowed/s", "allowed"], ["Refused/s", "refused"]]) cell(tr, label, "n " + name);
		return tr;
	}, (tr, m) => {
		const at = (selector) => tr.querySelector(selector);
		put(at("th .name"), m.name);
		put(at("th .tag"), m.self ? "this node" : "");
		put(at("th .sub"), [m.http || m.addr, m.version].filter(Boolean).join(" · "));
		const [word, kind] = states[state(m)] || [m.state, "off"];
		put(at(".chip"), word);
		at(".chip").className = "chip " + kind;
		let sub = "";
		if (m.state === "failed") sub = m.reserved_ms === null ? "share reserved" : m.reserved_ms > 0 ? "share reserved " + duration(m.reserved_ms) : "share released";
		else if (m.state === "left" && m.since) sub = "at " + time(m.since);
		else if (m.answered === "no") sub = "numbers missing";
		else if (m.answered === "unknown") sub = "numbers unknown";
		else if (m.k && m.k !== f.k) sub = "counts K = " + m.k;
		else if (m.state === "alive" && !m.self) sub = "heard " + millis(m.heard_ms) + " ago";
		put(at("td .sub"), sub);
		at("th .name").title = m.name;
		const part = f.partitions ? m.partitions / f.partitions : 0;
		at(".track i").style.width = 100 * part + "%";
		put(at(".owns .val"), m.partitions + (f.partitions ? " · " + percent(part) : ""));
		const gone = m.state !== "alive";
		const alone = f.members.length === 1;
		put(at(".lends"), gone ? "–" : alone ? "all its own" : m.self ? "its own" : "lends " + m.lent_by + " · " + percent(m.share));
		put(at(".borrows"), gone || m.self || alone ? "" : "borrows " + m.lends_to);
		put(at(".allowed"), m.rates ? rate(m.rates.allowed) : "–");
		put(at(".refused"), m.rates ? rate(m.rates.refused) : "–");
		toggle(tr, "gone", gone);
	});
}

const good = new Set(["ready", "joined", "answers", "healed", "started"]);

export class Events {
	constructor() { this.clear(); }

	// clear is for a stream that tells all events from the first: those of a process that was started anew have the numbers of others before.
	clear() { this.list = []; this.seen = 0; }

	add(events) {
		const fresh = events.filter((e) => e.seq > this.seen);
		if (!fresh.length) return; // what was there before a clear stays until there is something else
		this.seen = fresh[fresh.length - 1].seq;
		this.list = [...fresh.reverse(), ...this.list].slice(0, 100);
		put($("events-note"), this.list.length === 1 ? "1 since the start" : "newest first");
		rows($("events"), this.list, (e) => [e.seq, e.time, e.kind, e.text].join(" "), (e) => {
			const li = el("li", e.warn ? "warn" : good.has(e.kind) ? "good" : "");
			const at = el("time", "", time(e.time));
			at.dateTime = new Date(e.time).toISOString();
			li.append(at, el("span", "kind", e.kind), el("span", "text", e.text));
			return li;
		}, () => {});
	}
}

// notices are the few things that somebody should see first.
export function notices(f) {
	const list = [];
	if (!f.ready) list.push(["wait", f.settling_ms > 0 ? "This node is settling: it decides with its own share in " + duration(f.settling_ms) + "." : "This node is not ready: " + f.reason + "."]);
	else if (f.weight === 0) list.push(["warn", "This node has no share of any limit for now: it was paused, and waits until every member that counts knows of it."]);
	const silent = f.members.filter((m) => m.state === "alive" && m.silent && !m.self).map((m) => m.name);
	const failed = f.members.filter((m) => m.state === "failed").map((m) => m.name);
	if (silent.length + failed.length > 1) list.push(["bad", silent.length + failed.length + " members are out of reach: " + short([...failed, ...silent]) + ". The network may be cut; shares that are not here are unused."]);
	else if (failed.length) list.push(["bad", failed[0] + " has failed. Its share stays reserved; if it will not come back, “jatah forget " + failed[0] + "” gives it to the others."]);
	else if (silent.length) list.push(["warn", silent[0] + " does not answer this node."]);
	if (f.missing.length) list.push(["warn", "Not in these numbers, because they did not answer: " + short(f.missing) + "."]);
	if (f.unknown.length) list.push(["warn", "Not in these numbers, because they run an older version: " + short(f.unknown) + "."]);
	rows($("notices"), list, (n) => n[0] + n[1].replace(/\d+\u202f\w+/, ""), (n) => el("p", "notice " + n[0]), (e, n) => put(e, n[1]));
}

function short(names) { return names.length <= 4 ? names.join(", ") : names.slice(0, 3).join(", ") + " and " + (names.length - 3) + " more"; }

const meanings = {
	local: "in this node's memory", owner: "asked of the key's owner", share: "owner silent: from the own share",
	ahead: "owner silent: ahead of the share, owed", deny: "owner silent: refused by fallback", allow: "owner silent: let through by fallback",
};

// definition says what a limit is; in short, without what most limits have.
export function definition(l, short) {
	if (!l.known) return "defined at other members only · " + l.mode;
	const parts = [l.algorithm === "concurrency" ? l.burst + " permits at once" : l.rate];
	if (l.algorithm !== "concurrency" && l.burst) parts.push("burst " + count(l.burst));
	if (!short || (l.algorithm !== "token_bucket" && l.algorithm !== "concurrency")) parts.push(l.algorithm.replaceAll("_", " "));
	parts.push(l.mode);
	if (!short) parts.push("fallback " + l.fallback);
	return parts.join(" · ");
}

export function sources(l) {
	const all = l.sources.map((s) => ({ ...s, sum: s.allowed + s.refused }));
	const total = all.reduce((sum, s) => sum + s.sum, 0);
	const busy = all.filter((s) => s.sum > 0);
	const list = busy.length ? busy : [{ source: "local", allowed: 0, refused: 0, sum: 0 }];
	rows($("sources"), list, (s) => s.source, (s) => {
		const li = el("li");
		const track = el("span", "track two");
		track.setAttribute("aria-hidden", "true");
		track.append(el("i", "a"), el("i", "r"));
		li.append(el("span", "name", s.source), el("span", "sub", meanings[s.source] || ""), track, el("span", "val"));
		return li;
	}, (li, s) => {
		li.querySelector("i.a").style.width = (total ? (100 * s.allowed) / total : 0) + "%";
		li.querySelector("i.r").style.width = (total ? (100 * s.refused) / total : 0) + "%";
		put(li.querySelector(".val"), total ? percent(s.sum / total) + " · " + rate(s.sum) + "/s" : "idle");
	});
}

const columns = [
	{ id: "name", name: "Limit", of: (l) => l.name },
	{ id: "allowed", name: "Allowed/s", n: true, of: (l) => l.smooth.allowed },
	{ id: "refused", name: "Refused/s", n: true, of: (l) => l.smooth.refused },
	{ id: "part", name: "Refused", n: true, of: (l) => l.smooth.refused / Math.max(1e-9, l.smooth.allowed + l.smooth.refused) },
	{ id: "keys", name: "Keys", n: true, of: (l) => l.keys },
];

export class Limits {
	constructor(choose) {
		this.choose = choose;
		this.sort = "name";
		this.down = false;
		this.frame = null;
		for (const c of columns) {
			const th = el("th", c.n ? "n" : "");
			th.scope = "col";
			const b = el("button", "sort", c.name);
			b.type = "button";
			b.addEventListener("click", () => {
				this.down = this.sort === c.id ? !this.down : Boolean(c.n);
				this.sort = c.id;
				this.draw();
			});
			th.append(b);
			c.head = th;
			$("limits-head").append(th);
		}
	}

	show(f, chosen, find) { this.frame = f; this.chosen = chosen; this.find = find; this.draw(); }

	draw() {
		for (const c of columns) {
			if (c.id === this.sort) c.head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
			else c.head.removeAttribute("aria-sort");
		}
		const f = this.frame;
		if (!f) return;
		const of = columns.find((c) => c.id === this.sort).of;
		const list = [...f.limits].filter((l) => !this.find || l.name.toLowerCase().includes(this.find)).sort((a, b) => {
			const x = of(a), y = of(b);
			const order = x < y ? -1 : x > y ? 1 : 0;
			return (this.down ? -order : order) || (a.name < b.name ? -1 : 1);
		});
		put($("limits-note"), f.limits_matching > list.length ? "the " + list.length + " busiest of " + count(f.limits_matching) : f.limits_total === 1 ? "1 limit" : count(f.limits_total) + " limits");
		$("limits-empty").hidden = list.length > 0;
		put($("limits-empty"), f.limits_total ? "No limit has “" + this.find + "” in its name." : "No limits yet. Define one with: jatah serve --limit api=100/min,burst=20 – or PUT /v1/limits/NAME for all nodes.");
		rows($("limits-rows"), list, (l) => l.name, (l) => {
			const tr = el("tr");
			const th = el("th", "who");
			th.scope = "row";
			const b = el("button", "pick");
			b.type = "button";
			b.append(el("span", "name", l.name));
			b.title = l.name;
			b.addEventListener("click", () => this.choose(l.name, true));
			th.append(b, el("span", "tag"), el("span", "sub"));
			tr.append(th);
			for (const c of columns.slice(1)) cell(tr, c.name, "n " + c.id);
			const track = el("span", "track two");
			track.setAttribute("aria-hidden", "true");
			track.append(el("i", "a"), el("i", "r"));
			tr.querySelector(".part").append(track, el("span", "val"));
			tr.addEventListener("click", (e) => { if (!e.target.closest("button") && !String(getSelection())) this.choose(l.name, true); });
			return tr;
		}, (tr, l) => {
			const all = l.smooth.allowed + l.smooth.refused;
			put(tr.querySelector(".tag"), l.dry_run ? "dry run" + (l.dry > 0 ? ", would refuse " + rate(l.dry) + "/s" : "") : "");
			put(tr.querySelector(".sub"), definition(l, true));
			put(tr.querySelector(".allowed"), rate(l.smooth.allowed));
			put(tr.querySelector(".refused"), rate(l.smooth.refused));
			put(tr.querySelector(".part .val"), all ? percent(l.smooth.refused / all) : "idle");
			tr.querySelector("i.a").style.width = (all ? (100 * l.smooth.allowed) / all : 0) + "%";
			tr.querySelector("i.r").style.width = (all ? (100 * l.smooth.refused) / all : 0) + "%";
			put(tr.querySelector(".keys"), count(l.keys) + (l.permits ? " · " + count(l.permits) + " held" : ""));
			toggle(tr, "chosen", l.name === this.chosen);
			tr.querySelector(".pick").setAttribute("aria-pressed", l.name === this.chosen ? "true" : "false");
		});
	}
}

export function keyText(key) { return Array.isArray(key) ? key.join(" / ") : String(key); }

export function keys(l, which) {
	const list = l ? l[which] : [];
	put($("keys-count"), which === "used" ? "Tokens" : "Refusals");
	$("keys-empty").hidden = list.length > 0;
	put($("keys-empty"), which === "used" ? "Nobody used this limit in the last minute." : "Nobody was refused in the last minute.");
	const most = Math.max(1, ...list.map((k) => k[which]));
	rows($("keys"), list, (k) => JSON.stringify(k.key), (k) => {
		const tr = el("tr");
		const th = el("th", "who");
		th.scope = "row";
		const track = el("span", "track " + which);
		track.setAttribute("aria-hidden", "true");
		track.append(el("i"));
		const name = el("span", "name", keyText(k.key));
		name.title = keyText(k.key);
		th.append(name, track);
		tr.append(th, el("td", "n sum"), el("td", "n per"));
		return tr;
	}, (tr, k) => {
		tr.querySelector(".track").className = "track " + which;
		tr.querySelector("i").style.width = (100 * k[which]) / most + "%";
		const error = k[which + "_error"];
		put(tr.querySelector(".sum"), count(k[which]) + (error ? " +" + count(error) + " at most" : ""));
		put(tr.querySelector(".per"), rate(k[which + "_per_second"]));
	});
}
