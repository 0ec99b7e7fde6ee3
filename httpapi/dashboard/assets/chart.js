// A chart of what was allowed and refused in the last five minutes.
import { el, put, rate, count, time } from "/dashboard/format.js";

const span = 300; // seconds that are kept
const least = 60; // that are shown

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

export class Chart {
	constructor(box, legend, height) {
		this.box = box;
		this.height = height;
		this.label = box.getAttribute("aria-label");
		this.clear();
		legend.replaceChildren();
		this.at = el("span", "at");
		this.allowed = el("b", "", "0");
		this.refused = el("b", "", "0");
		const item = (kind, name, value) => {
			const e = el("span", "key " + kind);
			e.append(el("i"), el("span", "", name), value);
			return e;
		};
		legend.append(this.at, item("allowed", "allowed", this.allowed), item("refused", "refused", this.refused));
		this.none = el("p", "overlay");
		this.none.hidden = true;
		new ResizeObserver(() => this.resize()).observe(box);
	}

	clear() { this.data = [[], [], []]; this.hover = null; if (this.plot) this.draw(); }

	// fill takes a history: times in ms.
	fill(past) {
		this.data = [past.times.map((t) => t / 1000), past.allowed, past.refused];
		this.draw();
	}

	add(ms, allowed, refused) {
		const [t, a, r] = this.data;
		const now = ms / 1000;
		while (t.length && now <= t[t.length - 1]) { t.pop(); a.pop(); r.pop(); } // it is told again, or the node's clock was set back
		if (t.length && now - t[t.length - 1] > 15) { // nothing was heard: no line is drawn across it
			t.push(t[t.length - 1] + 1); a.push(null); r.push(null);
		}
		t.push(now); a.push(allowed); r.push(refused);
		while (t.length && t[0] < now - span - 5) { t.shift(); a.shift(); r.shift(); }
		this.draw();
	}

	// restyle is for other colours.
	restyle() { if (this.plot) { this.plot.destroy(); this.plot = null; } this.draw(); }

	resize() {
		const width = this.box.clientWidth;
		if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
		else if (!this.plot) this.draw();
	}

	make(width) {
		const grid = { stroke: colour("--grid"), width: 1 };
		const axis = { stroke: colour("--muted"), font: "11px system-ui, sans-serif", grid, ticks: { show: false } };
		this.plot = new uPlot({
			width, height: this.height, legend: { show: false }, padding: [8, 28, 0, 0],
			cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
			scales: {
				x: { time: true, range: () => { const t = this.data[0]; const end = t.length ? t[t.length - 1] : Date.now() / 1000; return [Math.max(end - span, Math.min(end - least, t.length ? t[0] : end)), end]; } },
				y: { range: (u, low, high) => [0, Math.max(1, (high || 0) * 1.12)] },
			},
			axes: [
				{ ...axis, size: 26, space: 70, values: (u, ts, i, space, step) => ts.map((t) => time(t * 1000).slice(0, step < 60 ? 8 : 5)), incrs: [10, 15, 30, 60, 120, 300] },
				{ ...axis, size: 46, space: 34, values: (u, vs) => vs.map((v) => (v < 10 ? String(+v.toFixed(2)) : count(v))) },
			],
			series: [
				{},
				{ label: "allowed", stroke: colour("--allowed"), fill: colour("--allowed-fill"), width: 1.75, points: { show: false } },
				{ label: "refused", stroke: colour("--refused"), width: 1.75, dash: [5, 3], points: { show: false } },
			],
			hooks: { setCursor: [(u) => { this.hover = u.cursor.idx; this.tell(); }] },
		}, this.data, this.box);
		this.box.append(this.none);
	}

	draw() {
		const width = this.box.clientWidth;
		if (width === 0) return; // it is hidden
		if (!this.plot) this.make(width);
		else this.plot.setData(this.data);
		this.tell();
	}

	tell() {
		const [t, a, r] = this.data;
		const last = t.length - 1;
		const i = this.hover !== null && this.hover !== undefined && this.hover <= last && this.plot && this.plot.cursor.left >= 0 ? this.hover : last;
		put(this.at, i >= 0 && i !== last ? time(t[i] * 1000) : "");
		put(this.allowed, i >= 0 ? rate(a[i] || 0) : "0");
		put(this.refused, i >= 0 ? rate(r[i] || 0) : "0");
		const most = Math.max(0, ...a.map(Number), ...r.map(Number));
		this.none.hidden = most > 0;
		put(this.none, t.length ? "No decisions in this time" : "Waiting for the first second");
		this.box.setAttribute("aria-label", last < 0 ? this.label : this.label + ": now " + rate(a[last] || 0) + " allowed and " + rate(r[last] || 0) + " refused, at most " + rate(most));
	}
}
