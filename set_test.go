package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

func startAlone(t *testing.T) *jatah.Node {
	t.Helper()
	node, err := jatah.Start(t.Context(), jatah.Config{Node: "alone"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return node
}

func names(node *jatah.Node) (all []string) {
	for _, l := range node.Limits() {
		all = append(all, l.Name)
	}
	return all
}

func perHour(name string, n int64) jatah.Limit {
	return jatah.Limit{Name: name, Rate: jatah.PerHour(n)}
}

func TestSetLimitsReplacesWhatThisProgramDefined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, ctx := startAlone(t), t.Context()
		a, err := node.Limit(perHour("a", 10))
		if err != nil {
			t.Fatal(err)
		}
		if err := node.SetLimits(perHour("c", 10), perHour("a", 10)); err != nil {
			t.Fatal(err)
		}
		c, _ := node.Lookup("c")
		for range 3 {
			a.Take(ctx, "u", 1)
			c.Take(ctx, "u", 1)
		}
		for _, step := range []struct {
			set  []jatah.Limit
			want []string
			left int64 // of a
		}{
			{[]jatah.Limit{perHour("a", 10), perHour("b", 10)}, []string{"a", "b"}, 6},
			{[]jatah.Limit{perHour("b", 10), perHour("a", 10), perHour("c", 10)}, []string{"a", "b", "c"}, 5},
			{[]jatah.Limit{{Name: "a", Rate: jatah.PerHour(10), Costs: map[string]int64{"/x": 3}}}, []string{"a"}, 4},
		} {
			if err := node.SetLimits(step.set...); err != nil {
				t.Fatal(err)
			}
			if got := names(node); !slices.Equal(got, step.want) {
				t.Errorf("the limits are %q, want %q", got, step.want)
			}
			if same, ok := node.Lookup("a"); !ok || same != a {
				t.Errorf("the handle of a limit that stays is another one")
			}
			if d := a.Take(ctx, "u", 1); !d.OK || d.Remaining != step.left {
				t.Errorf("what was used of a limit that stays: %+v, want %d left", d, step.left)
			}
		}
		if got := a.Cost("/x"); got != 3 {
			t.Errorf("the cost of a route is %d, want the new one, 3", got)
		}
		if d := c.Take(ctx, "u", 1); !errors.Is(d.Err, jatah.ErrClosed) {
			t.Errorf("a limit that is gone says %+v, want ErrClosed", d)
		}
		if err := node.SetLimits(); err != nil || len(node.Limits()) != 0 {
			t.Errorf("an empty set: %v, and %q are left", err, names(node))
		}
		node.Close()
		if err := node.SetLimits(perHour("a", 1)); !errors.Is(err, jatah.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	})
}

func TestSetLimitsChangesNothingIfOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := startAlone(t)
		jobs := jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 2}
		under := func(name, parent string) jatah.Limit {
			l := perHour(name, 1)
			l.Parent = parent
			return l
		}
		before := []jatah.Limit{perHour("api", 5), under("child", "api"), jobs}
		if err := node.SetLimits(before...); err != nil {
			t.Fatal(err)
		}
		defined := node.Limits()
		chain := []jatah.Limit{perHour("c0", 1)}
		for i := range 9 {
			chain = append(chain, under(fmt.Sprint("c", i+1), fmt.Sprint("c", i)))
		}
		for _, c := range []struct {
			name string
			set  []jatah.Limit
			want map[string]string // what is said of which limits
		}{
			{"bad definitions", []jatah.Limit{perHour("api", 50), {Name: "x", Rate: jatah.PerHour(1), Burst: -1}, {Name: "a b", Rate: jatah.PerHour(1)}},
				map[string]string{"x": "burst", "a b": "without spaces"}},
			{"one name twice", []jatah.Limit{perHour("api", 50), perHour("api", 60)}, map[string]string{"api": "given twice"}},
			{"tokens that become permits", []jatah.Limit{{Name: "api", Algorithm: jatah.Concurrency, Max: 1}, perHour("x", 1)}, map[string]string{"api": "cannot become concurrency"}},
			{"permits that become tokens", []jatah.Limit{perHour("jobs", 50), perHour("api", 50)}, map[string]string{"jobs": "stop being it"}},
			{"a parent that goes", []jatah.Limit{under("child", "api"), perHour("x", 1)}, map[string]string{"child": `parent "api"`}},
			{"a parent of permits", []jatah.Limit{under("child", "jobs"), jobs}, map[string]string{"child": "counts permits"}},
			{"a circle", []jatah.Limit{under("api", "child"), under("child", "api")}, map[string]string{"api": "lead back to itself", "child": "lead back to itself"}},
			{"a chain that is too long", chain, map[string]string{"c9": "more than 8 parents"}},
			{"a cost that can never pass", []jatah.Limit{perHour("api", 50), {Name: "x", Rate: jatah.PerHour(1), Costs: map[string]int64{"/x": 2}}}, map[string]string{"x": "above the burst"}},
		} {
			err := node.SetLimits(c.set...)
			if !errors.Is(err, jatah.ErrLimit) {
				t.Errorf("%s: %v, want ErrLimit", c.name, err)
				continue
			}
			said := map[string]string{}
			for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
				var of *jatah.LimitError
				if !errors.As(one, &of) {
					t.Fatalf("%s: %T, want LimitError", c.name, one)
				}
				said[of.Limit] = of.Error()
			}
			for name, text := range c.want {
				if !strings.Contains(said[name], text) || !strings.Contains(said[name], name) {
					t.Errorf("%s: of %q it is said %q, want %q", c.name, name, said[name], text)
				}
			}
			if len(said) != len(c.want) {
				t.Errorf("%s: %q, want only %q", c.name, said, c.want)
			}
			if got := node.Limits(); !slices.EqualFunc(got, defined, jatah.Limit.Equal) {
				t.Errorf("%s: the limits are now %+v, want %+v", c.name, got, defined)
			}
		}
	})
}

// Parents and children may stand in any order, change places, and go together.
func TestSetLimitsTakesParentsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 7
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		node := startAlone(t)
		all := []string{"a", "b", "c", "d", "e", "f"}
		for range 200 {
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			set := make([]jatah.Limit, 1+random.IntN(len(all)))
			for i := range set {
				set[i] = perHour(all[i], int64(10+random.IntN(10)))
				if i > 0 && random.IntN(3) > 0 {
					set[i].Parent = all[random.IntN(i)]
				}
			}
			random.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
			if err := node.SetLimits(set...); err != nil {
				t.Fatalf("%+v: %v", set, err)
			}
			for _, want := range set {
				l, ok := node.Lookup(want.Name)
				if !ok || l.Limit().Parent != want.Parent || l.Limit().Rate != want.Rate {
					t.Fatalf("%q is %+v, want %+v", want.Name, l.Limit(), want)
				}
				if d := l.Take(t.Context(), "u", 0); d.Err != nil {
					t.Fatalf("a look at %q of %+v: %v", want.Name, set, d.Err)
				}
			}
			if len(node.Limits()) != len(set) {
				t.Fatalf("%q are there, want only %+v", names(node), set)
			}
		}
	})
}

// What was used counts against the new definition from the next request on; it neither gets lost nor below zero.
func TestUsedAmountsSurviveSetLimits(t *testing.T) {
	type step struct {
		at        time.Duration
		limit     int64
		cost      int64
		ok        bool
		remaining int64
		retry     time.Duration
	}
	window := func(n int64) jatah.Limit {
		return jatah.Limit{Name: "api", Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(n)}
	}
	bucket := func(n int64) jatah.Limit { return jatah.Limit{Name: "api", Rate: jatah.PerMinute(n), Burst: n} }
	for _, c := range []struct {
		name  string
		limit func(n int64) jatah.Limit
		steps []step
	}{
		{"fixed window", window, []step{{10 * time.Second, 100, 40, true, 60, 0}, {20 * time.Second, 10, 1, false, 0, 40 * time.Second}, {30 * time.Second, 50, 1, true, 9, 0}}},
		{"token bucket", bucket, []step{{0, 100, 1, true, 99, 0}, {0, 10, 1, true, 9, 0}, {0, 1000, 1, true, 8, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node, begin := startAlone(t), time.Now()
				for _, s := range c.steps {
					time.Sleep(time.Until(begin.Add(s.at)))
					if err := node.SetLimits(perHour("other", s.limit), c.limit(s.limit)); err != nil {
						t.Fatal(err)
					}
					l, _ := node.Lookup("api")
					d := l.Take(t.Context(), "u", s.cost)
					if d.OK != s.ok || d.Remaining != s.remaining || d.RetryAfter != s.retry {
						t.Errorf("at %v, limit %d: %+v, want %+v", s.at, s.limit, d, s)
					}
					st, err := l.Peek(t.Context(), "u")
					if err != nil || st.Burst != s.limit || st.Remaining != s.remaining {
						t.Errorf("at %v: a look says %+v, %v, want %d of %d", s.at, st, err, s.remaining, s.limit)
					}
					if got := node.Limits()[0]; got.Capacity() != s.limit {
						t.Errorf("at %v the definition is %+v, want %d", s.at, got, s.limit)
					}
				}
			})
		})
	}
}

// While the set changes a hundred times, no request on a limit that stays finds it missing, whichever way it comes.
func TestNoRequestFindsItsLimitMissingWhileTheSetChanges(t *testing.T) {
	node, ctx := startAlone(t), t.Context()
	set := func(i int) []jatah.Limit {
		n := int64(1_000_000 + i%2) // the limit "changed" is another one each time
		child := jatah.Limit{Name: "child", Rate: jatah.PerHour(1_000_000), Parent: fmt.Sprintf("comes-%d", i%3), Plans: map[string]jatah.Plan{"pro": {Rate: jatah.PerHour(2 * n)}}}
		comes := perHour(fmt.Sprintf("comes-%d", i%3), 1_000_000) // and goes with the next set, when the child is under another
		if i%4 == 3 {
			child.Parent = ""
		}
		return []jatah.Limit{child, comes, perHour("same", 1_000_000), perHour("changed", n), {Name: "jobs", Algorithm: jatah.Concurrency, Max: 100 + int64(i%2)}}
	}
	if err := node.SetLimits(set(0)...); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var requests atomic.Int64
	var all sync.WaitGroup
	handle := func(name string) *jatah.Limiter { l, _ := node.Lookup(name); return l }
	handles := map[string]*jatah.Limiter{"same": handle("same"), "changed": handle("changed"), "child": handle("child")}
	for _, ask := range []func(name string) error{
		func(name string) error { return handles[name].Take(ctx, "u", 1).Err },
		func(name string) error {
			l, ok := node.Lookup(name)
			if !ok {
				return jatah.ErrUnknownLimit
			}
			return l.Take(ctx, "u", 1).Err
		},
		func(name string) error {
			return node.Batch(ctx, []jatah.Request{{Limit: name, Key: "u", Cost: 1}})[0].Err
		},
		func(name string) error {
			return node.TakeAll(ctx, []jatah.Request{{Limit: name, Key: "u", Cost: 1}, {Limit: "child", Key: "v", Cost: 1, Plan: "pro"}}).Err
		},
	} {
		all.Go(func() {
			for !done.Load() {
				for name := range handles {
					if err := ask(name); err != nil {
						t.Errorf("a request on %q: %v", name, err)
						return
					}
					requests.Add(1)
				}
			}
		})
	}
	steps := make(chan bool)
	all.Go(func() { // others that define and remove, at the same time as each change
		for range steps {
			if _, err := node.Limit(perHour("mine", 1)); err != nil {
				t.Error(err)
			}
			node.RemoveLimit("mine")
			_ = node.Limits()
		}
	})
	for i := range 100 {
		steps <- true
		if err := node.SetLimits(set(i)...); err != nil {
			t.Error(err)
		}
		for before := requests.Load(); requests.Load() < before+20 && !t.Failed(); { // so that requests fall between any two changes
			_ = handles["same"].Take(ctx, "w", 1)
		}
	}
	close(steps)
	done.Store(true)
	all.Wait()
}

// The same on three nodes, of which each changes at a time of its own; and what was used is used by all definitions.
func TestSetLimitsOnAllNodesUnderLoad(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		inBubble(t, 3, slow(100, mode, jatah.FallbackShare), 2, func(b *bubble) {
			b.start(3)
			set := func(i int) []jatah.Limit {
				same, up := b.limit, jatah.Limit{Name: fmt.Sprintf("up-%d", i%2), Rate: jatah.PerSecond(1000), Mode: mode} // goes when the child is under the other
				same.Burst = 100 - int64(i%2)
				return []jatah.Limit{same, up, {Name: "child", Rate: jatah.PerSecond(1000 + int64(i%2)), Mode: mode, Parent: up.Name}}
			}
			for _, h := range b.hosts {
				if err := h.node().SetLimits(set(0)...); err != nil {
					b.t.Fatal(err)
				}
			}
			var done atomic.Bool
			var all sync.WaitGroup
			var admitted atomic.Int64
			for _, h := range b.hosts {
				all.Go(func() {
					for i := 0; !done.Load(); i++ {
						for _, d := range h.node().Batch(context.Background(), []jatah.Request{{Limit: b.limit.Name, Key: b.keys[0], Cost: 2}, {Limit: "child", Key: fmt.Sprint(i), Cost: 1}}) {
							if d.Err != nil {
								t.Errorf("%s after %v: %v", h.name, b.now(), d.Err)
							}
						}
						time.Sleep(2 * time.Millisecond)
					}
				})
				all.Go(func() {
					for !done.Load() {
						d := h.node().Batch(context.Background(), []jatah.Request{{Limit: b.limit.Name, Key: b.keys[1], Cost: 2}})[0]
						if d.OK {
							admitted.Add(2)
						}
						time.Sleep(7 * time.Millisecond)
					}
				})
			}
			for i := range 30 {
				for _, h := range b.hosts {
					if err := h.node().SetLimits(set(i + 1)...); err != nil {
						t.Error(err)
					}
					time.Sleep(23 * time.Millisecond)
				}
			}
			done.Store(true)
			all.Wait()
			if n := admitted.Load(); n < 90 || n > 100 {
				t.Errorf("%d admitted of a limit that was 100 and 99 by turns", n)
			}
		})
	})
}
