package edge

import (
	"context"
	"errors"
	"time"

	"github.com/jatah-io/jatah"
)

// Verdict is what a rule decided about a request. It belongs to the goroutine that serves the request.
type Verdict struct {
	// OK: the request may be served.
	OK bool
	// WouldRefuse: it may only because the rule is in dry run.
	WouldRefuse bool
	// Soft: the rule's softer step was taken.
	Soft bool
	// Rule is the name of the rule that decided; "" if none was for the request.
	Rule string
	// Takes are what was taken, or would have been, in the order of the rule's uses.
	Takes []Taken
	// Violated names the limits known to refuse.
	Violated []string
	// RetryAfter is the longest wait that one of them asks for; jatah.Never: no wait helps.
	RetryAfter time.Duration
	// Paused: the key is paused, since this request or one before it: see [Pause]. RetryAfter is then at least the rest of that.
	Paused bool
	// Err says why nothing could be decided, or what is wrong with the request (ErrRequest).
	Err error

	edge     *Edge
	rule     *rule
	request  *Request
	began    time.Time // where the rule is timed
	settled  bool
	answered Outcome   // as Answered says
	priced   bool      // what it costs is known
	near     string    // the limits of the softer step
	inline   [2]Taken  // memory for Takes, enough for most rules
	names    [2]string // and for Violated
}

// Taken is what a request took of one limit.
type Taken struct {
	Name      string // of the limit
	Key, Plan string
	Cost      int64 // in tokens; 1 for a permit
	Decision  jatah.Decision

	limiter *jatah.Limiter
	permit  *held
	refused bool // by this limit, or because the key is paused
}

// Limit is the limit's definition as it holds for the key. It is the zero value where the limit was not found.
func (t *Taken) Limit() jatah.Limit {
	if t.limiter == nil {
		return jatah.Limit{}
	}
	l, _ := t.limiter.For(t.Key)
	return l
}

// terms are those of Limit, to be read only.
func (t *Taken) terms() *jatah.Terms {
	if t.limiter == nil {
		return new(jatah.Terms)
	}
	return t.limiter.Terms(t.Key)
}

// Undecided says that the request is refused, or would be, though no limit is known to be reached: Err says why, or the owners of the keys
// are silent and the limits have jatah.FallbackDeny.
func (v *Verdict) Undecided() bool {
	if v.Err != nil {
		return !errors.Is(v.Err, ErrRequest)
	}
	silent := false
	for i := range v.Takes {
		if t := &v.Takes[i]; t.refused {
			if silent = t.unasked(); !silent {
				return false
			}
		}
	}
	return silent
}

// unasked says whether a limit refuses because the owner of its key is silent, and not because of what was used.
func (t *Taken) unasked() bool { return t.refused && t.Decision.Source == jatah.SourceDeny }

// ErrRequest: something in the request that its cost is made of cannot be read.
var ErrRequest = errors.New("edge: bad request")

// Outcome is how a request ended.
type Outcome struct {
	Status int           // of the response; 0: 200
	Bytes  int64         // of its body
	Took   time.Duration // from the decision on; 0: until Settle is called
	Failed bool          // the handler panicked: what it took stays taken, whatever Use.Counts says of the status; After is charged
}

// Settle ends what a request holds and charges what is known only now. It does nothing for a refusal and when called again. It never blocks longer than
// the node's AskTimeout per use, also when ctx has ended.
func (v *Verdict) Settle(ctx context.Context, o Outcome) {
	if v.settled || v.rule == nil {
		return
	}
	v.settled = true
	gone := ctx.Err() != nil
	ctx = context.Background() // what a request owes does not end with it
	v.giveBack(ctx)
	v.settleCosts(ctx, o, gone)
}

type contextKey struct{}

// NewContext is a context in which FromContext finds the verdict, for those who do not use [Edge.Middleware].
func NewContext(ctx context.Context, v *Verdict) context.Context {
	return context.WithValue(ctx, contextKey{}, v)
}

// FromContext is the verdict on the request that a handler serves, nil where none was made.
func FromContext(ctx context.Context) *Verdict {
	v, _ := ctx.Value(contextKey{}).(*Verdict)
	return v
}
