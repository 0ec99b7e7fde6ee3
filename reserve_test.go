package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// left is what a key holds, in tokens; negative: debt.
func left(t *testing.T, l *jatah.Limiter) float64 {
	t.Helper()
	st, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return st.Balance
}

// A reservation is settled at the true cost, once.
func TestReservationsAreSettledAtTheTrueCost(t *testing.T) {
	for _, c := range []struct {
		name   string
		settle func(r *jatah.Reservation) jatah.Decision
		want   float64
	}{
		{"less than the estimate", func(r *jatah.Reservation) jatah.Decision { return r.Commit(context.Background(), 10) }, 90},
		{"the estimate", func(r *jatah.Reservation) jatah.Decision { return r.Commit(context.Background(), 40) }, 60},
		{"more than the estimate", func(r *jatah.Reservation) jatah.Decision { return r.Commit(context.Background(), 70) }, 30},
		{"more than there is", func(r *jatah.Reservation) jatah.Decision { return r.Commit(context.Background(), 250) }, -150},
		{"nothing", func(r *jatah.Reservation) jatah.Decision { return r.Cancel(context.Background()) }, 100},
		{"after the context's end", func(r *jatah.Reservation) jatah.Decision {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return r.Commit(ctx, 10)
		}, 90},
	} {
		t.Run(c.name, func(t *testing.T) {
			alone(t, jatah.Limit{Name: "llm", Rate: jatah.PerDay(1), Burst: 100}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
				r, d := l.Reserve(t.Context(), "k", 40)
				if r == nil || !d.OK || r.Estimate() != 40 || r.Key() != "k" {
					t.Fatalf("%+v, %+v", r, d)
				}
				if got := left(t, l); got != 60 {
					t.Errorf("%v tokens are left while it is open, want 60", got)
				}
				if d := r.Commit(t.Context(), -1); d.OK || !errors.Is(d.Err, jatah.ErrNegativeCost) {
					t.Errorf("a negative cost: %+v", d)
				}
				if d := c.settle(r); !d.OK || d.Err != nil {
					t.Errorf("%+v", d)
				}
				for range 2 {
					if d := r.Commit(t.Context(), 1000); d.OK || !errors.Is(d.Err, jatah.ErrSettled) {
						t.Errorf("settled again: %+v", d)
					}
					if d := r.Cancel(t.Context()); d.OK || !errors.Is(d.Err, jatah.ErrSettled) {
						t.Errorf("cancelled after that: %+v", d)
					}
				}
				if got := left(t, l); got != c.want {
					t.Errorf("%v tokens are left, want %v", got, c.want)
				}
			})
		})
	}
}

// Many goroutines settle one reservation: one of them does.
func TestOnlyOneSettlesAReservation(t *testing.T) {
	alone(t, jatah.Limit{Name: "llm", Rate: jatah.PerDay(1), Burst: 100}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		r, _ := l.Reserve(t.Context(), "k", 40)
		var settled atomic.Int32
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if r.Commit(t.Context(), 10).OK {
					settled.Add(1)
				}
			})
		}
		all.Wait()
		if n, got := settled.Load(), left(t, l); n != 1 || got != 90 {
			t.Errorf("%d settled it, %v tokens are left; want 1 and 90", n, got)
		}
	})
}

// A denied reservation is none, and one that is never settled stays charged.
func TestReservationsThatAreDeniedOrForgotten(t *testing.T) {
	alone(t, jatah.Limit{Name: "llm", Rate: jatah.PerDay(1), Burst: 100}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		if r, d := l.Reserve(t.Context(), "k", 60); r == nil || !d.OK {
			t.Fatalf("%+v", d)
		}
		if r, d := l.Reserve(t.Context(), "k", 60); r != nil || d.OK || d.RetryAfter == 0 || d.Err != nil {
			t.Errorf("a second that does not fit: %v, %+v", r, d)
		}
		if r, d := l.Reserve(t.Context(), "k", -1); r != nil || !errors.Is(d.Err, jatah.ErrNegativeCost) {
			t.Errorf("a negative estimate: %v, %+v", r, d)
		}
		time.Sleep(time.Hour)
		if got := left(t, l); got < 40 || got > 41 {
			t.Errorf("%v tokens are left an hour later, want those 40 that were not reserved", got)
		}
	})
}

// What dry run let pass took nothing, so nothing comes back.
func TestADryReservationGivesNothingBack(t *testing.T) {
	alone(t, jatah.Limit{Name: "llm", Rate: jatah.PerDay(1), Burst: 100, DryRun: true}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		l.Take(t.Context(), "k", 80)
		r, d := l.Reserve(t.Context(), "k", 60)
		if r == nil || !d.DryRun {
			t.Fatalf("%+v", d)
		}
		if d := r.Commit(t.Context(), 10); !d.OK {
			t.Errorf("%+v", d)
		}
		if got := left(t, l); got != 20 {
			t.Errorf("%v tokens are left, want 20", got)
		}
	})
}

// Tokens that a commit gives back go to who waits.
func TestCommitLetsWaitersPass(t *testing.T) {
	alone(t, jatah.Limit{Name: "llm", Rate: jatah.PerDay(1), Burst: 100}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		r, _ := l.Reserve(t.Context(), "k", 100)
		time.AfterFunc(ms(700), func() { r.Commit(context.Background(), 50) })
		visits := []visit{{cost: 20}, {arrive: ms(1), cost: 30}}
		play(t, l, "k", visits)
		for i, v := range visits {
			if v.err != nil || v.passed < ms(700) || v.passed > ms(702) {
				t.Errorf("visit %d passed at %v, %v; want just after 700 ms", i, v.passed, v.err)
			}
		}
	})
}

// A closed node leaves a reservation open: nothing was changed.
func TestAReservationOutlivesAFailedCommit(t *testing.T) {
	alone(t, jatah.Limit{Name: "llm", Rate: jatah.PerDay(1), Burst: 100}, func(t *testing.T, n *jatah.Node, l *jatah.Limiter) {
		r, _ := l.Reserve(t.Context(), "k", 10)
		n.RemoveLimit("llm")
		for range 2 {
			if d := r.Commit(t.Context(), 5); d.OK || !errors.Is(d.Err, jatah.ErrClosed) {
				t.Errorf("%+v; want ErrClosed", d)
			}
		}
	})
}

// In a cluster too, who hangs up is settled with: at the owner, who has to be asked.
func TestCommitInAClusterOutlivesTheContext(t *testing.T) {
	limit := jatah.Limit{Name: "llm", Rate: jatah.PerDay(1), Burst: 100}
	inBubble(t, *firstSeed, limit, 1, func(b *bubble) {
		b.start(3)
		l := b.others(b.owner(b.keys[0]))[0].life.Load().lim
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for i := range 20 {
			r, d := l.Reserve(context.Background(), b.keys[0], 3)
			if r == nil {
				b.problem("reservation %d: %+v", i, d)
				return
			}
			if d := r.Commit(ctx, int64(1+i%2*4)); !d.OK || d.Err != nil {
				b.problem("reservation %d: %+v", i, d)
			}
		}
		time.Sleep(time.Second)
		if st, err := l.Peek(context.Background(), b.keys[0]); err != nil || st.Remaining != 40 {
			b.problem("%+v, %v; want 40 tokens left", st, err)
		}
	})
}

// A language model says only at the end how many tokens an answer took.
func ExampleLimiter_Reserve() {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	tokens, err := node.Limit(jatah.Limit{Name: "llm-tokens", Rate: jatah.PerDay(100), Burst: 10_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	complete := func() int64 { return 1_200 } // calls the model, returns the tokens it counted

	r, d := tokens.Reserve(ctx, "tenant:7", 4_000) // the most that this prompt can take
	if !d.OK {
		fmt.Println("come back in", d.RetryAfter)
		return
	}
	defer r.Cancel(ctx) // if the call fails or panics: all comes back; after Commit it does nothing
	fmt.Println("while it runs:", d.Remaining)
	d = r.Commit(ctx, complete())
	fmt.Println("after it:", d.Remaining)
	// Output:
	// while it runs: 6000
	// after it: 8800
}

// An export may have more rows than anybody guessed: what it takes beyond the estimate is owed by those after it.
func ExampleReservation_Commit() {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	rows, err := node.Limit(jatah.Limit{Name: "rows", Rate: jatah.PerDay(1), Burst: 1_000})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, d := rows.Reserve(ctx, "tenant:7", 800)
	if !d.OK {
		fmt.Println("come back in", d.RetryAfter)
		return
	}
	exported := int64(1_500)
	fmt.Println(r.Commit(ctx, exported).OK)
	next := rows.Take(ctx, "tenant:7", 1)
	fmt.Println(next.OK, next.RetryAfter > 500*24*time.Hour)
	// Output:
	// true
	// false true
}
