// Numbers, times and elements. Text only ever becomes text: names and keys may hold markup.

export function el(tag, className, text) {
	const e = document.createElement(tag);
	if (className) e.className = className;
	if (text !== undefined) e.textContent = text;
	return e;
}

// put changes text only where it differs, so that a selection in it stays.
export function put(e, text) {
	text = String(text);
	if (e.textContent !== text) e.textContent = text;
}

export function toggle(e, name, on) { e.classList.toggle(name, Boolean(on)); }

const units = [[1e9, "G"], [1e6, "M"], [1e4, "k"]];

// count is a number of things in at most five characters.
export function count(n) {
	for (const [size, unit] of units) {
		if (n >= size) {
			const scaled = n / (unit === "k" ? 1e3 : size);
			return (scaled >= 100 ? scaled.toFixed(0) : scaled.toFixed(1)) + "\u202f" + unit;
		}
	}
	return Math.round(n).toLocaleString("en");
}

// rate is a number per second: more digits where there are few.
export function rate(n) {
	if (n === 0) return "0";
	if (n < 0.01) return "<0.01";
	if (n < 10) return n.toFixed(n < 1 ? 2 : 1);
	return count(n);
}

export function bytes(n) {
	for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (n >= size) return (n / size).toFixed(1) + "\u202f" + unit;
	return Math.round(n) + "\u202fB";
}

export function millis(ms) {
	if (ms === null || ms === undefined) return "–";
	if (ms >= 1000) return duration(ms);
	return (ms < 10 ? ms.toFixed(ms < 1 ? 2 : 1) : ms.toFixed(0)) + "\u202fms";
}

export function duration(ms) {
	const s = Math.ceil(ms / 1000);
	if (s < 90) return s + "\u202fs";
	if (s < 5400) return Math.round(s / 60) + "\u202fmin";
	if (s < 172800) return Math.round(s / 3600) + "\u202fh";
	return Math.round(s / 86400) + "\u202fd";
}

export function percent(part) {
	const p = part * 100;
	if (p > 0 && p < 0.05) return "<0.1\u202f%";
	return (p >= 10 || p === 0 ? p.toFixed(0) : p.toFixed(1)) + "\u202f%";
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export function time(ms) { return clock.format(ms); }

// rows makes the children of a parent those of the items, by key: what stays keeps its focus.
export function rows(parent, items, keyOf, make, update) {
	const have = new Map();
	for (const child of parent.children) have.set(child.dataset.key, child);
	let at = parent.firstElementChild;
	for (const item of items) {
		const key = keyOf(item);
		let row = have.get(key);
		if (row) have.delete(key);
		else {
			row = make(item);
			row.dataset.key = key;
		}
		if (row === at) at = at.nextElementSibling;
		else {
			const focused = row.contains(document.activeElement) ? document.activeElement : null;
			parent.insertBefore(row, at);
			if (focused) focused.focus({ preventScroll: true });
		}
		update(row, item);
	}
	for (const gone of have.values()) gone.remove();
}
