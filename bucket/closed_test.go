package bucket

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah/internal/budget"
)

// TestAClosedTableTakesNothing of the budget: whoever has the table from before finds no room for new keys.
func TestAClosedTableTakesNothing(t *testing.T) {
	b := budget.New(10, 0, 0)
	a, err := Compile(Spec{Algorithm: "fixed_window", Rates: []Rate{Per(5, time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewParams(Per(5, time.Hour), 5)
	if err != nil {
		t.Fatal(err)
	}
	meters, buckets := NewMeterTableIn(a, b), NewTableIn(p, b)
	if !meters.Take("before", 0, 1).OK || !buckets.Take("before", 0, 1).OK || b.Keys() != 2 {
		t.Fatalf("%d keys", b.Keys())
	}
	meters.Close()
	buckets.Close()
	if r := meters.Take("after", 0, 1); !r.Overflow {
		t.Errorf("meters: %+v", r)
	}
	if r := buckets.Take("after", 0, 1); !r.Overflow || buckets.Restore("more", nil, 0, Level{}, 0) {
		t.Errorf("buckets: %+v", r)
	}
	if b.Keys() != 0 || b.Bytes() != 0 {
		t.Errorf("%d keys and %d bytes are counted of closed tables", b.Keys(), b.Bytes())
	}
}
