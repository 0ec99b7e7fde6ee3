package bucket

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// late is a taker that was held up after it had found a key.
type late struct {
	r     *record
	p     *Params
	tat   uint64
	salt  uint64
	state uint64
}

func arrive(t *testing.T, tab *Table, key string) late {
	t.Helper()
	r, word := tab.keys.Find(key)
	if r == nil || word == busy {
		t.Fatalf("%s is not there", key)
	}
	state := r.state.Load()
	salt := tab.salt(state)
	return late{r, tab.params.at(numberOf(state)), word - salt, salt, state}
}

// fails checks that nothing which a late taker does is done, or answered.
func (l late) fails(t *testing.T, now int64) {
	t.Helper()
	before := l.r.tat.Load()
	for _, n := range []int64{-1, 0, 1, 7, 1000} {
		for o := opTake; o <= opCharge; o++ {
			if res, ok := l.r.try(o, l.p, l.tat, l.salt, now, n); ok {
				t.Errorf("a late taker did %d of %d: %+v", o, n, res)
			}
		}
	}
	if l.r.tat.Load() != before {
		t.Error("a late taker changed another life")
	}
}

// TestLateTakersFail: the record that a taker found is forgotten and given to another key, or the same, which comes to exactly the TAT that the taker
// has seen; or it is converted to other Params, to the same number.
func TestLateTakersFail(t *testing.T) {
	p, now := params(t, "1/s", 10), 5*sec
	for name, forget := range map[string]func(*Table){
		"swept":   func(tab *Table) { tab.Refund("a", now, 7); tab.Sweep(now, 0) },
		"reset":   func(tab *Table) { tab.Reset("a") },
		"evicted": func(tab *Table) { tab.Refund("a", now, 7) },
	} {
		for _, next := range []string{"a", "b"} {
			tab := NewTable(p, 1)
			tab.Take("a", now, 7)
			l := arrive(t, tab, "a")
			forget(tab)
			if name != "evicted" {
				l.fails(t, now)
			}
			if r := tab.Take(next, now, 7); !r.OK {
				t.Fatalf("%s: %+v", name, r)
			}
			m := arrive(t, tab, next)
			if m.r != l.r || m.tat != l.tat {
				t.Fatalf("%s: another record, or another TAT: the test shows nothing", name)
			}
			if name == "evicted" && next == "a" {
				continue // it was not forgotten: the same life, in which the same TAT is the same bucket
			}
			l.fails(t, now)
			if r := tab.Peek(next, now); r.Remaining != 3 {
				t.Errorf("%s: %+v", name, r)
			}
			consistent(t, tab)
		}
	}
	tab := NewTable(p, 0)
	tab.Take("a", 0, 7)
	l := arrive(t, tab, "a")
	tab.SetParams(params(t, "1/s", 11), 0)
	tab.Charge("a", 0, 3)
	l.fails(t, now)
	tab.SetParams(p, 0)
	m := arrive(t, tab, "a")
	tab.Refund("a", 0, 3)
	if l.fails(t, now); m.r != l.r || arrive(t, tab, "a").tat != l.tat {
		t.Error("another record, or another TAT: the test shows nothing")
	}
	consistent(t, tab)
}

// TestATakeComesBeforeTheDrop: a key that was found full is used before it is forgotten, so it is not.
func TestATakeComesBeforeTheDrop(t *testing.T) {
	tab := NewTable(params(t, "1/s", 10), 0)
	tab.Take("a", 0, 7)
	r, word := tab.keys.Find("a")
	if tab.full(r, word) != 7*sec {
		t.Errorf("full at %v", time.Duration(tab.full(r, word)))
	}
	tab.Take("a", 7*sec, 1)
	tab.mu.Lock()
	if tab.drop(r, word, 7*sec) {
		t.Error("forgotten in spite of the take")
	}
	tab.mu.Unlock()
	if res := tab.Peek("a", 7*sec); res.Remaining != 9 || tab.Len() != 1 {
		t.Errorf("%+v", res)
	}
	consistent(t, tab)
}

// TestAWordThatIsBusyByChance waits for nobody for ever.
func TestAWordThatIsBusyByChance(t *testing.T) {
	for name, f := range map[string]func(*Table, *record){
		"take": func(tab *Table, r *record) { tab.Charge("a", 0, 0) },
		"each": func(tab *Table, r *record) {
			n := 0
			tab.Each(0, func(key string, _ *Params, _ Level) bool { n++; return key == "a" })
			if n != 1 {
				t.Errorf("told %d times", n)
			}
		},
		"convert": func(tab *Table, r *record) { tab.SetParams(params(t, "2/s", 10), 0) },
		"sweep":   func(tab *Table, r *record) { tab.Sweep(2*sec, 0) },
	} {
		tab := NewTable(params(t, "1/s", 10), 0)
		tab.Take("a", 0, 1)
		r, _ := tab.keys.Find("a")
		// What the TAT would be.
		r.tat.Store(busy)
		want := -tab.salt(r.state.Load())
		if f(tab, r); tab.Len() != 1 {
			t.Fatalf("%s: forgotten", name)
		}
		b, _ := stored(tab, "a")
		if name == "take" && (b.tat.Load() != want || r.tat.Load() == busy) {
			t.Errorf("%s: TAT is %d, want %d", name, b.tat.Load(), want)
		}
	}
}

// TestNumbersOfParamsAreUsedAgain has many Params of keys that come and go, and few at a time.
func TestNumbersOfParamsAreUsedAgain(t *testing.T) {
	tab := NewTable(params(t, "1/s", 10), 0)
	for i := range int64(5000) {
		key := fmt.Sprint(i % 7)
		p := params(t, "1/s", 100+i)
		if r := tab.TakeWith(key, p, 0, 1); !r.OK {
			t.Fatalf("%+v", r)
		}
		if i%3 == 0 {
			tab.Reset(key)
		}
		if i%11 == 0 {
			tab.SetParams(params(t, "1/s", 10+i%20), 0)
		}
	}
	if n := len(tab.params.refs); n > 10 {
		t.Errorf("%d numbers for 9 Params at a time", n)
	}
	consistent(t, tab)
	// As many as there are keys.
	for i := range int64(300) {
		tab.TakeWith(fmt.Sprint("own", i), params(t, "1/s", 1000+i), 0, i)
	}
	for i := range int64(300) {
		if r := tab.PeekWith(fmt.Sprint("own", i), params(t, "1/s", 1000+i), 0); r.Remaining != 1000 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	consistent(t, tab)
}

func TestKeyThatIsTooLong(t *testing.T) {
	tab := NewTable(params(t, "1/s", 10), 0)
	long := strings.Repeat("x", 1<<20)
	if r := tab.Take(long, 0, 1); r != (Result{Overflow: true, RetryAfter: Never}) {
		t.Errorf("%+v", r)
	}
	if r := tab.Peek(long, 0); !r.OK || tab.Restore(long, nil, 0, Level{}, 0) {
		t.Errorf("%+v", r)
	}
	if s := tab.Stats(); s.Overflows != 1 || s.Entries != 0 {
		t.Errorf("%+v", s)
	}
	consistent(t, tab)
}

// TestTokensAreCountedExactly lets takers loose on the keys of a small table that are swept, evicted, reset and converted all the time, at a frozen time:
// what is taken and what is left are a burst, at each reset and in the end. A reset of a key has it alone, but for sweepers and
// the like; all others go on.
func TestTokensAreCountedExactly(t *testing.T) {
	const burst, keys, hands, rounds = 20, 24, 4, 6000
	now := 7 * sec
	limits := []*Params{params(t, "5/s", burst), params(t, "65535/s", burst), params(t, "1000000000/s", burst), params(t, "11/h", burst)}
	tab := NewTable(limits[0], keys-4)
	var alone [keys]sync.RWMutex
	var resets [keys]int64
	var out [keys]atomic.Int64 // tokens that takers have
	var done atomic.Bool
	name := func(k int) string { return fmt.Sprintf("key:%0*d", 1+k%2*9, k) }
	check := func(k int) {
		b, ok := stored(tab, name(k))
		left := rat(burst)
		if ok {
			left, _ = b.Tokens(now)
		}
		if want := rat(burst - out[k].Load()); left.Cmp(want) != 0 {
			t.Errorf("%s: %s left, want %s", name(k), left, want)
		}
	}
	var others sync.WaitGroup
	for _, f := range []func(rnd *rand.Rand){
		func(rnd *rand.Rand) { tab.Sweep(now, 1+rnd.IntN(10)) },
		func(rnd *rand.Rand) { tab.SetParams(limits[rnd.IntN(len(limits))], now) },
		func(rnd *rand.Rand) { tab.Each(now, func(string, *Params, Level) bool { return true }) },
	} {
		others.Go(func() {
			for rnd := rand.New(rand.NewPCG(1, 1)); !done.Load(); {
				f(rnd)
				runtime.Gosched()
			}
		})
	}
	together(hands, func(i int) {
		rnd := rand.New(rand.NewPCG(uint64(i), 5))
		var mine, since [keys]int64
		for range rounds {
			k := rnd.IntN(keys)
			if rnd.IntN(30) == 0 {
				alone[k].Lock()
				check(k)
				tab.Reset(name(k))
				out[k].Store(0)
				resets[k]++
				alone[k].Unlock()
				continue
			}
			alone[k].RLock()
			if since[k] != resets[k] {
				mine[k], since[k] = 0, resets[k]
			}
			if n := 1 + rnd.Int64N(15); mine[k] > 0 {
				out[k].Add(-mine[k])
				tab.Refund(name(k), now, mine[k])
				mine[k] = 0
			} else if r := tab.Take(name(k), now, n); r.OK {
				out[k].Add(n)
				mine[k] = n
			}
			alone[k].RUnlock()
		}
	})
	done.Store(true)
	others.Wait()
	for k := range keys {
		check(k)
	}
	if s := tab.Stats(); s.Evictions == 0 {
		t.Errorf("nothing was evicted: %+v", s)
	}
	consistent(t, tab)
}

// TestManyNewKeysAtOnce: goroutines meet on each of many keys, which are all new, and one of them makes each. Every key admits a burst.
func TestManyNewKeysAtOnce(t *testing.T) {
	const burst, keys, hands = 3, 20_000, 6
	tab := NewTable(params(t, "1/h", burst), 0)
	var admitted atomic.Int64
	together(hands, func(i int) {
		mine := int64(0)
		for k := range keys {
			if i%2 == 1 {
				k = keys - 1 - k
			}
			if r := tab.Take("key:"+strconv.Itoa(k), sec, 1); r.OK {
				mine++
			} else if r.Overflow {
				t.Errorf("%+v", r)
			}
			if r := tab.Peek("other:"+strconv.Itoa(k), sec); r.Remaining != burst {
				t.Errorf("%+v", r)
			}
		}
		admitted.Add(mine)
	})
	if admitted.Load() != burst*keys || tab.Len() != keys {
		t.Errorf("%d admitted of %d, %d keys", admitted.Load(), burst*keys, tab.Len())
	}
	consistent(t, tab)
}

// TestATokenIsALock: whoever has the only token of a key is alone, though the key is full again, and forgotten, whenever the token is given back.
func TestATokenIsALock(t *testing.T) {
	tab := NewTable(params(t, "1/h", 1), 1)
	limits := []*Params{params(t, "1/h", 1), params(t, "11/h", 1)}
	var inside, done, entered atomic.Int64
	together(4, func(i int) {
		if i == 3 {
			for j := 0; done.Load() < 3; j++ {
				if tab.Sweep(sec, 0); j%100 == 0 {
					tab.SetParams(limits[j/100%2], sec)
				}
			}
			return
		}
		defer done.Add(1)
		for range 100_000 {
			if !tab.Take("k", sec, 1).OK {
				continue
			}
			if inside.Add(1) != 1 {
				t.Error("the same token twice")
			}
			entered.Add(1)
			inside.Add(-1)
			if r := tab.Refund("k", sec, 1); !r.OK || r.Remaining > 1 {
				t.Errorf("%+v", r)
			}
		}
	})
	if n := tab.Peek("k", sec).Remaining; n != 1 || entered.Load() == 0 {
		t.Errorf("%d tokens in the end; taken %d times", n, entered.Load())
	}
	consistent(t, tab)
}
