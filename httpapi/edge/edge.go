package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
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
	FailOpen bool
	// Logger gets warnings. Nil: slog.Default.
	Logger *slog.Logger
}

// Edge decides HTTP requests by rules. Make it with [New]. Safe for any number of goroutines.
type Edge struct {
	node   *jatah.Node
	cfg    Config
	client *clientip.Resolver
	rules  []*rule
	log    *slog.Logger
}

// New makes an edge. The limits that the rules use must be defined on the node, which must outlive the edge. Errors: ErrConfig.
func New(node *jatah.Node, cfg Config) (*Edge, error) {
	e := &Edge{node: node, cfg: cfg, client: cfg.Client, log: cfg.Logger}
	if e.log == nil {
		e.log = slog.Default()
	}
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
		e.rules = append(e.rules, c)
	}
	return e, nil
}

// Decide finds the rule for a request and takes what it costs. It never blocks longer than the node's AskTimeout. Unless the
// verdict is a refusal, call its Settle exactly once, when the request is over; [Edge.Middleware] does all that.
func (e *Edge) Decide(ctx context.Context, q *Request) *Verdict {
	r, keys := e.match(q)
	v := &Verdict{edge: e, rule: r, request: q, began: time.Now(), OK: true}
	if r == nil {
		return v
	}
	v.Rule = r.Name
	v.Takes = make([]Taken, len(r.uses))
	for i := range r.uses {
		v.Takes[i] = Taken{Key: keys[i], Cost: 1, Decision: jatah.Decision{OK: true}}
	}
	v.decide(ctx)
	return v
}

// decide takes permits first: they can be given back without a trace, tokens of a window that has ended cannot.
func (v *Verdict) decide(ctx context.Context) {
	if !v.price() {
		return
	}
	for _, i := range v.rule.permits {
		if !v.acquire(ctx, i) {
			v.giveBack(ctx)
			return
		}
	}
	if !v.take(ctx) {
		v.giveBack(ctx)
	}
}

// price finds what the request costs, before it is served.
func (v *Verdict) price() bool {
	for _, i := range v.rule.tokens {
		u, t := &v.rule.uses[i], &v.Takes[i]
		if u.Plan != nil {
			t.Plan = u.Plan(v.request)
		}
		t.limiter = u.limiter
		if t.Plan != "" {
			if l, err := u.limiter.Plan(t.Plan); err == nil {
				t.limiter = l
			} else {
				t.Plan = ""
			}
		}
		if u.Cost == nil {
			t.Cost = u.limiter.Cost(v.request.Path)
			continue
		}
		cost, err := u.Cost(v.request)
		if err != nil {
			v.bad(err)
			return false
		}
		t.Cost = cost
	}
	return true
}

func (v *Verdict) acquire(ctx context.Context, i int) bool {
	u, t := &v.rule.uses[i], &v.Takes[i]
	t.limiter = u.limiter
	p, d := u.limiter.Acquire(ctx, t.Key, 0)
	t.Decision, t.permit = d, p
	if d.OK {
		return true
	}
	v.refusedBy(i)
	return false
}

func (v *Verdict) take(ctx context.Context) bool {
	tokens := v.rule.tokens
	if len(tokens) == 1 {
		t := &v.Takes[tokens[0]]
		t.Decision = t.limiter.Take(ctx, t.Key, t.Cost)
		if !t.Decision.OK {
			v.refusedBy(tokens[0])
		}
		return t.Decision.OK
	}
	if len(tokens) == 0 {
		return true
	}
	reqs := make([]jatah.Request, len(tokens))
	for n, i := range tokens {
		t := &v.Takes[i]
		reqs[n] = jatah.Request{Limit: v.rule.uses[i].Limit, Key: t.Key, Cost: t.Cost, Plan: t.Plan}
	}
	res := v.edge.node.TakeAll(ctx, reqs)
	for n, i := range tokens {
		v.Takes[i].Decision = res.Decisions[n]
		if !res.OK && !res.Decisions[n].OK {
			v.refusedBy(i)
		}
	}
	return res.OK
}

// refusedBy notes that a use refuses the request, or could not be decided.
func (v *Verdict) refusedBy(i int) {
	t := &v.Takes[i]
	v.OK = false
	if err := t.Decision.Err; err != nil {
		v.Err = err
		return
	}
	v.RetryAfter = max(v.RetryAfter, t.Decision.RetryAfter)
	v.Violated = append(v.Violated, v.rule.uses[i].Limit)
}

// AccountFromHeader believes a header that names the account if a trusted proxy sends it, and nobody else: see Config.Client. The
// proxy must set or remove it on every request.
func AccountFromHeader(name string) func(*Request) string {
	return func(q *Request) string {
		if !q.FromProxy() {
			return ""
		}
		return q.Header.Get(name)
	}
}

// AccountFromContext has the account that an authenticating handler before the edge has put into the request's context under the key.
func AccountFromContext(key any) func(*Request) string {
	return func(q *Request) string {
		if q.HTTP == nil {
			return ""
		}
		account, _ := q.HTTP.Context().Value(key).(string)
		return account
	}
}

