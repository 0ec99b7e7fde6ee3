package demo

import (
	"fmt"
	"math"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/internal/envelope"
)

// verdict is what the run showed.
type verdict struct {
	kept  bool
	weak  bool // kept, but the promise was so wide that this says little
	lines []string
}

func (v *verdict) say(format string, args ...any) {
	v.lines = append(v.lines, fmt.Sprintf(format, args...))
}

// promise is the excess that the limit's mode and fallback allow, in tokens:
// at any time, and besides for each fault.
func promise(l jatah.Limit) (always, perFault float64, ok bool) {
	b := float64(burst(l))
	always = l.Overshoot * b
	switch l.Fallback {
	case jatah.FallbackAllow:
		return 0, 0, false
	case jatah.FallbackShare:
		return always, b, true
	}
	return always, 0, true
}

// judge computes the verdict from the journal.
func judge(s *show) verdict {
	records, f := s.journal.all(), s.fault
	end := s.length
	v := verdict{kept: true}
	v.say("")
	v.say("verdict")
	v.judgeHotKey(s, records, f, end)
	v.judgeExcess(s, records, f)
	v.describeFault(s, records, f, end)
	v.say("")
	switch {
	case !v.kept:
		v.say("The promise was BROKEN.")
	case v.weak:
		v.say("The promise was kept. (But this run proves little; see above.)")
	default:
		v.say("The promise was kept.")
	}
	return v
}

func hotIn(from, to time.Duration) func(record) bool {
	return func(r record) bool { return r.key == 0 && r.done >= from && r.done < to }
}

// judgeHotKey compares what the hot key was admitted with b + r*t.
func (v *verdict) judgeHotKey(s *show, records []record, f fault, end time.Duration) {
	r, b := perSecond(s.Limit.Rate), float64(burst(s.Limit))
	last := end
	for _, rec := range records {
		last = max(last, rec.done)
	}
	all := summarize(records, hotIn(0, last+1))
	v.say("  %s sent %d requests in %.1f s; %d were admitted", users[0], all.offered(), end.Seconds(), all.admitted)
	v.say("  the limit allows b + r·t = %.0f + %.4g·%.1f = %.0f", b, r, last.Seconds(), math.Floor(b+r*last.Seconds()))

	used := func(from, to time.Duration, extra float64) string {
		part, ok := s.usedOf(records, from, to, extra)
		if !ok {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*part)
	}
	v.say("  used of the limit: %s before, %s while %s was gone, %s after",
		used(0, f.killed, b), used(f.killed, min(f.back, end), 0), s.name(s.victim), used(f.back, end, 0))
	if after, _ := s.usedOf(records, f.back, end, 0); after > 1 {
		v.say("  (more than 100 %% after: tokens that were saved up, never beyond b + r·t)")
	}
	v.say("  (a crashed node's third stays unused until it is back, because nobody can know")
	v.say("  that it is not still admitting. These nodes count three by `expect` and `join`;")
	v.say("  where nothing says how many there are, the third is dealt out after `grace`)")
}

// usedOf is what the hot key was admitted in a part of the run over r*t and
// what is allowed besides; not ok if nothing was asked then.
func (s *show) usedOf(records []record, from, to time.Duration, extra float64) (part float64, ok bool) {
	hot := summarize(records, hotIn(from, to))
	allowed := extra + perSecond(s.Limit.Rate)*(to-from).Seconds()
	if to <= from || hot.offered() == 0 {
		return 0, false
	}
	return float64(hot.admitted) / allowed, true
}

// judgeExcess finds the worst interval of every key and compares it with the
// promise, before the fault and over the whole run.
func (v *verdict) judgeExcess(s *show, records []record, f fault) {
	always, perFault, ok := promise(s.Limit)
	if !ok {
		v.say("  excess: not judged, because fallback allow promises nothing while the owner is silent")
		return
	}
	before, whole := envelope.Excess{Tokens: math.Inf(-1)}, envelope.Excess{Tokens: math.Inf(-1)}
	late := 0 // most that a user got ahead of shares before the kill
	for key := range users {
		var calm, all []envelope.Admission
		ahead := 0
		for _, r := range records {
			if r.key != key || r.outcome != admitted {
				continue
			}
			a := envelope.Admission{Sent: r.sent, Done: r.done}
			all = append(all, a)
			if r.done < f.killed {
				calm = append(calm, a)
				if r.ahead {
					ahead++
				}
			}
		}
		late = max(late, ahead)
		rate, b := perSecond(s.Limit.Rate), float64(burst(s.Limit))
		if e := envelope.WorstExcess(calm, rate, b); e.Tokens > before.Tokens {
			before = e
		}
		if e := envelope.WorstExcess(all, rate, b); e.Tokens > whole.Tokens {
			whole = e
		}
	}
	if f.pauses > 0 {
		v.say("  this machine was so busy that nodes did not run for a while: %s", count(f.pauses, "pause"))
		v.say("  (%d before the kill), each a fault of its own", f.pausesBefore)
	}
	if late > 0 {
		v.say("  this machine was so busy that an owner's answers came too late before the kill: a")
		v.say("  user got %s ahead of the others' shares, each of which may be one too many", count(late, "token"))
		always += float64(late)
	}
	v.compare("worst excess in any interval before the kill", before, always+float64(f.pausesBefore)*perFault)
	promised := always + float64(f.pauses+2)*perFault
	v.compare("worst excess with the kill and the return", whole, promised)
	v.weigh(s, promised)
}

// weigh says when keeping the promise is no feat: because it allows half as
// much again as the limit does in the time of the run, or more.
func (v *verdict) weigh(s *show, promised float64) {
	if promised < (float64(burst(s.Limit))+perSecond(s.Limit.Rate)*s.length.Seconds())/2 {
		return
	}
	v.weak = true
	if n := s.fault.pauses; n > 0 {
		v.say("  this machine paused %s; the promise allows a burst for each, so this run", count(n, "time"))
		v.say("  proves little: repeat it when less else is running")
		return
	}
	v.say("  so much is promised for so short a time that this run proves little: use a")
	v.say("  longer --duration or a smaller burst")
}

// count is a number of things that have a regular plural.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func (v *verdict) compare(what string, excess envelope.Excess, allowed float64) {
	// Excess is in whole tokens; a fraction of one comes from where the
	// interval was cut.
	measured := math.Floor(max(excess.Tokens, 0))
	word := "kept"
	if measured > math.Floor(allowed) {
		word, v.kept = fmt.Sprintf("BROKEN from %.3f s to %.3f s", excess.From.Seconds(), excess.To.Seconds()), false
	}
	v.say("  %s: %.0f, promised at most %.0f: %s", what, measured, math.Floor(allowed), word)
}

// describeFault says how the fault felt to those who sent requests.
func (v *verdict) describeFault(s *show, records []record, f fault, end time.Duration) {
	calm := summarize(records, func(r record) bool { return r.done < f.killed })
	v.say("  decision time in calm: p50 %s, p99 %s", short(calm.p50), short(calm.p99))
	until, lost := f.back, 0
	for _, r := range records {
		if r.outcome == failed {
			lost++
		}
	}
	down := summarize(records, func(r record) bool { return r.sent >= f.killed-time.Second/10 && r.sent < until })
	v.say("  while %s was gone: p50 %s, p99 %s, slowest decision %s", s.name(s.victim), short(down.p50), short(down.p99), short(down.slowest))
	v.say("  requests without a decision: %d, at %s when it died", lost, s.name(s.victim))
	v.say("  decided by fallback: %d before, %d while %s was gone, %d after",
		fallbacks(records, 0, f.killed), fallbacks(records, f.killed, until), s.name(s.victim), fallbacks(records, until, end+time.Hour))
	if n := s.load.lost.Load(); n > 0 {
		v.say("  %d more requests were meant to be sent, but this machine was too busy", n)
	}
}

func fallbacks(records []record, from, to time.Duration) int {
	n := 0
	for _, r := range records {
		if r.elsewhere && r.done >= from && r.done < to {
			n++
		}
	}
	return n
}
