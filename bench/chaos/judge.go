package chaos

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah/internal/envelope"
)

// finding is what the judge found about a limit.
type finding struct {
	rule             rule
	admitted, denied int
	raw              envelope.Excess // beyond b + r·t, whatever happened
	beyond           envelope.Excess // beyond that and what the events allow
	flash            float64         // the worst raw excess of a key that a flash met
	flashKey         string
	use, worst       float64 // of r·t in all quiet periods together, and in the worst
	worstAt          time.Duration
	sources          map[string]int
}

// tolerance is one token: time is cut somewhere.
const tolerance = 1

// events are the steps, and the pauses that the machine made.
func (r *run) events() (all []event) {
	for _, d := range r.steps {
		all = append(all, d.event)
	}
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	for _, p := range r.watch.paused {
		for _, d := range r.steps {
			if d.Kind == Pause && d.Nodes[0] == p.nodes[0] && d.event.from <= p.to && p.from <= d.event.to {
				p.times-- // it was meant
				break
			}
		}
		if p.times > 0 {
			all = append(all, p)
		}
	}
	return all
}

// judge looks at all limits; what is broken is recorded.
func (r *run) judge() (all []finding) {
	events := r.events()
	r.load.mu.Lock()
	flashes := slices.Clone(r.load.flashes)
	r.load.mu.Unlock()
	for _, t := range r.load.tracks {
		f := r.find(t, events)
		f.use, f.worst, f.worstAt = r.use(t)
		f.flash = math.Inf(-1)
		for _, flash := range flashes {
			if flash.rule.name != t.rule.name {
				continue
			}
			one := r.find(flash, events)
			if one.raw.Tokens > f.flash {
				f.flash, f.flashKey = one.raw.Tokens, flash.key
			}
		}
		all = append(all, f)
		if r.judgesUse() && f.rule.judged && f.use < leastUse {
			r.brokenf("limit %s: in all quiet periods together %s of r·t were used, less than %s", f.rule.name, percent(f.use), percent(leastUse))
		}
	}
	return all
}

// leastUse is of r·t, and more than noise takes away: 0.99 is promised on a machine that has time.
const leastUse = 0.95

// judgesUse is false where quiet periods are too short to tell.
func (r *run) judgesUse() bool { return r.o.Soak == 0 && r.o.Quiet >= 5*time.Second }

// judgeErrors: a node that no fault had touched decides, unless the machine did not let it run.
func (r *run) judgeErrors() (all []failure) {
	r.load.mu.Lock()
	all = slices.Clone(r.load.wrong)
	r.load.mu.Unlock()
	broken := make(map[string]int)
	for _, f := range all {
		if f.kind != late && f.kind != unused && !r.machinePaused(f.at-2*patience, f.at+patience, f.node) {
			broken[f.kind]++
		}
	}
	if len(broken) > 0 {
		r.brokenf("nodes that no fault had touched made no decision: %s", counts(broken))
	}
	return all
}

// find judges the excess of one track.
func (r *run) find(t *track, events []event) finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	rate, burst := float64(t.rule.rate), float64(t.rule.burst)
	f := finding{
		rule: t.rule, admitted: len(t.admitted), denied: t.refused, sources: t.sources,
		raw:    envelope.WorstExcess(t.admitted, rate, burst),
		beyond: envelope.WorstExcess(t.admitted, rate, burst, t.rule.allowances(events)...),
	}
	if f.beyond.Tokens > tolerance {
		r.brokenf("limit %s, key %s: %.1f tokens beyond what is promised, from %.3f s to %.3f s (%s)", t.rule.name, t.key,
			f.beyond.Tokens, f.beyond.From.Seconds(), f.beyond.To.Seconds(), r.around(f.beyond.From, f.beyond.To))
	}
	return f
}

// around names the steps that an interval meets.
func (r *run) around(from, to time.Duration) string {
	var met []string
	for _, d := range r.steps {
		if d.event.from <= to && from <= d.event.to {
			met = append(met, strings.Join(strings.Fields(d.Step.String()), " "))
		}
	}
	if len(met) == 0 {
		return "no step was on"
	}
	return "while: " + strings.Join(met, "; ")
}

// use is the part of r·t that was admitted in quiet periods: in all of them, and in the worst.
func (r *run) use(t *track) (all, worst float64, at time.Duration) {
	worst = math.Inf(1)
	sum, length := 0, time.Duration(0)
	for _, d := range r.steps {
		// A debt is repaid out of the limit: where nodes may have spent ahead, that takes up to b/r for each event.
		from := d.quiet
		if r.o.Quiet > 4*time.Second {
			from += 2 * time.Second
		}
		if d.until-from < time.Second || r.machinePaused(from, d.until) {
			continue
		}
		n := t.between(from, d.until)
		sum, length = sum+n, length+d.until-from
		if part := float64(n) / (float64(t.rule.rate) * (d.until - from).Seconds()); part < worst {
			worst, at = part, from
		}
	}
	if length == 0 {
		return math.NaN(), math.NaN(), 0
	}
	return float64(sum) / (float64(t.rule.rate) * length.Seconds()), worst, at
}

// machinePaused is whether a node, of some or of all, noticed a pause in a part of the run.
func (r *run) machinePaused(from, to time.Duration, nodes ...int) bool {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	return slices.ContainsFunc(r.watch.paused, func(p event) bool {
		return p.from <= to && from <= p.to && (len(nodes) == 0 || slices.Contains(nodes, p.nodes[0]))
	})
}

// heldAtOnce judges the permits.
func (r *run) heldAtOnce() (n int, at time.Duration) {
	events := r.events()
	r.load.mu.Lock()
	held := slices.Clone(r.load.permits)
	r.load.mu.Unlock()
	for i := range held {
		// With the node that holds them they end.
		if end, ok := r.c.nodes[held[i].node].end(held[i].start); ok {
			held[i].to = min(held[i].to, end.Sub(r.load.begin))
		}
	}
	n, at = most(held, func(at time.Duration) bool {
		return slices.ContainsFunc(events, func(e event) bool {
			switch e.kind {
			case Pause, Isolate, OneWay, Halves, Corner, Loss: // who was declared dead while it lives may hold besides
				return e.from <= at && at <= e.to+permitTTL
			}
			return false
		})
	})
	if n > maxPermits {
		r.brokenf("%d permits were held at once at %.3f s, and %d are promised (%s)", n, at.Seconds(), maxPermits, r.around(at, at))
	}
	return n, at
}

// badLine is what no log may have; oddLine what the page shows.
var (
	badLine = regexp.MustCompile(`^panic:|state file cannot be used|^fatal error:|WARNING: DATA RACE|level=ERROR msg="?http: panic`)
	oddLine = regexp.MustCompile(`level=ERROR`)
)

// scanLogs looks for panics, races and errors in the logs of all nodes.
func (r *run) scanLogs() (odd map[string]int) {
	odd = make(map[string]int)
	for _, n := range r.c.nodes {
		text, err := os.ReadFile(n.log())
		if err != nil {
			continue // the guest may never have run
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if badLine.MatchString(line) {
				r.brokenf("the log of %s has %q", n.name, line)
			}
			if oddLine.MatchString(line) {
				_, message, _ := strings.Cut(line, "msg=")
				odd[fmt.Sprintf("%.160s", message)]++
			}
		}
	}
	return odd
}
