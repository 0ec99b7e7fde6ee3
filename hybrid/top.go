package hybrid

import (
	"github.com/jatah-io/jatah/internal/topk"
)

// Who uses a limit most, and who is refused most. What an account consumed the tick sees: the growth of C since the last one, so that a take on
// credit knows nothing of this. Where a bare bucket or a fallback decides, nothing grows that a tick could look at, so each decision is
// noted; and so is each refusal. A note is cheap however many come: see topk.Recent. Beyond its budget chance says what is counted, here alone: no decision
// depends on it.
//
// Tokens that were refunded, and permits that were released, stay counted as used.

// top is what a limit and its plans count of keys in the last minute, on this node.
type top struct {
	used    *topk.Recent // tokens, permits
	refused *topk.Recent // requests, also those that dry run let pass
}

func newTop(now int64) *top { return &top{topk.NewRecent(now), topk.NewRecent(now)} }

// countBare is count for what a bucket that this node alone decides about has answered to a take.
func (l *Limit) countBare(s *Spec, key string, cost int64, d Decision) Decision {
	if d.OK {
		l.top.used.Note(key, cost)
	}
	return l.count(s, key, d)
}

// usedByFallback notes what was used without being reported: C does not tell of it. That of permits is always reported.
func (a *account) usedByFallback(ok bool, src Source, cost int64) {
	if ok && (src == SourceShare || src == SourceAllow) && !a.limit.spec.permits() {
		a.limit.top.used.Note(a.key, cost)
	}
}

func (e *Engine) tickTop(now int64) {
	e.limits.Range(func(_ string, l *Limit) bool {
		l.top.used.Tick(now)
		l.top.refused.Tick(now)
		return true
	})
}

// Top is which keys used most of the limit on this node in the last minute, in tokens or permits, and which were refused most, in requests. What was
// used on credit since the last tick is not in it yet.
func (l *Limit) Top() (used, refused topk.Summary) {
	now := l.e.now()
	return l.top.used.Summary(now), l.top.refused.Summary(now)
}
