package jatah_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// What is counted as near is what the decisions said themselves: less than a fifth of the burst left, whoever decided.
func TestNearIsWhatDecisionsSaid(t *testing.T) {
	for _, alone := range []bool{true, false} {
		t.Run(fmt.Sprint("alone ", alone), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := jatah.Config{Node: "n1"}
				if !alone {
					tr, err := simnet.New(1).Transport("10.0.0.1:7946")
					if err != nil {
						t.Fatal(err)
					}
					cfg.Transport = tr
				}
				node, err := jatah.Start(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer node.Close()
				limits := []jatah.Limit{
					{Name: "api", Rate: jatah.PerHour(20), Burst: 20},
					{Name: "dry", Rate: jatah.PerHour(20), Burst: 20, DryRun: true},
					{Name: "one", Rate: jatah.PerHour(1), Burst: 1},
					{Name: "plans", Rate: jatah.PerHour(20), Burst: 20, Plans: map[string]jatah.Plan{"pro": {Rate: jatah.PerHour(50), Burst: 50}}},
					{Name: "split", Rate: jatah.PerHour(20), Burst: 20, Mode: jatah.Split},
					{Name: "strict", Rate: jatah.PerHour(20), Burst: 20, Mode: jatah.Strict},
					{Name: "window", Rate: jatah.PerHour(20), Algorithm: jatah.FixedWindow},
				}
				if err := node.SetLimits(limits...); err != nil {
					t.Fatal(err)
				}
				want := map[string]uint64{}
				for _, l := range limits {
					x, _ := node.Lookup(l.Name)
					for range 25 {
						d := x.Take(t.Context(), "u", 1)
						if d.OK && !d.DryRun && d.Remaining*5 < max(l.Burst, l.Rate.Count) {
							want[l.Name]++
						}
						time.Sleep(30 * time.Millisecond)
					}
					if want[l.Name] == 0 {
						t.Errorf("%s: no decision was near the limit", l.Name)
					}
				}
				for _, l := range node.Stats().Limits {
					if l.Near != want[l.Name] {
						t.Errorf("%s: %d decisions count as near the limit, want %d", l.Name, l.Near, want[l.Name])
					}
				}
			})
		})
	}
}

// Stats never tells of more that were near than were admitted, whenever it is read. On one processor a read waits for both takers' slices of time: the end
// comes by takes, too.
func TestNearIsNeverMoreThanAdmitted(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerSecond(1e9), Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var takers sync.WaitGroup
	for range 2 {
		takers.Go(func() {
			for i := 0; i < 200_000 && ctx.Err() == nil; i++ {
				api.Take(ctx, "u", 1)
			}
		})
	}
	for range 200 {
		l := node.Stats().Limits[0]
		var admitted uint64
		for _, n := range l.Decisions {
			if n.Allowed {
				admitted += n.Count
			}
		}
		if l.Near > admitted {
			t.Errorf("%d near the limit, and %d admitted", l.Near, admitted)
		}
	}
	stop()
	takers.Wait()
}

// BenchmarkTakeNear is BenchmarkTake/hot1/seq for a key that is near its limit, so that each decision is counted twice.
func BenchmarkTakeNear(b *testing.B) {
	l := onCredit(b, []string{"u"})
	ctx := context.Background()
	if d := l.Take(ctx, "u", 9<<40/10); !d.OK || d.Remaining*5 >= 1<<40 {
		b.Fatalf("%+v", d)
	}
	b.Run("seq", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			l.Take(ctx, "u", 1)
		}
	})
}
