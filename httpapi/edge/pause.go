package edge

import (
	"fmt"
	"math"
	"time"

	"github.com/jatah-io/jatah"
)

// Pause is a penalty that grows for a key that goes on when it is refused. After so many refusals by the limit the key is paused: whatever it
// sends is refused at once, from this instance's memory, without a look at the limit. The first pause takes Base, each further one Factor
// times as long, up to Max. A pause ends by itself; what comes meanwhile is not counted and does not lengthen it, so that a program which
// repeats what it sends gets out again, and nobody can keep a key of others in for less than it takes to be refused again and again.
//
// Every instance keeps its own pauses. Limits hold for the whole cluster with or without them.
type Pause struct {
	// Limit names the use of the rule whose refusals count and whose key is paused. "": the first. It should be one whose key others cannot
	// use: with the address in it, or an account that was proved.
	Limit string
	// After is how many refusals make a pause, for the first and for each further one. 0: 10.
	After int
	// Base is the first pause, Max the longest. 0: a second, and 15 minutes.
	Base, Max time.Duration
	// Factor is how much longer each pause is than the one before, 1 or more. 0: 2.
	Factor float64
	// Forget is for how long a key must be quiet, that is neither refused by the limit nor paused, until the next pause is one step shorter and
	// the refusals so far are forgotten. 0: Max.
	Forget time.Duration
}

// pause is a Pause that has been checked.
type pause struct {
	use     int
	after   int32
	lengths []int64 // ns, of the first pause, the second, ...; the last is for all that follow
	forget  int64   // ns
}

// maxLevels is how many steps a pause may have. With fewer the last one would have to jump where Factor is just above 1.
const maxLevels = 1000

// addPause checks the pause of a rule, if it has one.
func (r *rule) addPause() error {
	if r.Pause == nil {
		return nil
	}
	p := r.Pause
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: the pause of rule %q %s", ErrConfig, r.Name, fmt.Sprintf(format, args...))
	}
	c := &pause{use: -1, after: int32(min(p.After, math.MaxInt32)), forget: int64(p.Forget)}
	for i, u := range r.Uses {
		if c.use < 0 && (p.Limit == "" || u.Limit == p.Limit) {
			c.use = i
		}
	}
	base, most, factor := p.Base, p.Max, p.Factor
	if base == 0 {
		base = time.Second
	}
	if most == 0 {
		most = max(15*time.Minute, base)
	}
	if factor == 0 {
		factor = 2
	}
	if c.after == 0 {
		c.after = 10
	}
	if c.forget == 0 {
		c.forget = int64(most)
	}
	switch {
	case len(r.Uses) == 0:
		return bad("has nothing to count: the rule has no limit that could refuse")
	case c.use < 0:
		return bad("counts refusals by the limit %q, which the rule does not use: name one of its limits", p.Limit)
	case c.after < 0 || base < 0 || most < 0 || c.forget < 0:
		return bad("has a number below 0: After, Base, Max and Forget are 0 for the default, or more")
	case base > most:
		return bad("begins with %v, which is longer than the longest, %v", base, most)
	case !(factor >= 1):
		return bad("has the factor %v; it must be 1 or more", factor)
	}
	r.pause = c
	for length := float64(base); length < float64(most) && len(c.lengths) < maxLevels; length *= factor {
		c.lengths = append(c.lengths, int64(length))
		if factor == 1 {
			return nil
		}
	}
	c.lengths = append(c.lengths, int64(most))
	return nil
}

// penalty is what is known of one key.
type penalty struct {
	p        *pause
	until    int64 // end of the last pause
	opens    int64 // when the limit lets pass what it refused last
	quiet    int64 // since when: the last refusal, or the end of the pause
	level    int32 // how many steps it has climbed
	refusals int32 // since the last pause
}

// age forgets what quiet time is to forget.
func (y *penalty) age(now int64) {
	steps := (now - y.quiet) / y.p.forget
	if steps < 1 {
		return // also during the pause, when quiet is still to come
	}
	y.refusals = 0
	y.level -= int32(min(steps, int64(y.level)))
	y.quiet += steps * y.p.forget
}

// over says that nothing is known of the key that matters.
func (y *penalty) over(now int64) bool { return y.level == 0 && y.refusals == 0 && y.until <= now }

// refuse notes a refusal by the limit, and returns the rest of the pause, 0 if there is none.
func (y *penalty) refuse(now int64) int64 {
	if y.until > now {
		return y.until - now // decided before the pause began
	}
	y.age(now)
	y.refusals++
	y.quiet = now
	if y.refusals < y.p.after {
		return 0
	}
	rest := y.p.lengths[min(int(y.level), len(y.p.lengths)-1)]
	y.refusals, y.until = 0, now+rest
	y.quiet = y.until
	y.level = min(y.level+1, int32(max(1, len(y.p.lengths)-1)))
	return rest
}

// less says that y may rather be forgotten than o: one that is not paused before one that is, then the one that climbed fewer steps, has fewer
// refusals, and was refused longer ago; of two that are paused the one that is so for less long.
func (y *penalty) less(o *penalty, now int64) bool {
	if a, b := max(0, y.until-now), max(0, o.until-now); a != b {
		return a < b
	}
	if y.level != o.level {
		return y.level < o.level
	}
	if y.refusals != o.refusals {
		return y.refusals < o.refusals
	}
	return y.quiet < o.quiet
}

// paused refuses a request of a key that is paused.
func (v *Verdict) paused() bool {
	p := v.rule.pause
	if p == nil {
		return false
	}
	t, e := &v.Takes[p.use], v.edge
	rest, opens := e.penalties.rest(e.since(), v.Rule, t.Key)
	if rest == 0 {
		return false
	}
	wait := time.Duration(max(rest, opens)) // or it would be told to come back for the next refusal
	v.Paused, v.RetryAfter = true, wait
	v.Violated, t.refused = append(v.Violated, t.Name), true
	t.Decision = jatah.Decision{RetryAfter: wait, ResetAfter: wait}
	if l, ok := e.node.Lookup(t.Name); ok {
		t.limiter, t.Decision.Mode = l, l.Limit().Mode
	}
	return true
}

// punish counts a refusal by the limit whose key can be paused.
func (v *Verdict) punish() {
	p := v.rule.pause
	if p == nil || v.Err != nil || v.Paused {
		return
	}
	t, e := &v.Takes[p.use], v.edge
	if !t.refused || t.unasked() {
		return // it was another, or nobody knows whether the limit is reached
	}
	wait := t.Decision.RetryAfter
	if wait == jatah.Never {
		wait = 0 // what costs less may pass
	}
	if rest := e.penalties.refuse(e.since(), v.Rule, t.Key, int64(wait), p); rest > 0 {
		v.Paused, v.RetryAfter = true, max(v.RetryAfter, time.Duration(rest))
	}
}

// since is the time of penalties, in nanoseconds.
func (e *Edge) since() int64 { return int64(time.Since(e.start)) }
