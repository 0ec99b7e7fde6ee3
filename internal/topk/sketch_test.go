package topk

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
	"unsafe"
)

// exact is the twin: every key has a counter.
type exact map[string]int64

func (x exact) add(key string, n int64) { x[key] += n }

func (x exact) total() (n int64) {
	for _, c := range x {
		n += c
	}
	return n
}

// stream is a Zipf distribution of keys, with costs from 1 to most.
func stream(rng *rand.Rand, skew float64, keys, n, most int, f func(key string, n int64)) {
	z := rand.NewZipf(rng, skew, 1, uint64(keys-1))
	for range n {
		f(fmt.Sprint("k", z.Uint64()), 1+rng.Int64N(int64(most)))
	}
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// TestSketchBounds holds the sketch beside the twin: the bounds of every key, listed or not, contain the truth.
func TestSketchBounds(t *testing.T) {
	rng := seeded(t)
	for range 15 {
		k, keys := 1+rng.IntN(300), 1+rng.IntN(5000)
		s, twin := NewSketch(k), exact{}
		stream(rng, 1.01+rng.Float64(), keys, 20_000, 1+rng.IntN(50), func(key string, n int64) {
			s.Add(key, n)
			twin.add(key, n)
		})
		if len(s.slots) > k || len(s.index) != len(s.slots) || len(s.heap) != len(s.slots) {
			t.Fatalf("k %d: %d slots, %d in the index, %d in the heap", k, len(s.slots), len(s.index), len(s.heap))
		}
		var sum int64
		for pos, i := range s.heap {
			x := &s.slots[i]
			sum += x.count
			if x.pos != uint32(pos) || s.index[x.key] != i || pos > 0 && s.at(uint32(pos-1)/2) > x.count {
				t.Fatalf("k %d: slot %d is out of place", k, i)
			}
		}
		if total := twin.total(); sum != total || s.Floor() > total/int64(k) {
			t.Fatalf("k %d: the counts add up to %d of %d, the floor is %d", k, sum, total, s.Floor())
		}
		for key, n := range twin {
			least, most := s.bounds(key)
			if n < least || n > most {
				t.Fatalf("k %d: %s counts %d, said to be from %d to %d", k, key, n, least, most)
			}
			if n > twin.total()/int64(k) && !s.has(key) {
				t.Fatalf("k %d: %s counts %d of %d and is not kept", k, key, n, twin.total())
			}
		}
	}
}

// TestRecentBounds: of this window and a part of the one before, also after what others have counted was added.
func TestRecentBounds(t *testing.T) {
	rng := seeded(t)
	const nodes = 3
	for round := range 5 {
		var all []Summary
		this, was := exact{}, exact{}
		part := rng.Float64()
		now := int64(Window) + int64((1-part)*float64(Window))
		for range nodes {
			r := NewRecent(0)
			tick := int64(0)
			note := func(twin exact) func(string, int64) {
				return func(key string, n int64) {
					if tick++; tick%(Budget/2) == 0 {
						r.Tick(r.start) // no more than the budget in one
					}
					r.Note(key, n)
					twin.add(key, n)
				}
			}
			stream(rng, 1.1, 3000, 20_000, 10, note(was))
			r.Tick(int64(Window))
			stream(rng, 1.1, 3000, 20_000, 10, note(this))
			s := r.Summary(now)
			if s.Sample != 1 || s.Span != Window {
				t.Fatalf("round %d: sample %d, span %v", round, s.Sample, s.Span)
			}
			if rng.IntN(2) == 0 {
				s.Cut(1+rng.IntN(2*Keys), 1<<20)
			}
			all = append(all, s)
		}
		part = 1 - float64(now-int64(Window))/float64(Window)
		m := Merge(all)
		truth := map[string]float64{}
		for key, n := range this {
			truth[key] += float64(n)
		}
		for key, n := range was {
			truth[key] += part * float64(n)
		}
		const rounding = 2 * nodes
		for key, n := range truth {
			x := m.Find(key)
			if n < float64(x.Count)-rounding || n > float64(x.Count+x.Error)+rounding {
				t.Fatalf("round %d: %s counts %.1f, said to be from %d to %d", round, key, n, x.Count, x.Count+x.Error)
			}
			if rate := float64(x.Count) / Window.Seconds(); x.Rate < rate-1e-6 || x.Rate > rate+1e-6 {
				t.Fatalf("%s: rate %v of a count of %d", key, x.Rate, x.Count)
			}
		}
		for i, x := range m.Items {
			if i > 0 && m.Items[i-1].Count < x.Count {
				t.Fatal("the items are not in order")
			}
		}
	}
}

// TestRecentSamples: beyond the budget counts are right on average, large ones in any case.
func TestRecentSamples(t *testing.T) {
	rng := seeded(t)
	r, twin := NewRecent(0), exact{}
	const ticks, each = 10, 50_000
	taken := 0
	for i := range ticks {
		stream(rng, 1.5, 1000, each, 1, func(key string, n int64) {
			twin.add(key, n)
			r.Note(key, n)
		})
		r.mu.Lock()
		taken += Budget - r.left
		r.mu.Unlock()
		r.Tick(int64(i+1) * int64(100*time.Millisecond))
	}
	r.Note("large", 1_000_000)
	s := r.Summary(int64(ticks) * int64(100*time.Millisecond))
	if s.Sample < each/Budget/2 || s.Sample > 4*each/Budget*2 {
		t.Errorf("one in %d is counted of %d in a tick", s.Sample, each)
	}
	if large := s.Items[0]; large.Key == "k0" && s.Find("large").Count != 1_000_000 || large.Key != "k0" && large.Count != 1_000_000 {
		t.Errorf("the large one counts %d", s.Find("large").Count)
	}
	for i := range 5 { // the largest keys
		key := fmt.Sprint("k", i)
		n, x := twin[key], s.Find(key)
		if far := math.Abs(float64(n - x.Count)); far > 6*math.Sqrt(float64(n)*float64(s.Sample))+float64(x.Error) {
			t.Errorf("%s counts %d, said to be %d, and at most %d more", key, n, x.Count, x.Error)
		}
	}
	for range 40 { // nothing comes: everything is counted again
		r.Tick(int64(ticks) * int64(100*time.Millisecond))
	}
	if r.every.Load() != 1 {
		t.Errorf("one in %d is counted at rest", r.every.Load())
	}
}

// TestRecentForgets: what is a minute old fades, and is gone after two.
func TestRecentForgets(t *testing.T) {
	r := NewRecent(0)
	r.Note("a", 100)
	count := func(at time.Duration) int64 { s := r.Summary(int64(at)); return s.Find("a").Count }
	for _, c := range []struct {
		at   time.Duration
		want int64
	}{{0, 100}, {59 * time.Second, 100}, {60 * time.Second, 100}, {90 * time.Second, 50}, {105 * time.Second, 25}, {119999 * time.Millisecond, 0}, {120 * time.Second, 0}, {time.Hour, 0}} {
		if got := count(c.at); got != c.want {
			t.Errorf("after %v: %d, want %d", c.at, got, c.want)
		}
	}
	if s := r.Summary(int64(time.Hour)); len(s.Items) != 0 {
		t.Errorf("%v is left after an hour", s.Items)
	}
	r.Note("b", 60)
	if x := r.Summary(int64(time.Hour)); x.Items[0].Rate != 1 {
		t.Errorf("60 in a minute: %v a second", x.Items[0].Rate)
	}
	if x := NewRecent(5).Summary(5); x.Span != time.Second || x.Items != nil || x.Floor != 0 {
		t.Errorf("a new one says %+v", x)
	}
}

// TestFloodOfKeys: a million keys take no more room than the sketch has, and do not hide the one that counts.
func TestFloodOfKeys(t *testing.T) {
	r := NewRecent(0)
	now, n := int64(0), 1_000_000
	if testing.Short() {
		n /= 5
	}
	for i := range n {
		r.Note("key"+strconv.Itoa(i), 1)
		if i%50 == 0 {
			r.Note("attacker", 1)
		}
		if i%20_000 == 0 {
			now += int64(100 * time.Millisecond)
			r.Tick(now)
		}
	}
	s := r.Summary(now)
	if len(s.Items) > Keys || len(r.this.index) > Keys || cap(r.this.slots) > 2*Keys {
		t.Errorf("%d keys are listed, %d kept, room for %d", len(s.Items), len(r.this.index), cap(r.this.slots))
	}
	if x := s.Items[0]; x.Key != "attacker" || x.Count < int64(n/100) || x.Count > int64(n/33) {
		t.Errorf("first comes %.20q with %d; the attacker had %d", x.Key, x.Count, n/50)
	}
	if size := Keys * (unsafe.Sizeof(slot{}) + 4); size > 20<<10 {
		t.Errorf("the slots of a sketch take %d bytes", size)
	}
}

func TestCountsSaturate(t *testing.T) {
	s := NewSketch(2)
	for range 3 {
		s.Add("a", math.MaxInt64)
		s.Add("b", math.MaxInt64)
		s.Add("c", math.MaxInt64)
	}
	if s.Floor() != math.MaxInt64 {
		t.Errorf("floor %d", s.Floor())
	}
	r := NewRecent(0)
	for range 3 {
		r.Note("a", math.MaxInt64)
		r.Note("", 0)
		r.Note("", -5)
	}
	m := Merge([]Summary{r.Summary(0), r.Summary(int64(Window) + 1), r.Summary(int64(Window) + 2)})
	if len(m.Items) != 1 || m.Items[0].Count != math.MaxInt64 || m.Items[0].Error < 0 {
		t.Errorf("%+v", m)
	}
}

func TestCut(t *testing.T) {
	s := Summary{Floor: 1, Items: []Item{{Key: "a", Count: 9}, {Key: "bb", Count: 5, Error: 3}, {Key: "c", Count: 4}}}
	one := s
	if one.Cut(1, 1000); len(one.Items) != 1 || one.Floor != 8 {
		t.Errorf("%+v", one)
	}
	small := s
	if small.Cut(3, 90); len(small.Items) != 2 || small.Floor != 4 {
		t.Errorf("%+v", small)
	}
	all := s
	if all.Cut(5, 1000); len(all.Items) != 3 || all.Floor != 1 {
		t.Errorf("%+v", all)
	}
}

// BenchmarkNote is what it takes to count: a key that is kept, keys that push each other out, and beyond the budget.
func BenchmarkNote(b *testing.B) {
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%08d", i)
	}
	for _, c := range []struct {
		name string
		keys int
		tick bool
	}{{"kept", 128, true}, {"flood", 1 << 16, true}, {"sampled", 1 << 16, false}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			r := NewRecent(0)
			i := 0
			for b.Loop() {
				if i++; c.tick && i%(Budget/2) == 0 {
					r.Tick(1)
				}
				r.Note(keys[i%c.keys], 1)
			}
		})
	}
}
