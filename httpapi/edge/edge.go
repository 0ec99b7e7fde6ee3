package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
	"github.com/jatah-io/jatah/httpapi/internal/problems"
	"github.com/jatah-io/jatah/httpapi/internal/refusals"
)

// ErrConfig: the edge is configured wrongly; the text says what to write.
var ErrConfig = errors.New("edge: bad configuration")

// Config says what an [Edge] does. The zero value limits nothing.
type Config struct {
	// Rules in their order: the first that is for a request decides. A request that none is for passes.
	Rules []Rule
	// Account says who is asking, once that was checked: "" for nobody known. It is asked once per request, before the rules, by many
	// goroutines at once. Nil: everybody is anonymous. See [AccountFromContext] and [AccountFromHeader].
	Account func(*Request) string
	// Client finds the address of clients. Nil: no proxy is trusted, and the address is that of the connection.
	Client *clientip.Resolver
	// Answer is how rules refuse that say nothing else.
	Answer Answer
	// FailOpen lets a request pass that the node cannot decide: it is closing, its memory for keys is full, a limit was removed. Else it is refused with 503.
	// While the owner of a key is silent, the limit's Fallback says what happens; with jatah.FallbackDeny that is 503 in any case.
	FailOpen bool
	// MaxPenalties bounds how many keys are known that were refused, where rules have a Pause: when there are more those that matter least are
	// forgotten. 0: DefaultPenalties; the least is 64. Each takes a few hundred bytes and its key.
	MaxPenalties int
	// Before is the edge that this one follows, as after a reload: pauses and refusals of rules with the same name go on, so that nobody gets out by a
	// new configuration; MaxPenalties stays as it was. Nil: none.
	Before *Edge
	// Decided is called with each verdict of a rule, also of refusals, before it is acted upon: for traces. began is when the decision was. It gets the
	// request's context, runs on its goroutine and delays it; many goroutines call it at once. It must not keep or change the verdict. Nil: nobody is told.
	Decided func(ctx context.Context, began time.Time, v *Verdict)
	// LogRefusals logs who is refused, for each limit at most one line a second, keys quoted and cut.
	LogRefusals bool
	// Logger gets warnings. Nil: slog.Default.
	Logger *slog.Logger
}

// Edge decides HTTP requests by rules. Make it with [New]. Safe for any number of goroutines.
type Edge struct {
	node     *jatah.Node
	cfg      Config
	client   *clientip.Resolver
	rules    []*rule
	log      *slog.Logger
	refusals *refusals.Log // nil: refusals are not logged
	start    time.Time     // of the time of penalties

	penalties *penalties
	measuring chan struct{} // one for each candidate that is being asked

	softHeaders []string // of all rules, canonical
	drops       *drops   // nil: no rule drops
	flights     sync.Pool
	scratch     sync.Pool
	told        fields.Kept[fields.Fixed] // of limits
	noStore     []string                  // values of headers that all refusals share
	problem     []string
}

// New makes an edge. The limits that the rules use must be defined on the node, which must outlive the edge. Errors: ErrConfig.
func New(node *jatah.Node, cfg Config) (*Edge, error) {
	e := &Edge{node: node, cfg: cfg, client: cfg.Client, log: cfg.Logger, start: time.Now()}
	e.penalties, e.measuring = newPenalties(cfg.MaxPenalties), make(chan struct{}, maxMeasuring)
	before := map[string]*counters{}
	if b := cfg.Before; b != nil {
		for _, r := range b.rules {
			before[r.Name] = r.counts
		}
		e.penalties, e.start, e.cfg.Before = b.penalties, b.start, nil
	}
	if e.log == nil {
		e.log = slog.Default()
	}
	if cfg.LogRefusals {
		e.refusals = refusals.New(e.log, 0)
	}
	e.flights.New = func() any { return new(flight) }
	e.scratch.New = func() any { return new(scratch) }
	e.noStore, e.problem = []string{"no-store"}, []string{problems.ContentType}
	if e.client == nil {
		var err error
		if e.client, err = clientip.New(clientip.Config{Logger: e.log}); err != nil {
			return nil, err
		}
	}
	names := map[string]bool{}
	for i, r := range cfg.Rules {
		c, err := e.compile(i, r)
		if err != nil {
			return nil, err
		}
		if names[c.Name] {
			return nil, fmt.Errorf("%w: two rules are named %q: give each its own name", ErrConfig, c.Name)
		}
		names[c.Name] = true
		c.counts = before[c.Name]
		if c.counts == nil {
			c.counts = new(counters)
		}
		e.rules = append(e.rules, c)
	}
	return e, nil
}

// Decide finds the rule for a request and takes what it costs. It never blocks longer than the node's AskTimeout for tokens, and as long again
// for each permit. Unless the verdict is a refusal, call its Settle exactly once, when the request is over; [Edge.Middleware] does all that.
func (e *Edge) Decide(ctx context.Context, q *Request) *Verdict {
	v := new(Verdict)
	e.decide(ctx, v, q)
	return v
}

// decide is Decide in memory that the caller has.
func (e *Edge) decide(ctx context.Context, v *Verdict, q *Request) {
	*v = Verdict{OK: true, edge: e, request: q}
	v.Violated = v.names[:0]
	v.match(e.rules)
	if v.rule == nil {
		return
	}
	var began time.Time
	if v.rule.timed || e.cfg.Decided != nil {
		began = time.Now()
	}
	if v.rule.timed {
		v.began = began
	}
	v.decide(ctx)
	v.rule.counts.note(v)
	if e.refusals != nil && !v.OK {
		v.log(e.refusals)
	}
	if v.OK {
		v.soften(ctx)
	}
	if e.cfg.Decided != nil {
		e.cfg.Decided(ctx, began, v)
	}
}

// decide takes permits first: they can be given back without a trace, tokens of a window that has ended cannot.
func (v *Verdict) decide(ctx context.Context) {
	ok := v.Err == nil && !v.paused() && v.price()
	for _, i := range v.rule.permits {
		ok = ok && v.acquire(ctx, i)
	}
	ok = ok && v.take(ctx)
	if ok {
		v.measureNow(true)
		return
	}
	v.giveBack(ctx)
	v.punish()
	v.measureNow(false)
	switch {
	case v.rule.DryRun:
		v.WouldRefuse = v.Err == nil && !v.Undecided()
	case v.Err != nil && v.edge.cfg.FailOpen && !errors.Is(v.Err, ErrRequest):
	default:
		v.OK = false
	}
}

// price finds the limits, and what the request costs before it is served.
func (v *Verdict) price() bool {
	v.priced = true
	for i := range v.Takes {
		u, t := &v.rule.Uses[i], &v.Takes[i]
		l, ok := v.edge.node.Lookup(u.Limit)
		if !ok {
			v.Err = fmt.Errorf("%w: %q", jatah.ErrUnknownLimit, u.Limit)
			return false
		}
		t.limiter, t.Cost = l, 1
		if slices.Contains(v.rule.permits, i) {
			continue
		}
		if u.Plan != nil {
			t.ofPlan(u.Plan(v.request))
		}
		if v.Err = t.price(u.Cost, v.request); v.Err != nil {
			return false
		}
	}
	return true
}

// log tells of a refusal.
func (v *Verdict) log(to *refusals.Log) {
	for i := range v.Takes {
		if t := &v.Takes[i]; t.refused {
			to.Note(t.Name, t.Key, v.RetryAfter)
		}
	}
}

// ofPlan counts for a plan, if the limit has it.
func (t *Taken) ofPlan(plan string) {
	if plan == "" {
		return
	}
	if l, err := t.limiter.Plan(plan); err == nil {
		t.limiter, t.Plan = l, plan
	}
}

func (t *Taken) price(cost Cost, q *Request) (err error) {
	if cost == nil {
		t.Cost = q.dearest(t.limiter.Cost)
		return nil
	}
	t.Cost, err = cost(q)
	if err == nil && t.Cost < 0 {
		err = fmt.Errorf("%w: a cost of %d", ErrRequest, t.Cost)
	}
	return err
}

func (v *Verdict) take(ctx context.Context) bool {
	tokens := v.rule.tokens
	switch len(tokens) {
	case 0:
		return true
	case 1:
		t := &v.Takes[tokens[0]]
		t.Decision = t.limiter.Take(ctx, t.Key, t.Cost)
		return v.passed(t)
	}
	reqs := make([]jatah.Request, len(tokens))
	for n, i := range tokens {
		t := &v.Takes[i]
		reqs[n] = jatah.Request{Limit: t.Name, Key: t.Key, Cost: t.Cost, Plan: t.Plan}
	}
	res := v.edge.node.TakeAll(ctx, reqs)
	for n, i := range tokens {
		v.Takes[i].Decision = res.Decisions[n]
		v.passed(&v.Takes[i])
	}
	if v.Err == nil {
		v.Err = res.Err
	}
	return res.OK
}

// passed notes where a take refuses, or could not be decided.
func (v *Verdict) passed(t *Taken) bool {
	switch d := &t.Decision; {
	case d.Err != nil:
		v.Err = d.Err
		return false
	case !d.OK:
		t.refused = true
		v.RetryAfter = max(v.RetryAfter, d.RetryAfter)
		v.Violated = append(v.Violated, t.Name)
	}
	return t.Decision.OK
}

// AccountFromHeader believes a header that names the account if a trusted proxy sends it, and nobody else: see Config.Client. The
// proxy must set or remove it on every request. Where it is there twice the proxy has added to what a client sent: then nobody is known.
func AccountFromHeader(name string) func(*Request) string {
	return func(q *Request) string {
		lines := q.Header.Values(name)
		if len(lines) != 1 || !q.FromProxy() {
			return ""
		}
		return lines[0]
	}
}

// AccountFromContext has the account that an authenticating handler before the edge has put into the request's context under the key.
func AccountFromContext(key any) func(*Request) string {
	return func(q *Request) string {
		account, _ := q.Context().Value(key).(string)
		return account
	}
}
