package fields

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jatah-io/jatah"
)

// Fixed is what is told of a limit whatever was decided. Make it with FixedOf. It is not changed afterwards, and shared.
type Fixed struct {
	item   string // the member of the RateLimit list, up to what is left
	policy string // the RateLimit-Policy list
	limit  string // of X-RateLimit-Limit
}

// FixedOf renders a definition as it holds for a key.
func FixedOf(l *jatah.Limit) Fixed {
	return Fixed{
		item:   string(appendItemName(nil, l.Name)),
		policy: string(AppendPolicy(nil, l)),
		limit:  strconv.FormatInt(l.Capacity(), 10),
	}
}

// One is Add for one item.
func (s *Set) One(o Options, wall func() time.Time, f *Fixed, d *jatah.Decision) {
	if !o.OmitRateLimit {
		s.b = appendAmounts(append(s.b, f.item...), d)
		s.done(RateLimit)
		s.policy = f.policy
	}
	if o.OmitXRateLimit && !o.Legacy {
		return
	}
	s.limit = f.limit
	s.left(o, wall, d)
}

// mostKept is far above the plans of all limits of a node.
const mostKept = 4096

// Kept remembers what was made of terms. The zero value is ready; safe for concurrent use.
type Kept[T any] struct {
	all sync.Map // of *jatah.Terms to *T
	n   atomic.Int64
}

// Of is what was made of these terms, made from them now if that was not done yet.
func (k *Kept[T]) Of(t *jatah.Terms, from func(*jatah.Terms) *T) *T {
	if x, ok := k.all.Load(t); ok {
		return x.(*T)
	}
	// Terms that were defined anew are never asked for again. Nobody tells of them, so all go when there are many.
	if k.n.Add(1) > mostKept {
		k.all.Clear()
		k.n.Store(1)
	}
	x := from(t)
	k.all.Store(t, x)
	return x
}
