package bucket

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"
)

// stored is a copy of what a table has of a key; false if it has nothing.
func stored(tab *Table, key string) (*Bucket, bool) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	r, word := tab.keys.Find(key)
	if r == nil {
		return nil, false
	}
	state := r.state.Load()
	b := New(tab.params.at(numberOf(state)))
	b.tat.Store(word - tab.salt(state))
	b.newest.Store(r.newest.Load())
	return b, true
}

// consistent checks what must hold of a table at rest.
func consistent(t *testing.T, tab *Table) {
	t.Helper()
	refs := make([]int32, len(tab.params.refs))
	refs[tab.limit.Load().number]++
	n, first := 0, int64(math.MaxInt64)
	lives := map[uint64]bool{}
	blocks := *tab.blocks.Load()
	for chunk := range tab.keys.Chunks() {
		b := blocks[chunk]
		tab.keys.Scan(chunk, 0, func(r *record) bool {
			n++
			state := r.state.Load()
			refs[numberOf(state)]++
			if lives[state] {
				t.Errorf("two records in the state %x", state)
			}
			lives[state] = true
			key := tab.keys.Key(r)
			if x, _ := tab.keys.Find(key); x != r {
				t.Errorf("%q is not found", key)
			}
			bucket, _ := stored(tab, key)
			if full := max(bucket.p.when(bucket.tat.Load()), bucket.newest.Load()); full < b.due.Load() || r.tat.Load() == busy {
				t.Errorf("%q is full at %d, but its block is due at %d (busy: %v)", key, full, b.due.Load(), r.tat.Load() == busy)
			}
			return true
		})
		if first = min(first, b.due.Load()); !(tab.hand.busy && tab.hand.chunk == chunk) && b.next.Load() < b.due.Load() {
			t.Errorf("block %d is due at %d, next %d", chunk, b.due.Load(), b.next.Load())
		}
	}
	if earliest := tab.earliest.Load(); earliest > first {
		t.Errorf("earliest is %d, but a block is due at %d", earliest, first)
	}
	if n != tab.Len() || n > tab.Stats().Max {
		t.Errorf("%d records, %d keys of %d", n, tab.Len(), tab.Stats().Max)
	}
	for number, n := range refs {
		if had := tab.params.refs[number]; n != had || n > 0 && tab.params.of[*tab.params.at(uint32(number))] != uint32(number) {
			t.Errorf("the Params %d are had by %d, and count %d", number, n, had)
		}
	}
}

func TestLookStoresNothing(t *testing.T) {
	tab := NewTable(params(t, "3/min", 3), 0)
	if r := tab.Take("unseen", 0, 0); r != (Result{OK: true, Remaining: 3}) {
		t.Errorf("%+v", r)
	}
	if r := tab.Peek("unseen", 0); r != (Result{OK: true, Remaining: 3}) {
		t.Errorf("%+v", r)
	}
	if r := tab.Take("unseen", 0, 4); r != (Result{Remaining: 3, RetryAfter: Never}) {
		t.Errorf("%+v", r)
	}
	if r := tab.Take("unseen", 0, -1); r != (Result{Remaining: 3, RetryAfter: Never}) {
		t.Errorf("%+v", r)
	}
	if r := tab.Refund("unseen", 0, 2); r != (Result{OK: true, Remaining: 3}) {
		t.Errorf("%+v", r)
	}
	tab.Reset("unseen")
	if tab.Len() != 0 {
		t.Errorf("%d keys stored", tab.Len())
	}
	for i := range int64(3) {
		if r := tab.Take("k", 0, 1); !r.OK || r.Remaining != 2-i {
			t.Errorf("%+v", r)
		}
	}
	for range 100 {
		if r := tab.Take("k", 0, 0); r != (Result{OK: true, ResetAfter: time.Minute}) {
			t.Fatalf("%+v", r)
		}
	}
	if r := tab.Take("k", 0, 1); r.OK || r.RetryAfter != 20*time.Second {
		t.Errorf("%+v", r)
	}
	if r := tab.Take("k", 20*sec, 0); r != (Result{OK: true, Remaining: 1, ResetAfter: 40 * time.Second}) {
		t.Errorf("%+v", r)
	}
	if r := tab.Take("k", 20*sec, 1); !r.OK || r.Remaining != 0 {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

func TestRateZeroStoresNoKeys(t *testing.T) {
	tab := NewTable(params(t, "0/s", 0), 0)
	for i := range 1000 {
		if r := tab.Take(strconv.Itoa(i), int64(i)*sec, 1); r != (Result{RetryAfter: Never}) {
			t.Fatalf("%+v", r)
		}
	}
	if tab.Len() != 0 {
		t.Errorf("%d keys", tab.Len())
	}
}

func TestTableChangeOfLimit(t *testing.T) {
	tab := NewTable(params(t, "100/min", 100), 0)
	for i, rate := range []string{"100/min", "10/min", "1000/min"} {
		burst := []int64{100, 10, 1000}[i]
		tab.SetParams(params(t, rate, burst), 0)
		if r := tab.Take("k", 0, 1); !r.OK || r.Remaining != []int64{99, 9, 8}[i] {
			t.Errorf("step %d: %+v", i, r)
		}
		if tab.Params().Burst() != burst {
			t.Errorf("the table shows a burst of %d", tab.Params().Burst())
		}
	}
	if r := tab.Peek("other", 0); r.Remaining != 1000 {
		t.Errorf("a key not seen before: %+v", r)
	}
	consistent(t, tab)
}

// The old rate counts until the change and the new one from then on, also for keys that nobody asks
// for meanwhile.
func TestChangeOfLimitCountsFromItsTime(t *testing.T) {
	tab := NewTable(params(t, "1/s", 100), 0)
	tab.Take("k", 0, 100)
	tab.SetParams(params(t, "10/s", 100), 10*sec)
	tab.SetParams(params(t, "2/s", 100), 12*sec)
	tab.SetParams(params(t, "2/s", 100), 13*sec)
	if r := tab.Peek("k", 20*sec); r.Remaining != 10+20+16 {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

func TestKeysWithParamsOfTheirOwn(t *testing.T) {
	whole := params(t, "6/s", 60)
	share := func(den, burst int64) *Params {
		p, err := NewShare(whole.Rate(), 1, den, burst)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	half, third := share(2, 30), share(3, 20)
	tab := NewTable(whole, 0)
	if r := tab.TakeWith("k", half, 0, 30); !r.OK || r.Remaining != 0 {
		t.Errorf("%+v", r)
	}
	// 3/s for 2 s, then 2/s for 3 s. The change of the limit does not give the key the whole rate.
	if r := tab.TakeWith("k", third, 2*sec, 1); !r.OK || r.Remaining != 5 {
		t.Errorf("%+v", r)
	}
	tab.SetParams(params(t, "60/s", 60), 2*sec)
	if r := tab.PeekWith("k", third, 5*sec); r.Remaining != 11 {
		t.Errorf("%+v", r)
	}
	if r := tab.ChargeWith("k", third, 5*sec, 12); r.RetryAfter != time.Second/2 {
		t.Errorf("%+v", r)
	}
	if r := tab.RefundWith("k", share(3, 20), 5*sec, 100); r.Remaining != 20 || r.ResetAfter != 0 {
		t.Errorf("%+v", r)
	}
	if r := tab.PeekWith("unseen", third, 0); r.Remaining != 20 {
		t.Errorf("%+v", r)
	}
	// Back under the table's limit: as of now.
	tab.TakeWith("k", third, 5*sec, 20)
	if r := tab.Take("k", 6*sec, 0); r.Remaining != 2 {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

func TestReset(t *testing.T) {
	tab := NewTable(params(t, "1/min", 3), 0)
	tab.Charge("k", 0, 10)
	tab.Take("other", 0, 3)
	tab.Reset("k")
	if r := tab.Peek("k", 0); r != (Result{OK: true, Remaining: 3}) {
		t.Errorf("%+v", r)
	}
	if r := tab.Peek("other", 0); r.Remaining != 0 {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

// The cleaner runs on a clock that was set back behind the creation of an empty bucket.
// A faster rate makes keys full earlier than recorded: they must be found.
// TestFloodOfNewKeysCostsNoScan holds the lock of the table: the flood is refused without it.
func TestKeysAreBytes(t *testing.T) {
	tab := NewTable(params(t, "1/min", 1), 0)
	keys := []string{"", "\x00", "\xff\xfe", "/\xc0", "a", "A", strings.Repeat("x", 1<<16)}
	for i, k := range keys {
		buf := []byte(k)
		if r := tab.Take(string(buf), 0, 1); !r.OK {
			t.Errorf("key %d: %+v", i, r)
		}
	}
	for i, k := range keys {
		if r := tab.Take(k, 0, 1); r.OK {
			t.Errorf("key %d: %+v", i, r)
		}
	}
	if tab.Len() != len(keys) {
		t.Errorf("%d keys", tab.Len())
	}
}

// TestTableAgreesWithTwins runs keys of a small table through everything it offers, and compares
// with a twin for each key. Forgetting and making anew must not show.
func TestTableAgreesWithTwins(t *testing.T) {
	rnd := source(t)
	for range 60 {
		limits := []*Params{params(t, "3/s", 5), params(t, "1/min", 50), params(t, "7/s", 1), params(t, "1000000/s", 20)}
		p := limits[rnd.IntN(len(limits))]
		tab := NewTable(p, 1+rnd.IntN(8))
		twins := map[string]*twin{}
		now := int64(0)
		for range 400 {
			now += logUniform(rnd, 1, 1<<uint(1+rnd.IntN(36)))
			key := fmt.Sprint("k", rnd.IntN(10))
			w := twins[key]
			if w == nil {
				w = newTwin(p.rate, 1, 1, p.burst)
				twins[key] = w
			}
			n, level := rnd.Int64N(7), w.at(now)
			var r Result
			switch k := rnd.IntN(20); {
			case k == 0:
				p = limits[rnd.IntN(len(limits))]
				tab.SetParams(p, now)
				for key, w := range twins {
					// A full key that was forgotten cannot keep its lower burst, because nobody
					// remembers it: an unseen key is full.
					e, ok := stored(tab, key)
					if !ok {
						delete(twins, key)
						continue
					}
					kept, _ := e.Tokens(now)
					level := w.at(now)
					if level.Cmp(rat(p.burst)) > 0 {
						level = rat(p.burst)
					}
					lost := level.Sub(level, kept)
					if lost.Sign() < 0 || lost.Cmp(big.NewRat(1, int64(p.unit))) >= 0 {
						t.Fatalf("%s lost %s tokens in the change to %s", key, lost, p.rate)
					}
					*w = *newTwin(p.rate, 1, 1, p.burst)
					w.level, w.last = kept, now
				}
				continue
			case k == 1:
				tab.Sweep(now, 1+rnd.IntN(3))
				continue
			case k == 2:
				tab.Reset(key)
				delete(twins, key)
				continue
			case k == 3:
				if r = tab.Refund(key, now, n); r.OK {
					w.change(now, n)
				}
			case k == 4:
				if r = tab.Charge(key, now, n); r.OK {
					w.change(now, -n)
				}
			default:
				if r = tab.Take(key, now, n); r.OK {
					w.change(now, -n)
				} else if !r.Overflow && n <= w.burst && level.Cmp(rat(n)) >= 0 {
					t.Fatalf("%s: %d of %s refused: %+v", key, n, level, r)
				}
				if r.OK && w.level.Cmp(rat(min(0, floor(level)))) < 0 {
					t.Fatalf("%s: %d of %s taken", key, n, level)
				}
			}
			if r.Overflow {
				if level.Cmp(rat(w.burst)) < 0 {
					t.Fatalf("%s was forgotten with %s tokens", key, level)
				}
				continue
			}
			if got := max(0, floor(w.at(now))); r.Remaining != got {
				t.Fatalf("%s: %+v, want %d left", key, r, got)
			}
		}
		consistent(t, tab)
	}
}
