package bucket

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// twins are the Buckets that the keys of a table should be.
type twins struct {
	t         *testing.T
	tab       *Table
	p, share  *Params
	keys      map[string]*Bucket // that the table has
	forgotten int
}

// of returns the Bucket of a key, under the Params that it is used with now.
func (x *twins) of(key string, p *Params, now int64) *Bucket {
	b := x.keys[key]
	if b == nil {
		b = New(p)
		b.newest.Store(x.tab.dropped.Load()) // time does not go back behind what was forgotten
	} else if b.p != p {
		b, _ = b.Convert(p, now)
	}
	return b
}

// forget checks that what the table has no more was full.
func (x *twins) forget(now int64) {
	for key, b := range x.keys {
		if _, ok := stored(x.tab, key); ok {
			continue
		}
		if x.forgotten++; !b.Full(max(now, x.tab.dropped.Load())) {
			x.t.Fatalf("%s was forgotten at %d, and is not full: %+v", key, now, b.Peek(now))
		}
		delete(x.keys, key)
	}
}

// step does something to both; it says whether the table had no room.
func (x *twins) step(rnd *rand.Rand, now int64) bool {
	key := strings.Repeat("k", rnd.IntN(20)) + fmt.Sprint(rnd.IntN(10))
	own, p := (*Params)(nil), x.p
	if rnd.IntN(10) == 0 {
		own, p = x.share, x.share
	}
	b := x.of(key, p, now)
	n, o := rnd.Int64N(8), op(rnd.IntN(3))
	r := x.tab.do(o, key, own, now, n)
	x.forget(now)
	_, has := stored(x.tab, key)
	if r.Overflow {
		if has {
			x.t.Fatalf("%s is there, and there is no room for it", key)
		}
		return true
	}
	if !has {
		if want := New(p).do(o, now, n); r != want { // as of a full one, whatever the time
			x.t.Fatalf("%s: %d of %d at %d: %+v, want %+v", key, o, n, now, r, want)
		}
		return false
	}
	if x.keys[key] == nil {
		raise(&b.newest, x.tab.dropped.Load()) // room was made for it
	}
	x.keys[key] = b
	if want := b.do(o, now, n); r != want {
		x.t.Fatalf("%s: %d of %d at %d: %+v, want %+v", key, o, n, now, r, want)
	}
	return false
}

// change is SetParams for both.
func (x *twins) change(p *Params, now int64) {
	x.tab.SetParams(p, now)
	if now = max(now, x.tab.limit.Load().since); x.p != p {
		for key, b := range x.keys {
			if b.p == x.p {
				x.keys[key], _ = b.Convert(p, now)
			}
		}
	}
	x.p = p
}

// TestTableAgreesWithBuckets does the same to a table and to a map of Buckets, with a clock that goes forth and, now and then, back.
func TestTableAgreesWithBuckets(t *testing.T) {
	rnd := source(t)
	limits := []*Params{params(t, "3/s", 50), params(t, "65535/s", 50), params(t, "1000000/s", 50), params(t, "7/s", 50), params(t, "1/min", 50)}
	share, err := NewShare(Per(1000, time.Second), 1, 3, 50)
	if err != nil {
		t.Fatal(err)
	}
	overflows, forgotten := 0, 0
	for range 15 {
		p := limits[rnd.IntN(len(limits))]
		x := &twins{t: t, tab: NewTable(p, 5+rnd.IntN(100)), p: p, share: share, keys: map[string]*Bucket{}}
		now := int64(1 << 40)
		for range 1500 {
			if now += logUniform(rnd, 1, 1<<uint(1+rnd.IntN(34))); rnd.IntN(20) == 0 {
				now -= rnd.Int64N(sec)
			}
			switch rnd.IntN(40) {
			case 0:
				x.tab.Sweep(now, rnd.IntN(20))
				x.forget(now)
			case 1:
				for key := range x.keys { // any
					x.tab.Reset(key)
					delete(x.keys, key)
					break
				}
			case 2:
				x.change(limits[rnd.IntN(len(limits))], now)
			default:
				if x.step(rnd, now) {
					overflows++
				}
			}
		}
		consistent(t, x.tab)
		told := map[string]bool{}
		x.tab.Each(now, func(key string, _ *Params, left Level) bool {
			if level, _ := x.keys[key].Tokens(now); level.Cmp(left.rat()) != 0 || told[key] {
				t.Fatalf("%s: %v left, want %v (told twice: %v)", key, left, level, told[key])
			}
			told[key] = true
			return true
		})
		for key, b := range x.keys {
			if told[key] == b.Full(now) {
				t.Errorf("%s: told %v, full %v", key, told[key], b.Full(now))
			}
		}
		forgotten += x.forgotten
	}
	if overflows == 0 || forgotten == 0 {
		t.Errorf("%d overflows, %d keys were forgotten", overflows, forgotten)
	}
}
