package bucket

import (
	"strconv"
	"testing"
	"time"
)

func TestSweepForgetsOnlyFullKeys(t *testing.T) {
	tab := NewTable(params(t, "1/s", 10), 0)
	for i := range int64(10) {
		tab.Take(strconv.FormatInt(i, 10), 0, i+1)
	}
	if n := tab.Sweep(4*sec+1, 0); n != 4 || tab.Len() != 6 {
		t.Errorf("%d dropped, %d left", n, tab.Len())
	}
	tab.Take("4", 4*sec+1, 9) // used since it was recorded
	if n := tab.Sweep(10*sec, 0); n != 5 || tab.Len() != 1 {
		t.Errorf("%d dropped, %d left", n, tab.Len())
	}
	if r := tab.Peek("4", 10*sec); r.Remaining != 6 {
		t.Errorf("%+v", r)
	}
	if n := tab.Sweep(int64(time.Hour), 0); n != 1 || tab.Stats() != (TableStats{Max: DefaultMaxKeys, Swept: 10}) {
		t.Errorf("%d dropped, %+v", n, tab.Stats())
	}
	consistent(t, tab)
}

func TestSweepKeepsToItsBudget(t *testing.T) {
	tab := NewTable(params(t, "1/s", 10), 0)
	for i := range 100 {
		tab.Take(strconv.Itoa(i), 0, 1)
	}
	total := 0
	for range 10 {
		n := tab.Sweep(sec, 10)
		if n > 10 {
			t.Errorf("%d dropped", n)
		}
		total += n
	}
	if total != 100 {
		t.Errorf("%d dropped", total)
	}
}

func TestSweepOnAClockThatWentBack(t *testing.T) {
	tab := NewTable(params(t, "10/10s", 10), 0)
	tab.Take("k", 100*sec, 10)
	for _, now := range []int64{70 * sec, 0, -5 * sec, 100 * sec} {
		if n := tab.Sweep(now, 0); n != 0 {
			t.Errorf("%d dropped at %v", n, time.Duration(now))
		}
	}
	if r := tab.Take("k", 70*sec, 1); r.OK || r.Remaining != 0 {
		t.Errorf("%+v", r)
	}
	// Once forgotten, going back does not bring its time again.
	tab.Sweep(200*sec, 0)
	if r := tab.Take("k", 190*sec, 10); !r.OK {
		t.Errorf("%+v", r)
	}
	if r := tab.Take("k", 201*sec, 2); r.OK || r.Remaining != 1 {
		t.Errorf("%+v", r)
	}
}

func TestFullTableForgetsFullKeysFirst(t *testing.T) {
	tab := NewTable(params(t, "1/s", 10), 3)
	tab.Take("a", 0, 10)
	tab.Take("b", 0, 2)
	tab.Charge("c", 0, 15)
	if r := tab.Take("d", sec, 1); r != (Result{Overflow: true, RetryAfter: time.Second}) {
		t.Errorf("no key is full: %+v", r)
	}
	if r := tab.Charge("d", sec, 1); r != (Result{Overflow: true, RetryAfter: time.Second}) {
		t.Errorf("no key is full: %+v", r)
	}
	if r := tab.Peek("d", sec); r != (Result{OK: true, Remaining: 10}) {
		t.Errorf("a look needs no room: %+v", r)
	}
	if r := tab.Take("a", sec, 1); !r.OK {
		t.Errorf("known keys go on: %+v", r)
	}
	if r := tab.Take("d", 2*sec, 10); !r.OK || r.Remaining != 0 {
		t.Errorf("b is full: %+v", r)
	}
	tab.Refund("a", 2*sec, 9) // full earlier than was to be expected
	if r := tab.Take("e", 2*sec, 10); !r.OK {
		t.Errorf("a is full: %+v", r)
	}
	if r := tab.Take("f", 2*sec, 1); r.OK || r.RetryAfter != 10*time.Second {
		t.Errorf("%+v", r)
	}
	for key, left := range map[string]int64{"c": -3, "d": 0, "e": 0} {
		if r := tab.Peek(key, 2*sec); r.Remaining != max(left, 0) || r.ResetAfter != time.Duration(10-left)*time.Second {
			t.Errorf("%s: %+v", key, r)
		}
	}
	if s := tab.Stats(); s != (TableStats{Entries: 3, Max: 3, Evictions: 2, Overflows: 3}) {
		t.Errorf("%+v", s)
	}
	tab.Reset("c")
	if r := tab.Take("f", 2*sec, 1); !r.OK {
		t.Errorf("there is room: %+v", r)
	}
	consistent(t, tab)
}

func TestRoomAfterARaisedRate(t *testing.T) {
	tab := NewTable(params(t, "1/h", 2), 2)
	tab.Take("a", 0, 2)
	tab.Take("b", 0, 2)
	tab.SetParams(params(t, "0/s", 2), 0)
	if r := tab.Take("c", sec, 1); r.OK || r.Overflow {
		t.Errorf("%+v", r)
	}
	tab.SetParams(params(t, "2/s", 2), sec)
	if r := tab.Take("c", 2*sec, 1); !r.OK {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

func TestFloodOfNewKeysCostsNoScan(t *testing.T) {
	const known = 1000
	tab := NewTable(params(t, "1/min", 5), known)
	for i := range known {
		tab.Take("known"+strconv.Itoa(i), 0, 5)
	}
	tab.mu.Lock()
	for i := range 100_000 {
		if r := tab.Take("new"+strconv.Itoa(i), int64(i), 1); !r.Overflow || r.OK || r.RetryAfter <= 0 {
			t.Fatalf("%+v", r)
		}
	}
	tab.mu.Unlock()
	for i := range known {
		if r := tab.Take("known"+strconv.Itoa(i), sec, 1); r.OK {
			t.Fatalf("%d was forgotten", i)
		}
	}
	if s := tab.Stats(); s.Overflows != 100_000 || s.Evictions != 0 || s.Entries != known {
		t.Errorf("%+v", s)
	}
	consistent(t, tab)
}

func TestFloodThroughATableOfShortMemory(t *testing.T) {
	tab := NewTable(params(t, "1000000/s", 10), 1000)
	over := 0
	for i := range 200_000 {
		if r := tab.Take(strconv.Itoa(i), int64(i)*10, 1); r.Overflow {
			over++
		}
	}
	if s := tab.Stats(); over != 0 || s.Entries != 1000 || s.Evictions != 199_000 {
		t.Errorf("%+v", s)
	}
	consistent(t, tab)
}

func TestBlocksAreDueInTime(t *testing.T) {
	rnd := source(t)
	tab := NewTable(params(t, "1000/s", 1000), 0)
	for i := range 5000 {
		key := strconv.Itoa(rnd.IntN(300))
		switch rnd.IntN(5) {
		case 0:
			tab.Refund(key, int64(i)*ms, rnd.Int64N(1000))
		case 1:
			tab.Reset(key)
		case 2:
			tab.Sweep(int64(i)*ms, 5)
		default:
			tab.Take(key, int64(i)*ms, rnd.Int64N(1000))
		}
	}
	consistent(t, tab)
}

func TestSweepAtTheEndOfTime(t *testing.T) {
	tab := NewTable(params(t, "1/year", 50), 3)
	tab.Charge("k", 0, 80)
	tab.Charge("debtor", 0, 1<<62)
	tab.Take("frozen", 0, 1)
	tab.SetParams(params(t, "0/s", 50), 0)
	const end = 1<<63 - 1
	if n := tab.Sweep(end, 0); n != 0 || tab.Len() != 3 {
		t.Errorf("%d dropped, %d left", n, tab.Len())
	}
	tab.SetParams(params(t, "1/s", 50), end)
	if n := tab.Sweep(end, 0); n != 0 || tab.Len() != 3 {
		t.Errorf("%d dropped, %d left", n, tab.Len())
	}
	if r := tab.Take("new", end, 1); r != (Result{Overflow: true, RetryAfter: Never}) {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

// TestSweepFindsWhatIsDueInAnyChunk has many chunks: each pass drops all that are full, and looks at no others.
func TestSweepFindsWhatIsDueInAnyChunk(t *testing.T) {
	rnd := source(t)
	tab := NewTable(params(t, "1/s", 1000), 0)
	const keys = 30_000
	due := make([]int64, 1001)
	for i := range keys {
		n := 50 * (1 + rnd.Int64N(20))
		due[n]++
		tab.Take(strconv.Itoa(i), 0, n)
	}
	if tab.keys.Chunks() < 5 {
		t.Fatalf("only %d chunks", tab.keys.Chunks())
	}
	most := tab.budget.Bytes()
	left := int64(keys)
	for s := int64(50); s <= 1000; s += 50 {
		if n := tab.Sweep(s*sec-1, 0); n != 0 {
			t.Fatalf("%d dropped before they were full", n)
		}
		left -= due[s]
		if n := int64(tab.Sweep(s*sec, 0)); n != due[s] || int64(tab.Len()) != left {
			t.Fatalf("at %d s %d of %d dropped", s, n, due[s])
		}
		if s%500 == 0 {
			consistent(t, tab)
		}
	}
	// Memory of forgotten keys is used again.
	if empty := tab.budget.Bytes(); empty > most/2 {
		t.Errorf("%d bytes with all keys, %d without any", most, empty)
	}
	for i := range keys {
		tab.Take(strconv.Itoa(i), 2000*sec, 1)
	}
	if after := tab.budget.Bytes(); after > most+most/4 {
		t.Errorf("%d bytes became %d", most, after)
	}
}
