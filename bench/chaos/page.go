package chaos

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah/bench/report"
)

// command is how to repeat the run.
func (o Options) command() string {
	var b strings.Builder
	b.WriteString("cd bench && go run ./cmd/chaos")
	if o.Soak > 0 {
		fmt.Fprintf(&b, " -soak %v -keys %d", o.Soak, o.Keys)
	} else {
		fmt.Fprintf(&b, " -duration %v", o.Duration)
	}
	fmt.Fprintf(&b, " -seed %d -nodes %d -rate %d -quiet-period %v -longest %v", o.Seed, o.Nodes, o.Rate, o.Quiet, o.Longest)
	if o.Faults != nil {
		fmt.Fprintf(&b, " -faults %s", strings.ReplaceAll(joined(o.Faults), ", ", ","))
	}
	if o.Race {
		b.WriteString(" -race")
	}
	return b.String()
}

// write judges and writes the page and its plots; the logs are kept beside them where a promise was broken.
func (r *run) write(m report.Meta) (page string, err error) {
	what := "chaos"
	if r.o.Soak > 0 {
		what = "soak"
	}
	stem := m.Stem() + "-" + what
	dir := filepath.Join(r.o.Out, stem)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var body strings.Builder
	if r.o.Soak > 0 {
		err = r.soakBody(&body, dir, stem)
	} else {
		err = r.body(&body, dir, stem)
	}
	if err != nil {
		return "", err
	}
	page = dir + ".md"
	f, err := os.Create(page)
	if err != nil {
		return "", err
	}
	defer f.Close()
	r.head(f, m, what)
	if _, err := io.WriteString(f, body.String()); err != nil {
		return "", err
	}
	if len(r.broken) > 0 || r.o.KeepLogs {
		err = r.keepLogs(filepath.Join(dir, "logs"))
	}
	return page, err
}

func (r *run) head(w io.Writer, m report.Meta, what string) {
	fmt.Fprintf(w, "# %s of %s, commit %s\n\n", strings.ToUpper(what[:1])+what[1:], m.Start.UTC().Format("2006-01-02 15:04 UTC"), m.Commit)
	if len(r.broken) == 0 {
		fmt.Fprint(w, "**Every promise was kept.**\n\n")
	} else {
		fmt.Fprintf(w, "**%d promises were BROKEN:**\n\n", len(r.broken))
		for _, line := range r.broken {
			fmt.Fprintf(w, "- %s\n", line)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "`%s`; it took %v.\n\n", m.Command, m.Took.Round(time.Second))
	fmt.Fprintf(w, "- machine: %s, %d processors, memory %s\n- system: %s, %s\n- load average before and after: %s; %s\n", m.Processor, m.Processors, m.Memory,
		m.Kernel, m.Go, m.LoadBefore, m.LoadAfter)
	network := "a network namespace for each node; faults of the network by iptables"
	if r.c.lab == nil {
		network = "**all on the loopback interface: nothing was cut off or lost**"
	}
	fmt.Fprintf(w, "- network: %s\n", network)
	for _, l := range r.left {
		fmt.Fprintf(w, "- left out: %s\n", l)
	}
}

func (r *run) body(w *strings.Builder, dir, stem string) error {
	findings := r.judge()
	held, at := r.heldAtOnce()
	wrong := r.judgeErrors()
	fmt.Fprintf(w, "\n%d nodes, %d steps, %d decisions in %v.\n", r.o.Nodes, len(r.steps), r.load.decisions.Load(), (r.ended - r.started).Round(time.Second))
	excessTable(w, findings)
	fmt.Fprintf(w, "\nPermits: at most %d of %d were certainly held at once (at %.1f s; outside of cuts and pauses and the %v after), %d taken, %d refused.\n",
		held, maxPermits, at.Seconds(), permitTTL, r.load.held, r.load.denied)
	useTable(w, findings)
	r.errorTable(w, wrong)
	r.latencyTable(w)
	r.stepTable(w)
	r.processTable(w)
	return r.plots(w, dir, stem)
}

func excessTable(w io.Writer, findings []finding) {
	fmt.Fprint(w, "\n## Excess\n\nBeyond b + r·t in the worst interval: of the key that is asked for all the time, and of the new keys of which one is asked for by all nodes as each fault begins and ends. "+
		"`beyond` is what is left when what the promise gives for events is taken away: above 1 it is broken. Below 0: by how much it stayed below.\n\n"+
		"| limit | r, b | admitted | refused | worst | from – to | beyond | worst of a new key |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range findings {
		flash := "–"
		if f.flashKey != "" {
			flash = fmt.Sprintf("%.1f (%s)", f.flash, f.flashKey)
		}
		fmt.Fprintf(w, "| %s | %d/s, %d | %d | %d | %.1f | %.1f – %.1f s | %.1f | %s |\n", f.rule.name, f.rule.rate, f.rule.burst, f.admitted, f.denied, f.raw.Tokens,
			f.raw.From.Seconds(), f.raw.To.Seconds(), f.beyond.Tokens, flash)
	}
}

func useTable(w io.Writer, findings []finding) {
	fmt.Fprint(w, "\n## Use in quiet periods\n\nOf r·t, from 3 s after each recovery until the next fault (1 s where quiet periods are short), without those in which the machine paused a node. "+
		"Limits that spend ahead repay that first.\n\n| limit | in all | in the worst | at | decided by |\n|---|---|---|---|---|\n")
	for _, f := range findings {
		if f.rule.offered > 0 && f.rule.offered < 1 || f.rule.offered == 0 && f.rule.name != "all-b" {
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %s | %.1f s | %s |\n", f.rule.name, percent(f.use), percent(f.worst), f.worstAt.Seconds(), counts(f.sources))
	}
}

func percent(part float64) string {
	if math.IsNaN(part) || math.IsInf(part, 0) {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*part)
}

func counts(of map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, of[k]))
	}
	return strings.Join(parts, ", ")
}

func (r *run) errorTable(w io.Writer, wrong []failure) {
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	fmt.Fprint(w, "\n## Requests without a decision\n\n")
	kinds, lines := make(map[string]int), make(map[string]int)
	var order []string
	for _, f := range wrong {
		kinds[f.kind]++
		machine := ""
		if r.machinePaused(f.at-2*patience, f.at+patience, f.node) {
			machine = " (the machine had paused this node)"
		}
		line := fmt.Sprintf("%.0f s, %s: %s%s", f.at.Seconds(), nodeName(f.node), f.text, machine)
		if lines[line]++; lines[line] == 1 {
			order = append(order, line)
		}
	}
	fmt.Fprintf(w, "At nodes that were down, paused or short of files: %s.\n\nAt all others: %s.\n\n", orNone(counts(r.load.errors)), orNone(counts(kinds)))
	for i, line := range order {
		if i == 20 {
			fmt.Fprintf(w, "- and %d more of other moments\n", len(order)-i)
			break
		}
		fmt.Fprintf(w, "- %d × %s\n", lines[line], line)
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (r *run) latencyTable(w io.Writer) {
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	fmt.Fprint(w, "\n## Latency\n\nOf requests that were answered, as the caller sees it, over HTTP, on this machine with all that ran beside.\n\n"+
		"| request | when | answers | p50 | p99 | p99.9 | longest |\n|---|---|---|---|---|---|---|\n")
	for i, when := range []string{"quiet", "faults"} {
		for _, what := range slices.Sorted(maps.Keys(r.load.quick[i])) {
			h := r.load.quick[i][what]
			fmt.Fprintf(w, "| %s | %s | %d | %s | %s | %s | %s |\n", what, when, h.Count(), short(h.Quantile(0.5)), short(h.Quantile(0.99)), short(h.Quantile(0.999)), short(h.Max()))
		}
	}
}

// short rounds to three digits or so.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func (r *run) stepTable(w io.Writer) {
	fmt.Fprint(w, "\n## Schedule\n\nThe same seed draws the same steps; `recovered`: from the end of the fault until all nodes are ready, see and hear all, and owners decide.\n\n```\n")
	for _, d := range r.steps {
		fmt.Fprintf(w, "%8.1f s %-45s recovered after %s\n", d.event.from.Seconds(), d.Step, short(d.recovery))
		for _, n := range d.notes {
			fmt.Fprintf(w, "%15s%s\n", "", n)
		}
	}
	fmt.Fprint(w, "```\n")
	paused := 0
	for _, e := range r.events() {
		if e.step == 0 {
			paused += e.times
		}
	}
	fmt.Fprintf(w, "\nPauses that the machine made and nodes noticed: %d.\n", paused)
	var longest time.Duration
	over := 0
	for _, d := range r.stops {
		longest = max(longest, d)
		if d > stopPromise {
			over++
		}
	}
	fmt.Fprintf(w, "Ends after SIGTERM: %d, the longest took %s, %d took more than %v.\n", len(r.stops), short(longest), over, stopPromise)
	odd := r.scanLogs()
	fmt.Fprintf(w, "\nLines of level ERROR in the logs, without those about panics and races, of which there must be none: %d kinds.\n\n", len(odd))
	for _, line := range slices.Sorted(maps.Keys(odd)) {
		fmt.Fprintf(w, "- %d × `%s`\n", odd[line], strings.ReplaceAll(line, "`", "'"))
	}
}

// processTable has the memory and more of each process that lived for a while.
func (r *run) processTable(w io.Writer) {
	fmt.Fprint(w, "\n## Processes\n\nAt the first and the last sample of each node's last process, and the most of all its processes.\n\n"+
		"| node | starts | resident | most | live heap | most | goroutines | most | files | most |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, n := range r.c.nodes {
		var first, last sample
		top := make(map[string]float64)
		for _, s := range r.watch.samples {
			if s.node != n.index {
				continue
			}
			if s.start != last.start || last.values == nil {
				first = s
			}
			last = s
			for k, v := range s.values {
				top[k] = max(top[k], v)
			}
		}
		if last.values == nil {
			continue
		}
		fmt.Fprintf(w, "| %s | %d |", n.name, n.started())
		for _, k := range []string{mResident, mNextGC, mRoutines, mFiles} {
			unit := 1.0
			if k == mResident {
				unit = 1 << 20
			} else if k == mNextGC {
				unit = 2 << 20 // the next collection is at twice what was live
			}
			fmt.Fprintf(w, " %.4g → %.4g | %.4g |", first.values[k]/unit, last.values[k]/unit, top[k]/unit)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\nMemory in MiB. The live heap is half of where the next collection is due.\n")
}

// plots draws memory and more over time, with faults in gray.
func (r *run) plots(w io.Writer, dir, stem string) error {
	var marked []report.Span
	for _, d := range r.steps {
		marked = append(marked, report.Span{From: d.event.from.Seconds(), To: (d.event.to - time.Second).Seconds()})
	}
	fmt.Fprint(w, "\n## Over time\n\nFaults, until recovery, in gray.\n")
	for _, one := range []struct {
		file, title, unit, metric string
		per                       float64
	}{
		{"resident", "resident memory", "MiB", mResident, 1 << 20},
		{"heap", "live heap (half of where the next collection is due)", "MiB", mNextGC, 2 << 20},
		{"goroutines", "goroutines", "number", mRoutines, 1},
		{"files", "open files and connections", "number", mFiles, 1},
	} {
		var lines []report.Line
		for _, n := range r.c.nodes {
			l := report.Line{Name: n.name}
			for _, s := range r.watch.samples {
				// Without files to open a process cannot tell of itself.
				if _, told := s.values[one.metric]; told && s.node == n.index {
					l.Points = append(l.Points, report.Point{X: s.at.Seconds(), Y: s.values[one.metric] / one.per})
				}
			}
			lines = append(lines, l)
		}
		if err := r.plot(w, dir, stem, one.file, one.title, one.unit, lines, marked); err != nil {
			return err
		}
	}
	if r.o.Soak > 0 {
		return nil
	}
	var lines []report.Line
	for _, name := range []string{"hybrid-wait", "hybrid-share", "strict-wait", "split"} {
		lines = append(lines, r.rateOf(r.load.track(name)))
	}
	return r.plot(w, dir, stem, "admitted", "admitted per second", "tokens/s", lines, marked)
}

func (r *run) plot(w io.Writer, dir, stem, file, title, unit string, lines []report.Line, marked []report.Span) error {
	fmt.Fprintf(w, "\n![%s](%s/%s.svg)\n", title, stem, file)
	return report.DrawLines(filepath.Join(dir, file+".svg"), title, "s", unit, lines, marked)
}

// rateOf is what was admitted in each second, or longer where that would be too many points.
func (r *run) rateOf(t *track) report.Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	width := max(time.Second, (r.ended / 600).Round(time.Second))
	n := make([]float64, int(r.ended/width)+1)
	for _, a := range t.admitted {
		if i := int(a.Done / width); i < len(n) {
			n[i]++
		}
	}
	l := report.Line{Name: t.rule.name}
	for i, v := range n[:len(n)-1] {
		l.Points = append(l.Points, report.Point{X: float64(i) * width.Seconds(), Y: v / width.Seconds()})
	}
	return l
}

// keepLogs copies the logs of the nodes.
func (r *run) keepLogs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, n := range r.c.nodes {
		text, err := os.ReadFile(n.log())
		if err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, n.name+".log"), text, 0o644); err != nil {
			return err
		}
		// A state file that could not be used says what is wrong with who wrote it.
		bad, _ := filepath.Glob(filepath.Join(n.state(), "*.bad-*"))
		for _, name := range bad {
			if text, err = os.ReadFile(name); err == nil {
				err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
