package edge

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// compiled makes a pause as a rule has it.
func compiled(t *testing.T, p Pause) *pause {
	t.Helper()
	r := &rule{Rule: Rule{Name: "r", Uses: []Use{{Limit: "a"}}, Pause: &p}}
	if err := r.addPause(); err != nil {
		t.Fatal(err)
	}
	return r.pause
}

func TestPausesGrowAndEndByThemselves(t *testing.T) {
	const s = int64(time.Second)
	p := compiled(t, Pause{After: 3, Base: time.Second, Max: 5 * time.Second, Forget: time.Minute})
	all := newPenalties(0)
	for _, c := range []struct {
		at   int64 // seconds
		want int64 // the rest of the pause, in seconds, after one more refusal
	}{
		{0, 0}, {0, 0}, {0, 1}, // the third
		{1, 0}, {1, 0}, {1, 2},
		{3, 0}, {4, 0}, {5, 4},
		{9, 0}, {9, 0}, {9, 5}, // not 8
		{14, 0}, {14, 0}, {14, 5},
		{19 + 60, 0}, {79, 0}, {79, 4}, // one step less after a quiet minute
		{83 + 179, 0}, {262, 0}, {262, 2}, // it was 3 steps up, and two minutes are over
		{264 + 30, 0}, {294 + 30, 0}, {324 + 59, 4}, // never quiet for a minute
		{387 + 3600, 0}, {3987, 0}, {3987, 1},
	} {
		if got := all.refuse(c.at*s, "r", "k", 0, p); got != c.want*s {
			t.Errorf("a refusal at %d s leaves a pause of %v, want %d s", c.at, time.Duration(got), c.want)
		}
		if rest, _ := all.rest(c.at*s, "r", "k"); rest != c.want*s {
			t.Errorf("at %d s the rest is %v, want %d s", c.at, time.Duration(rest), c.want)
		}
		if c.want > 0 {
			if rest, _ := all.rest((c.at+c.want)*s, "r", "k"); rest != 0 {
				t.Errorf("the pause from %d s on does not end: %v", c.at, time.Duration(rest))
			}
		}
	}
}

func TestTheStepsOfAPause(t *testing.T) {
	for _, c := range []struct {
		p    Pause
		want []time.Duration
	}{
		{Pause{Base: time.Second, Max: 5 * time.Second}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}},
		{Pause{Base: time.Second, Max: 9 * time.Second, Factor: 3}, []time.Duration{time.Second, 3 * time.Second, 9 * time.Second}},
		{Pause{Base: time.Second, Max: 9 * time.Second, Factor: 1}, []time.Duration{time.Second}},
		{Pause{Base: time.Second, Max: time.Second}, []time.Duration{time.Second}},
		{Pause{Base: time.Hour}, []time.Duration{time.Hour}},
	} {
		got := compiled(t, c.p).lengths
		if len(got) != len(c.want) {
			t.Errorf("%+v: %v, want %v", c.p, got, c.want)
			continue
		}
		for i := range got {
			if time.Duration(got[i]) != c.want[i] {
				t.Errorf("%+v: step %d is %v, want %v", c.p, i, time.Duration(got[i]), c.want[i])
			}
		}
	}
	p := compiled(t, Pause{})
	if p.after != 10 || p.lengths[0] != int64(time.Second) || p.lengths[len(p.lengths)-1] != int64(15*time.Minute) || p.forget != int64(15*time.Minute) {
		t.Errorf("the zero value is %+v", p)
	}
	if n := len(compiled(t, Pause{Factor: 1.0000001}).lengths); n > maxLevels+1 {
		t.Errorf("%d steps", n)
	}
}

// twin is what Pause says, moment by moment and without arithmetic. Time is counted in single nanoseconds.
type twin struct {
	after, base, most, forget int64
	now                       int64
	keys                      map[string]*twinKey
}

type twinKey struct{ level, refusals, pausedFor, quietFor int64 }

func (w *twin) pass() {
	w.now++
	for _, k := range w.keys {
		if k.pausedFor > 0 {
			k.pausedFor--
			continue
		}
		if k.quietFor++; k.quietFor == w.forget {
			k.quietFor, k.refusals, k.level = 0, 0, max(0, k.level-1)
		}
	}
}

func (w *twin) length(level int64) int64 {
	l := w.base
	for range level {
		if l *= 2; l > w.most {
			return w.most
		}
	}
	return l
}

func (w *twin) refuse(key string) int64 {
	k := w.keys[key]
	if k == nil {
		k = &twinKey{}
		w.keys[key] = k
	}
	if k.pausedFor > 0 {
		return k.pausedFor
	}
	k.quietFor = 0
	if k.refusals++; k.refusals == w.after {
		k.refusals, k.pausedFor = 0, w.length(k.level)
		if w.length(k.level) < w.most || k.level == 0 {
			k.level++
		}
	}
	return k.pausedFor
}

func TestPausesAreWhatATwinSays(t *testing.T) {
	for range 40 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		after, base := 1+rng.IntN(4), 1+rng.IntN(5)
		most, forget := base+rng.IntN(40), 1+rng.IntN(60)
		p := compiled(t, Pause{After: after, Base: time.Duration(base), Max: time.Duration(most), Forget: time.Duration(forget)})
		w := &twin{after: int64(after), base: int64(base), most: int64(most), forget: int64(forget), keys: map[string]*twinKey{}}
		all := newPenalties(0)
		busy := rng.IntN(2) == 0
		for step := range 1000 {
			key := fmt.Sprint(rng.IntN(3))
			switch {
			case rng.IntN(50) == 0:
				busy = !busy
			case busy && rng.IntN(2) == 0:
				if got, want := all.refuse(w.now, "r", key, 0, p), w.refuse(key); got != want {
					t.Fatalf("seed %d at %d: a refusal of %s leaves %d, the twin says %d", seed, w.now, key, got, want)
				}
			case rng.IntN(200) == 0:
				k := w.keys[key]
				known := k != nil && (k.level > 0 || k.refusals > 0 || k.pausedFor > 0)
				if got := all.lift(w.now, "r", key); got != known {
					t.Fatalf("seed %d at %d: lifted %s: %v, the twin says %v", seed, w.now, key, got, known)
				}
				delete(w.keys, key)
			}
			for k, x := range w.keys {
				if rest, _ := all.rest(w.now, "r", k); rest != x.pausedFor {
					t.Fatalf("seed %d at %d: the rest of %s is %d, the twin says %d", seed, w.now, k, rest, x.pausedFor)
				}
			}
			for range rng.IntN(3) {
				w.pass()
			}
			if step%10 != 0 {
				continue
			}
			listed := map[string]twinKey{}
			for _, x := range all.list(w.now, "", func(ns int64) time.Time { return time.Unix(0, ns) }) {
				k := twinKey{level: int64(x.Level), refusals: int64(x.Refusals)}
				if !x.Until.IsZero() {
					k.pausedFor = x.Until.UnixNano() - w.now
				}
				listed[x.Key] = k
			}
			want := map[string]twinKey{}
			for key, k := range w.keys {
				if k.level > 0 || k.refusals > 0 || k.pausedFor > 0 {
					want[key] = twinKey{level: k.level, refusals: k.refusals, pausedFor: k.pausedFor}
				}
			}
			if !reflect.DeepEqual(listed, want) {
				t.Fatalf("seed %d at %d: listed are %v, the twin has %v", seed, w.now, listed, want)
			}
			if int(all.kept.Load()) != len(listed) {
				t.Fatalf("seed %d at %d: %d are kept and %d listed", seed, w.now, all.kept.Load(), len(listed))
			}
		}
	}
}

// A flood of new keys must neither fill the memory nor make the edge forget who is paused.
func TestAFloodOfKeysForgetsNoneThatIsPaused(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	all := newPenalties(640) // 10 in each shard
	p := compiled(t, Pause{After: 5, Base: time.Hour, Max: time.Hour, Forget: time.Hour})
	paused := map[string]bool{}
	inShard := map[*penaltyShard]int{}
	for i := 0; len(paused) < 200; i++ {
		key := fmt.Sprint("bad", i)
		if s := all.shard(penaltyKey{"r", key}); inShard[s] < 8 {
			inShard[s]++
			for range 5 {
				all.refuse(int64(i), "r", key, 0, p)
			}
			paused[key] = true
		}
	}
	now := int64(time.Minute)
	for i := range 5000 {
		key := fmt.Sprint("flood", rng.IntN(2500))
		if all.refuse(now+int64(i), "r", key, 0, p) > 0 {
			paused[key] = true // came back often enough
		}
		if n := all.kept.Load(); n > 640 {
			t.Fatalf("seed %d: %d keys are kept", seed, n)
		}
	}
	for i := range 200 {
		key := fmt.Sprint("bad", i)
		if rest, _ := all.rest(now, "r", key); paused[key] && rest == 0 {
			t.Fatalf("seed %d: %s is not paused any more", seed, key)
		}
	}
	// In an hour and a half all is over, and room is made of that.
	later := now + int64(150*time.Minute)
	for i := range 2000 {
		all.refuse(later, "r", fmt.Sprint("later", i), 0, p)
	}
	for _, x := range all.list(later, "", func(ns int64) time.Time { return time.Unix(0, ns) }) {
		if x.Level > 0 || !x.Until.IsZero() {
			t.Fatalf("seed %d: %+v should be over", seed, x)
		}
	}
}

func TestWhichPenaltyIsForgottenFirst(t *testing.T) {
	const now = 1000
	order := []penalty{ // from the least to the most
		{quiet: 1, refusals: 1},
		{quiet: 2, refusals: 1},
		{quiet: 1, refusals: 2},
		{quiet: 1, level: 1},
		{quiet: 1, level: 1, refusals: 1},
		{quiet: 1, level: 2},
		{until: now + 1, quiet: now + 1, level: 1},
		{until: now + 2, quiet: now + 2, level: 1},
	}
	for i := range order {
		for j := range order {
			if got := order[i].less(&order[j], now); got != (i < j) {
				t.Errorf("%+v less than %+v: %v", order[i], order[j], got)
			}
		}
	}
}

func TestPenaltiesOfRulesAreKeptApart(t *testing.T) {
	p := compiled(t, Pause{After: 1})
	all := newPenalties(0)
	if all.refuse(0, "a", "k", 0, p) == 0 {
		t.Error("no pause")
	}
	if rest, _ := all.rest(0, "b", "k"); rest != 0 {
		t.Error("a pause by one rule holds for another")
	}
	at := func(ns int64) time.Time { return time.Unix(0, ns) }
	if len(all.list(0, "a", at)) != 1 || len(all.list(0, "b", at)) != 0 || all.lift(0, "b", "k") || !all.lift(0, "a", "k") || all.lift(0, "a", "k") {
		t.Error("lists or lifts of one rule reach another")
	}
}
