package edge

import (
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// Drop ends connections without an answer while a key stays far above its limit: a client that does not care for refusals is not worth writing
// them. It is done by [Edge.Middleware] only, with http.ErrAbortHandler: a connection of HTTP/1 is closed, of HTTP/2 the stream is reset.
type Drop struct {
	// After is how many refusals of a key within Within are answered; those beyond are dropped, until the key was refused less often than
	// that again. More than 0.
	After int
	// Within is more than 0.
	Within time.Duration
}

func (d *Drop) check(where string) error {
	if d != nil && (d.After < 1 || d.Within <= 0 || int64(d.Within) < int64(d.After)) {
		return fmt.Errorf("%w: %s drops connections after %d refusals within %v: give a number and a time above 0, such as 100 within a minute",
			ErrConfig, where, d.After, d.Within)
	}
	return nil
}

const (
	dropSets = 1024 // with dropWays places each: 128 KiB
	dropWays = 4
)

// drops says whether a refusal is one too many to be answered.
func (v *Verdict) drops() bool {
	d := v.rule.answer.Drop
	if d == nil || v.Err != nil {
		return false
	}
	now, tooMany := time.Now(), false
	for i := range v.Takes {
		if t := &v.Takes[i]; t.refused && !t.unasked() && v.edge.drops.refused(t.Name, t.Key, d, now) {
			tooMany = true
		}
	}
	if tooMany {
		v.rule.counts.dropped.Add(1)
	}
	return tooMany
}

// drops remembers which keys are refused often, in memory that does not grow. Keys are known by a hash whose seed is the edge's own, so nobody can make two
// alike. A key that finds its places taken by others takes that of the one that was refused least: more keys at once than there are
// places lead to more answers, never to a drop of a key that was not refused. Only who is refused is looked up at all.
type drops struct {
	seed  maphash.Seed
	epoch time.Time
	sets  [dropSets]dropSet
}

type dropSet struct {
	mu    sync.Mutex
	hash  [dropWays]uint64
	until [dropWays]time.Duration // since the epoch, when the refusals will be forgotten; each adds Within/After
}

func newDrops() *drops { return &drops{seed: maphash.MakeSeed(), epoch: time.Now()} }

// refused counts a refusal, and says whether it is one too many.
func (s *drops) refused(limit, key string, d *Drop, at time.Time) bool {
	var h maphash.Hash
	h.SetSeed(s.seed)
	h.WriteString(limit)
	h.WriteByte(0) // not in the name of a limit
	h.WriteString(key)
	sum := h.Sum64()
	return s.sets[sum%dropSets].refused(sum, d, at.Sub(s.epoch))
}

func (s *dropSet) refused(sum uint64, d *Drop, now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := 0
	for i := range s.hash {
		if s.hash[i] == sum {
			at = i
			break
		}
		if s.until[i] < s.until[at] {
			at = i
		}
	}
	if s.hash[at] != sum {
		s.hash[at], s.until[at] = sum, 0
	}
	each := d.Within / time.Duration(d.After)
	most := each * time.Duration(d.After) // Within, but for what the division has left
	until := max(now, s.until[at]) + each
	s.until[at] = min(until, now+most) // who stops is answered again after Within/After
	return until > now+most
}
