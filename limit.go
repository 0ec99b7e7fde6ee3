package jatah

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/hybrid"
)

// Never is the wait that says: no wait helps. As Config.Grace it means for ever.
const Never = bucket.Never

// MaxPerSecond is the fastest rate, in tokens per second.
const MaxPerSecond = bucket.MaxPerSecond

// Rate is a number of tokens per duration.
type Rate = bucket.Rate

// Per is n tokens per d.
func Per(n int64, d time.Duration) Rate { return bucket.Per(n, d) }

// PerSecond is n tokens per second.
func PerSecond(n int64) Rate { return bucket.Per(n, time.Second) }

// PerMinute is n tokens per minute.
func PerMinute(n int64) Rate { return bucket.Per(n, time.Minute) }

// PerHour is n tokens per hour.
func PerHour(n int64) Rate { return bucket.Per(n, time.Hour) }

// PerDay is n tokens per 24 hours.
func PerDay(n int64) Rate { return bucket.Per(n, 24*time.Hour) }

// ParseRate reads "100/min", "5/10s", "7/s", "5r/m" and the like.
func ParseRate(s string) (Rate, error) { return bucket.ParseRate(s) }

// Mode says who decides a request; see [Hybrid], [Strict], [Split].
type Mode = hybrid.Mode

// The modes of a limit.
const (
	Hybrid = hybrid.Hybrid // nodes spend credit that the key's owner granted; the default
	Strict = hybrid.Strict // the owner decides each request
	Split  = hybrid.Split  // every node has 1/K of the limit to itself
)

// ParseMode reads "hybrid", "strict" or "split".
func ParseMode(s string) (Mode, error) { return hybrid.ParseMode(s) }

// Fallback says how requests are decided that find no credit while their owner is silent, and so what a partition, a pause or a crash may
// let through beyond burst + rate*t: nothing with FallbackWait; at most one burst per event with FallbackShare, most of it owed and
// charged afterwards, and with FallbackDeny, whose new owners too start from what the heir kept; everything with FallbackAllow. A partition that outlasts Config.Grace gives each side the whole limit.
type Fallback = hybrid.Fallback

// The fallbacks of a limit.
const (
	FallbackShare = hybrid.FallbackShare // own share, and once ahead of it what was last seen; the default
	FallbackWait  = hybrid.FallbackWait  // own share, once its loan has run out: nothing beyond the limit, ever
	FallbackDeny  = hybrid.FallbackDeny  // refuse
	FallbackAllow = hybrid.FallbackAllow // admit
)

// ParseFallback reads "share", "wait", "deny" or "allow".
func ParseFallback(s string) (Fallback, error) { return hybrid.ParseFallback(s) }

// Source says how a decision was made: local, owner, share, ahead, deny or allow.
type Source = hybrid.Source

// The sources of a decision.
const (
	SourceLocal = hybrid.SourceLocal // in this node's memory: credit, the bare bucket, a denial that stands
	SourceOwner = hybrid.SourceOwner // the owner, for this request
	SourceShare = hybrid.SourceShare // the owner is silent: from this node's own share
	SourceAhead = hybrid.SourceAhead // the owner is silent: ahead of the share, owed
	SourceDeny  = hybrid.SourceDeny  // the owner is silent, fallback deny
	SourceAllow = hybrid.SourceAllow // the owner is silent, fallback allow; or there is no room for the key, overflow allow
)

// Decision is the answer to one request: OK; Remaining tokens; RetryAfter (Never: no wait helps) and ResetAfter; Source and Mode; MaxExcess in
// tokens; Delay, of a queue; DryRun; Err; and by the method AsOf, when the state it rests on was known. For the fields and methods: go doc
// github.com/jatah-io/jatah/hybrid.Decision
type Decision = hybrid.Decision

// The algorithms of a limit: how time gives tokens back. See docs/choosing.md for which one suits what.
const (
	TokenBucket   = "token_bucket"   // Burst at once, and Rate over time; the default
	FixedWindow   = "fixed_window"   // Rate.Count in each window of Rate.Per, counted from the Unix epoch or by Calendar
	SlidingWindow = "sliding_window" // two windows, of which the one before counts with the part that is still in sight
	SlidingLog    = "sliding_log"    // exactly Rate.Count in any Rate.Per; remembers each request
	LeakyBucket   = "leaky_bucket"   // a meter; with Queue or MaxWait a queue that spaces requests out
	Concurrency   = "concurrency"    // Max permits held at once; no rate. See Limiter.Acquire
	BurstAverage  = "burst_average"  // BurstRate while the average of BurstTime is below BurstThreshold, then Rate
)

// Algorithms lists the names that Limit.Algorithm can have.
func Algorithms() []string { return bucket.Algorithms() }

// Limit is the definition of one rule. Compare with Equal. Fields that its algorithm does not use must be zero. It is not changed by a
// Node, and must not be changed while a Node has it.
type Limit struct {
	Name      string   // 1 to 64 of letters, digits and _ . - / :
	Rate      Rate     // count 0: deny everything
	Rates     []Rate   // several rates at once, instead of Rate: a request passes if all agree, the tightest answers
	Burst     int64    // tokens that a full key holds, of the first rate; 0: its count
	Algorithm string   // one of Algorithms; "": TokenBucket
	Mode      Mode     // zero: Hybrid. A queue is decided by the key's owner, as in Strict: departures are in the order of arrival
	Overshoot float64  // phi, 0 to 1: the part of the burst that may be exceeded to save waiting
	Fallback  Fallback // zero: FallbackShare
	DryRun    bool     // count what would be denied, deny nothing

	Calendar string // FixedWindow: hour, day, week, month or year as the calendar has them; Rate.Per is its nominal length
	Timezone string // of the calendar, such as Europe/Berlin; "": UTC

	Queue   int64         // LeakyBucket: how many tokens may wait; 0 with MaxWait: any number. Decision.Delay says for how long
	MaxWait time.Duration // LeakyBucket: the longest wait; 0 with Queue: any

	BurstRate      Rate          // BurstAverage: the speed while the average is below the threshold
	BurstThreshold Rate          // BurstAverage
	BurstTime      time.Duration // BurstAverage: over how long the average is taken

	// Plans are other amounts under the same name: free, pro. A caller names one with Limiter.Plan. A key has the plan of its last request;
	// what it used stays used when that changes.
	Plans map[string]Plan
	// Overrides are for keys that have other amounts whatever plan a caller names.
	Overrides []Override

	MaxLog int // SlidingLog: requests remembered per key, before neighbours are merged; 0: 1024
	// Parent is the name of a limit defined before: a take is then the same take on both, charged together or not at all. All
	// children share one key of the parent, its own name. It may have a parent too, up to eight. "": none.
	Parent string
	// Costs are in tokens, 0 to the largest burst of limit and plans, by route; see Limiter.Cost. A key ending in "*" is for all routes that begin with what stands before
	// it. Nil: every route costs 1. The map of a definition that a node returns is for reading only.
	Costs map[string]int64

	Max int64         // Concurrency: permits held at once per key, in the whole cluster
	TTL time.Duration // Concurrency: how long a permit lives unless it is renewed, at most; 0: a minute
}

// Plan is the amounts of one plan: the fields mean what they mean in Limit, whose algorithm, mode and fallback hold.
type Plan struct {
	Rate  Rate
	Rates []Rate
	Burst int64
}

// Override gives some keys a plan or amounts of their own. A key of its own counts before a prefix, a longer prefix before a shorter.
type Override struct {
	Key    string // this key; or else
	Prefix string // all keys that begin so
	Plan   string // the name of one of Plans, "" with amounts below: those; "" without: the limit's own
	Rate   Rate
	Rates  []Rate
	Burst  int64
}

// Equal says whether two definitions are the same, field by field. No costs and an empty map of costs are the same.
func (l Limit) Equal(o Limit) bool {
	if !maps.Equal(l.Costs, o.Costs) {
		return false
	}
	l.Costs, o.Costs = nil, nil
	return reflect.DeepEqual(l, o)
}

var limitName = regexp.MustCompile(`^[A-Za-z0-9_.\-/:]{1,64}$`)

// Validate says what is wrong with the definition; the error wraps ErrLimit.
func (l Limit) Validate() error {
	_, err := l.spec()
	return err
}

func (l Limit) spec() (hybrid.Spec, error) { return l.specAs(l.several()) }

// several says that the limit or one of its plans has several rates. Then none of them can be the one token bucket that has arithmetic of its
// own: all must be kept in the same way, for a key that goes from one to the other.
func (l *Limit) several() bool {
	some := len(l.Rates) > 1
	for _, p := range l.Plans {
		some = some || len(p.Rates) > 1
	}
	for _, o := range l.Overrides {
		some = some || len(o.Rates) > 1
	}
	return some
}

func (l Limit) specAs(several bool) (hybrid.Spec, error) {
	if !limitName.MatchString(l.Name) {
		return hybrid.Spec{}, fmt.Errorf("%w: the name %.80q must be 1 to 64 characters out of letters, digits and _.-/: without spaces", ErrLimit, l.Name)
	}
	if len(l.Rates) == 1 && l.Rate == (Rate{}) {
		l.Rate, l.Rates = l.Rates[0], nil
	}
	if l.Parent != "" && l.Algorithm == Concurrency {
		return hybrid.Spec{}, fmt.Errorf("%w %q: a limit of algorithm concurrency has no parent: permits are not tokens", ErrLimit, l.Name)
	}
	if l.Parent != "" && (!limitName.MatchString(l.Parent) || l.Parent == l.Name) {
		return hybrid.Spec{}, fmt.Errorf("%w %q: the parent %.80q must be the name of another limit", ErrLimit, l.Name, l.Parent)
	}
	s := hybrid.Spec{Name: l.Name, Rate: l.Rate, Burst: l.Burst, Mode: l.Mode, Fallback: l.Fallback, Overshoot: l.Overshoot, DryRun: l.DryRun, Parent: l.Parent, TTL: l.TTL}
	if r := l.rule(several); r != nil {
		s.Rule = r
		if len(l.Rates) > 0 && l.Rate != (Rate{}) {
			return s, fmt.Errorf("%w %q: rate and rates are both given; write all of them in rates", ErrLimit, l.Name)
		}
		a, err := bucket.Compile(*r)
		if err != nil {
			return s, fmt.Errorf("%w %q: %w", ErrLimit, l.Name, err)
		}
		if l.Algorithm == Concurrency {
			s.Rate, s.Burst, s.TTL = PerSecond(1), a.Limit(), cmp.Or(l.TTL, hybrid.DefaultTTL) // the rate is not used
		} else if s.Rate, s.Burst = r.Rates[0], a.Limit(); a.DenyAll() {
			s.Rate.Count, s.Burst = 0, 0
		}
	}
	if s.Burst == 0 {
		s.Burst = s.Rate.Count
	}
	if err := l.addPlans(&s, several); err != nil {
		return s, err
	}
	if err := s.Validate(); err != nil {
		return s, err
	}
	return s, l.checkCosts(mostBurst(s))
}

var planName = regexp.MustCompile(`^[A-Za-z0-9_.\-]{1,64}$`)

// addPlans compiles plans and overrides. One that has amounts of its own becomes a plan, with a name that none can have.
func (l Limit) addPlans(s *hybrid.Spec, several bool) error {
	plans := make(map[string]Plan)
	if l.Algorithm == Concurrency && len(l.Plans)+len(l.Overrides) > 0 {
		return fmt.Errorf("%w %q: a limit of algorithm concurrency has neither plans nor overrides; define a limit for each", ErrLimit, l.Name)
	}
	for name, p := range l.Plans {
		if !planName.MatchString(name) {
			return fmt.Errorf("%w %q: the plan name %.80q must be 1 to 64 characters out of letters, digits and _.-", ErrLimit, l.Name, name)
		}
		plans[name] = p
	}
	for _, o := range l.Overrides {
		h := hybrid.Override{Key: o.Key, Plan: o.Plan}
		switch {
		case (o.Key == "") == (o.Prefix == ""):
			return fmt.Errorf("%w %q: an override is for a key or for a prefix; give one of them", ErrLimit, l.Name)
		case o.Prefix != "":
			h.Key, h.Prefix = o.Prefix, true
		}
		if slices.ContainsFunc(s.Overrides, func(x hybrid.Override) bool { return x.Key == h.Key && x.Prefix == h.Prefix }) {
			return fmt.Errorf("%w %q: two overrides for %q", ErrLimit, l.Name, h.Key)
		}
		if p := (Plan{o.Rate, o.Rates, o.Burst}); !reflect.DeepEqual(p, Plan{}) {
			if o.Plan != "" {
				return fmt.Errorf("%w %q: the override for %q has a plan and amounts; give one of them", ErrLimit, l.Name, h.Key)
			}
			h.Plan = h.Own()
			plans[h.Plan] = p
		}
		s.Overrides = append(s.Overrides, h)
	}
	for name, p := range plans {
		one := l
		one.Rate, one.Rates, one.Burst, one.Plans, one.Overrides, one.Costs = p.Rate, p.Rates, p.Burst, nil, nil, nil
		x, err := one.specAs(several)
		if err != nil {
			return fmt.Errorf("plan %q: %w", name, err)
		}
		if s.Plans == nil {
			s.Plans = make(map[string]hybrid.Amounts)
		}
		s.Plans[name] = hybrid.Amounts{Rate: x.Rate, Burst: x.Burst, Rule: x.Rule}
	}
	return nil
}

// rule is nil for one token bucket, which has arithmetic of its own, unless there are several elsewhere in the limit.
func (l Limit) rule(several bool) *bucket.Spec {
	r := bucket.Spec{Algorithm: l.Algorithm, Rates: slices.Clone(l.Rates), Burst: l.Burst, Calendar: l.Calendar, Timezone: l.Timezone, Queue: l.Queue, MaxWait: l.MaxWait,
		BurstRate: l.BurstRate, BurstThreshold: l.BurstThreshold, BurstTime: l.BurstTime, MaxLog: l.MaxLog, Max: l.Max}
	if r.Algorithm == "" {
		r.Algorithm = TokenBucket
	}
	if len(r.Rates) == 0 && (l.Algorithm != Concurrency || l.Rate != (Rate{})) {
		r.Rates = []Rate{l.Rate}
	}
	plain := bucket.Spec{Algorithm: TokenBucket, Rates: r.Rates, Burst: r.Burst}
	if !several && len(r.Rates) == 1 && reflect.DeepEqual(r, plain) {
		return nil
	}
	return &r
}

func limitOf(s hybrid.Spec) Limit {
	l := Limit{Name: s.Name, Rate: s.Rate, Burst: s.Burst, Algorithm: TokenBucket, Mode: s.Mode, Overshoot: s.Overshoot, Fallback: s.Fallback, DryRun: s.DryRun, Parent: s.Parent}
	if r := s.Rule; r != nil {
		if l.Algorithm, l.Burst = r.Algorithm, r.Burst; len(r.Rates) != 1 {
			l.Rate, l.Rates = Rate{}, slices.Clone(r.Rates)
		} else {
			l.Rate = r.Rates[0]
		}
		l.Calendar, l.Timezone, l.Queue, l.MaxWait, l.MaxLog = r.Calendar, r.Timezone, r.Queue, r.MaxWait, r.MaxLog
		l.BurstRate, l.BurstThreshold, l.BurstTime, l.Max, l.TTL = r.BurstRate, r.BurstThreshold, r.BurstTime, r.Max, s.TTL
	}
	plan := func(a hybrid.Amounts) Plan {
		p := limitOf(hybrid.Spec{Rate: a.Rate, Burst: a.Burst, Rule: a.Rule})
		return Plan{p.Rate, p.Rates, p.Burst}
	}
	for name, a := range s.Plans {
		if planName.MatchString(name) {
			if l.Plans == nil {
				l.Plans = make(map[string]Plan)
			}
			l.Plans[name] = plan(a)
		}
	}
	for _, h := range s.Overrides {
		o := Override{Key: h.Key, Plan: h.Plan}
		if h.Prefix {
			o.Key, o.Prefix = "", h.Key
		}
		if h.Plan == h.Own() {
			p := plan(s.Plans[h.Plan])
			o.Plan, o.Rate, o.Rates, o.Burst = "", p.Rate, p.Rates, p.Burst
		}
		l.Overrides = append(l.Overrides, o)
	}
	return l
}
