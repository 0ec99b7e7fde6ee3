package edge

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Penalty is what an edge knows of a key that was refused more than once or is paused: see [Pause].
type Penalty struct {
	Rule, Key string
	Until     time.Time // the end of the pause; zero: it is not paused now
	Level     int       // how many steps longer than the first its next pause will be
	Refusals  int       // since its last pause
}

// DefaultPenalties is Config.MaxPenalties where that is 0.
const DefaultPenalties = 16384

const penaltyShards = 64 // a power of two

// penalties are the keys that were refused, in bounded memory.
type penalties struct {
	seed   maphash.Seed
	most   int          // in each shard
	kept   atomic.Int64 // in all: where there are none, as on a quiet day, no request waits for a lock
	shards [penaltyShards]penaltyShard
}

type penaltyShard struct {
	mu   sync.Mutex
	keys map[penaltyKey]*penalty
	_    [48]byte // so that neighbours do not share a cache line
}

type penaltyKey struct{ rule, key string }

func newPenalties(most int) *penalties {
	if most <= 0 {
		most = DefaultPenalties
	}
	t := &penalties{seed: maphash.MakeSeed(), most: max(1, most/penaltyShards)}
	for i := range t.shards {
		t.shards[i].keys = make(map[penaltyKey]*penalty)
	}
	return t
}

// shard is chosen by a hash that nobody outside can compute, so that nobody can fill one shard to have its keys forgotten.
func (t *penalties) shard(k penaltyKey) *penaltyShard {
	return &t.shards[maphash.Comparable(t.seed, k)%penaltyShards]
}

// rest is how long a key is still paused, and until its limit lets pass what it refused last.
func (t *penalties) rest(now int64, rule, key string) (rest, opens int64) {
	if t.kept.Load() == 0 {
		return 0, 0
	}
	k := penaltyKey{rule, key}
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	y := s.keys[k]
	if y == nil {
		return 0, 0
	}
	return max(0, y.until-now), max(0, y.opens-now)
}

// refuse notes that the limit refused a key for so long, and returns the rest of the pause that this begins or was in already, else 0.
func (t *penalties) refuse(now int64, rule, key string, wait int64, p *pause) int64 {
	k := penaltyKey{rule, key}
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	y := s.keys[k]
	if y == nil {
		t.makeRoom(s, now)
		y = &penalty{p: p, quiet: now}
		k.key = strings.Clone(key) // it may be part of a large header
		s.keys[k] = y
		t.kept.Add(1)
	}
	y.opens = saturating(now, wait)
	y.p = p // it may be of a newer edge
	return y.refuse(now)
}

// makeRoom forgets what is over, or the key that matters least.
func (t *penalties) makeRoom(s *penaltyShard, now int64) {
	if len(s.keys) < t.most {
		return
	}
	var least penaltyKey
	var worst *penalty
	for k, y := range s.keys {
		if y.age(now); y.over(now) {
			t.drop(s, k)
		} else if worst == nil || y.less(worst, now) {
			least, worst = k, y
		}
	}
	if len(s.keys) >= t.most {
		t.drop(s, least)
	}
}

func (t *penalties) drop(s *penaltyShard, k penaltyKey) {
	delete(s.keys, k)
	t.kept.Add(-1)
}

// lift forgets a key, and says whether there was anything to forget.
func (t *penalties) lift(now int64, rule, key string) bool {
	k := penaltyKey{rule, key}
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	y := s.keys[k]
	if y == nil {
		return false
	}
	y.age(now)
	t.drop(s, k)
	return !y.over(now)
}

// list is what is known, the longest pauses first; "" stands for all rules.
func (t *penalties) list(now int64, rule string, at func(int64) time.Time) (all []Penalty) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for k, y := range s.keys {
			if y.age(now); y.over(now) {
				t.drop(s, k)
				continue
			}
			if rule != "" && rule != k.rule {
				continue
			}
			p := Penalty{Rule: k.rule, Key: k.key, Level: int(y.level), Refusals: int(y.refusals)}
			if y.until > now {
				p.Until = at(y.until)
			}
			all = append(all, p)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Penalty) int {
		return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(b.Level, a.Level), cmp.Compare(b.Refusals, a.Refusals), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// Penalties are the keys of a rule, or of all rules with "", that are paused or were refused, as this edge knows them: those paused for longest first, at most n;
// 0 or less: all, which Config.MaxPenalties bounds.
func (e *Edge) Penalties(rule string, n int) []Penalty {
	all := e.penalties.list(e.since(), rule, func(ns int64) time.Time { return e.start.Add(time.Duration(ns)).Round(0) })
	if n > 0 && len(all) > n {
		all = slices.Clone(all[:n])
	}
	return all
}

// Lift ends the pause of a key of a rule at this edge and forgets its refusals; it says whether there were any. What the key has used of its
// limits stays used: see jatah.Limiter.Reset.
func (e *Edge) Lift(rule, key string) bool { return e.penalties.lift(e.since(), rule, key) }
