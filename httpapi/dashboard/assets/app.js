// The page: it follows one stream, and asks for the history and the keys of the limit that is chosen.
import { put, count, rate } from "/dashboard/format.js";
import { Stream, get, setToken, hasToken, Refused } from "/dashboard/stream.js";
import { Chart } from "/dashboard/chart.js";
import { tiles, members, Events, notices, Limits, definition, sources, keys } from "/dashboard/views.js";

const $ = (id) => document.getElementById(id);
const page = { scope: "node", find: "", limit: "", which: "used", frame: null, top: null, quiet: 0 };

const traffic = new Chart($("traffic"), $("traffic-legend"), 190);
const detail = new Chart($("detail-chart"), $("detail-legend"), 130);
const events = new Events();
const limits = new Limits(choose);
const stream = new Stream(hear, link);

function open() {
	const q = new URLSearchParams({ scope: page.scope });
	if (page.find) q.set("find", page.find);
	if (page.limit) q.set("limit", page.limit);
	page.pinned = page.limit;
	page.heard = Date.now();
	stream.open("/v1/dashboard/stream?" + q);
}

function hear(name, data) {
	page.heard = Date.now();
	if (name === "history") begin(data);
	else if (name === "frame") show(data);
}

// begin is for what a stream tells from its beginning: it may be of another process than the one before, and seconds are missing between them.
function begin(past) {
	traffic.fill(past);
	events.clear();
	if (page.limit) recall();
}

function link(state, why) {
	$("link").dataset.state = state;
	put($("link"), { wait: "connecting", live: "live", lost: "reconnecting", token: "token needed" }[state]);
	$("link").title = why;
	$("login").hidden = state !== "token";
	if (state === "token") {
		$("main").hidden = true;
		put($("login-why"), hasToken() ? "The token was not accepted: " + why : "It needs the role read. The token stays in this tab and is forgotten with it.");
		put($("node"), location.host);
		$("token").focus();
	}
}

function show(f) {
	page.frame = f;
	if ($("link").dataset.state !== "live") link("live", "");
	$("main").hidden = false;
	document.title = f.node + " – Jatah";
	put($("node"), f.node);
	$("ready").hidden = false;
	put($("ready"), f.ready ? "ready" : f.settling_ms > 0 ? "settling" : "not ready");
	$("ready").className = "chip " + (f.ready ? "ok" : "warn");
	put($("version"), f.version ? "Jatah " + f.version : "Jatah");
	notices(f);
	tiles(f);
	members(f);
	events.add(f.events);
	if (!f.first) traffic.add(f.time, f.now.allowed, f.now.refused);
	if (!f.limits.some((l) => l.name === page.limit)) {
		if (page.limit !== page.pinned) return open(); // others are busier now, and a frame has only some: the chosen one is asked for by name
		const busiest = [...f.limits].sort((a, b) => b.smooth.allowed + b.smooth.refused - a.smooth.allowed - a.smooth.refused)[0];
		choose(busiest ? busiest.name : "", false);
	}
	limits.show(f, page.limit, page.find);
	const l = f.limits.find((x) => x.name === page.limit);
	$("detail").hidden = !l;
	if (!l) return;
	put($("detail-h"), l.name);
	put($("definition"), definition(l) + (l.dry_run ? " · dry run: nothing is refused, " + rate(l.dry) + "/s would be" : "") + " · " + count(l.allowed) + " allowed and " + count(l.refused) + " refused since the start");
	sources(l);
	if (detail.ready && !f.first) detail.add(f.time, l.now.allowed, l.now.refused);
}

// choose shows a limit in detail.
async function choose(name, asked) {
	if (name === page.limit && asked) return reveal();
	page.limit = name;
	page.top = null;
	detail.clear();
	if (page.frame) limits.show(page.frame, name, page.find);
	if (!name) return;
	keys(null, page.which);
	put($("keys-empty"), "Asking the members …");
	top();
	if (await recall() && asked) reveal();
}

// recall fills the chart of the chosen limit with what was before; false: something else was asked for meanwhile.
let recalls = 0;
async function recall() {
	const mine = ++recalls;
	detail.ready = false;
	let past = null;
	try {
		past = await get("/v1/dashboard/history?" + new URLSearchParams({ scope: page.scope, limit: page.limit }));
	} catch { /* then it begins now */ }
	if (mine !== recalls) return false;
	if (past) detail.fill(past);
	detail.ready = true;
	return true;
}

// reveal brings the detail into sight where it is below the list.
function reveal() {
	const box = $("detail").getBoundingClientRect();
	if (box.top > innerHeight - 120) $("detail").scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

let asking = null;
async function top() {
	const name = page.limit;
	if (!name || document.hidden || $("link").dataset.state === "token") return;
	if (asking) asking.abort();
	asking = new AbortController();
	try {
		const t = await get("/v1/top?" + new URLSearchParams({ limit: name, n: "10" }), asking.signal);
		if (page.limit !== name) return;
		page.top = t.limits[0] || null;
		keys(page.top, page.which);
		const l = page.top;
		put($("keys-note"), "Whole cluster, last " + (l ? Math.round(l.span_ms / 1000) : 60) + " s" + (l && l.sample > 1 ? ", one in " + l.sample + " counted" : "") + (t.missing.length ? " · without " + t.missing.join(", ") : ""));
	} catch (err) {
		if (err instanceof Refused && page.limit === name) put($("keys-note"), "Keys cannot be shown: " + err.message);
	}
}
setInterval(top, 3000);

// A page that nobody looks at gives its stream back after a minute.
document.addEventListener("visibilitychange", () => {
	clearTimeout(page.quiet);
	if (document.hidden) page.quiet = setTimeout(() => { stream.close(); page.asleep = true; }, 60000);
	else if (page.asleep) { page.asleep = false; open(); }
});

// A stream that says nothing, not even that the node is still there, is dead, though nobody may ever tell its end of the connection: another is opened.
setInterval(() => { if ($("link").dataset.state === "live" && !page.asleep && Date.now() - page.heard > 12000) open(); }, 1000);

for (const input of $("scope").querySelectorAll("input")) {
	input.checked = input.value === "node"; // a reload may have kept another
	input.addEventListener("change", () => {
		page.scope = input.value;
		traffic.clear();
		open();
		const name = page.limit;
		page.limit = "";
		choose(name, false);
	});
}

let typing = 0;
$("find").addEventListener("input", () => {
	page.find = $("find").value.trim().toLowerCase();
	if (page.frame) limits.show(page.frame, page.limit, page.find);
	clearTimeout(typing);
	typing = setTimeout(open, 400);
});

$("login").addEventListener("submit", (e) => {
	e.preventDefault();
	setToken($("token").value.trim());
	$("token").value = "";
	open();
});

const tabs = [$("tab-used"), $("tab-refused")];
function pick(tab) {
	page.which = tab === tabs[0] ? "used" : "refused";
	for (const t of tabs) {
		t.setAttribute("aria-selected", t === tab ? "true" : "false");
		t.tabIndex = t === tab ? 0 : -1;
	}
	$("keys-panel").setAttribute("aria-labelledby", tab.id);
	$("keys").replaceChildren();
	keys(page.top, page.which);
}
for (const tab of tabs) {
	tab.addEventListener("click", () => pick(tab));
	tab.addEventListener("keydown", (e) => {
		if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(e.key)) return;
		e.preventDefault();
		const to = e.key === "Home" ? tabs[0] : e.key === "End" ? tabs[1] : tabs[1 - tabs.indexOf(tab)];
		pick(to);
		to.focus();
	});
}

function theme(name, keep) {
	if (name === "auto") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = name;
	put($("theme"), "Theme: " + name);
	if (keep) try { localStorage.setItem("jatah-theme", name); } catch { /* then until it is closed */ }
	traffic.restyle();
	detail.restyle();
}
$("theme").addEventListener("click", () => {
	const order = ["auto", "dark", "light"];
	theme(order[(order.indexOf(document.documentElement.dataset.theme || "auto") + 1) % 3], true);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(document.documentElement.dataset.theme || "auto", false));
theme(document.documentElement.dataset.theme || "auto", false);

open();
