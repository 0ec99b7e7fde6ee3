package floor

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestEachKeyHasItsOwnCredit(t *testing.T) {
	const keys = 5000
	tab := New(keys, keys*8)
	for i := range keys {
		if err := tab.Give(fmt.Sprint("k", i), int64(i%4)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range keys {
		key := fmt.Sprint("k", i)
		got := 0
		for tab.Take(key, 1) {
			got++
		}
		if got != i%4 {
			t.Fatalf("%s: %d taken, want %d", key, got, i%4)
		}
	}
	if err := tab.Give("k3", 2); err != nil || !tab.Take("k3", 2) || tab.Take("k3", 1) {
		t.Errorf("a known key that got 2 has other than 2, or: %v", err)
	}
	if tab.Take("nobody", 1) || tab.Take("", 1) {
		t.Error("a key that nobody gave anything has some")
	}
}

func TestCostIsTakenWholeOrNotAtAll(t *testing.T) {
	tab := New(1, 1)
	if err := tab.Give("a", 5); err != nil {
		t.Fatal(err)
	}
	if tab.Take("a", 6) || !tab.Take("a", 5) || tab.Take("a", 1) {
		t.Error("5 tokens did not go as one cost of 5")
	}
}

func TestFullTable(t *testing.T) {
	tab := New(2, 100)
	for _, key := range []string{"a", "b"} {
		if err := tab.Give(key, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Give("c", 1); !errors.Is(err, ErrFull) {
		t.Errorf("third key of two: %v, want ErrFull", err)
	}
	if err := New(2, 3).Give("long", 1); err != nil {
		t.Errorf("4 bytes where 3 and a second length were meant: %v", err)
	}
	if err := New(1, 3).Give("long", 1); !errors.Is(err, ErrFull) {
		t.Errorf("4 bytes where 3 fit: %v, want ErrFull", err)
	}
	if err := tab.Give("", 1); !errors.Is(err, ErrKey) {
		t.Errorf("empty key: %v, want ErrKey", err)
	}
	if err := tab.Give(strings.Repeat("x", MaxKey+1), 1); !errors.Is(err, ErrKey) {
		t.Errorf("long key: %v, want ErrKey", err)
	}
}

func TestManyGoroutinesTakeWhatThereIs(t *testing.T) {
	const keys, each = 64, 100
	tab := New(keys, 100*keys)
	var taken atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range keys * each {
				if tab.Take(fmt.Sprint("k", i%keys), 1) {
					taken.Add(1)
				}
				if g == 0 && i < keys {
					if err := tab.Give(fmt.Sprint("k", i), each); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for i := range keys {
		for tab.Take(fmt.Sprint("k", i), 1) {
			taken.Add(1)
		}
	}
	if got := taken.Load(); got != keys*each {
		t.Errorf("%d taken, want %d", got, keys*each)
	}
}

func TestNoAllocation(t *testing.T) {
	tab := New(1, 3)
	if err := tab.Give("key", 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(1000, func() { tab.Take("key", 1) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}

func BenchmarkTake(b *testing.B) {
	tab := New(1, 3)
	if err := tab.Give("key", 1<<60); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if !tab.Take("key", 1) {
			b.Fatal("denied")
		}
	}
}
