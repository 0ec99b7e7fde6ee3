package jatah_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/jatah-io/jatah"
)

func TestTermsAreTheSameUntilSomethingIsDefinedAnew(t *testing.T) {
	alone(t, planned(), func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		pro := plan(t, api, "pro")
		type ask struct {
			l   *jatah.Limiter
			key string
		}
		asks := []ask{{api, "u"}, {api, "vip"}, {api, "in:a"}, {api, "in:x"}, {pro, "u"}, {pro, "vip"}, {pro, "in:a"}}
		all := func() (ts []*jatah.Terms) {
			for _, a := range asks {
				t1 := a.l.Terms(a.key)
				l, name := a.l.For(a.key)
				if !reflect.DeepEqual(t1.Limit, l) || t1.Plan != name {
					t.Errorf("%s: terms %+v %q, For says %+v %q", a.key, t1.Limit, t1.Plan, l, name)
				}
				ts = append(ts, t1)
			}
			return ts
		}
		first := all()
		for i, x := range all() {
			if x != first[i] {
				t.Errorf("%s: other terms at the second time", asks[i].key)
			}
		}
		if first[0] != api.Terms("w") || first[1] != api.Terms("vip") || first[0] == first[1] || first[2] == first[3] {
			t.Error("keys with the same amounts have the same terms, and others have others")
		}
		changed := func(what string, l jatah.Limit) {
			t.Helper()
			if _, err := n.Limit(l); err != nil {
				t.Fatal(err)
			}
			now := all()
			for i := range now {
				if now[i] == first[i] {
					t.Errorf("%s: the terms of %q stayed", what, asks[i].key)
				}
			}
			first = now
		}
		l := planned()
		l.Costs = map[string]int64{"/export": 12}
		changed("costs", l)
		if c := api.Terms("vip").Costs["/export"]; c != 12 {
			t.Errorf("the cost is %d", c)
		}
		l.Burst = 11
		changed("burst", l)
		if api.Terms("u").Burst != 11 || api.Terms("vip").Burst != 20 {
			t.Errorf("%+v %+v", api.Terms("u"), api.Terms("vip"))
		}
	})
}

func TestForIsTheCallersOwn(t *testing.T) {
	l := jatah.Limit{Name: "api", Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerMinute(100)}}
	alone(t, l, func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		mine, _ := api.For("u")
		mine.Rates[0].Count = 1
		if again, _ := api.For("u"); again.Rates[0].Count != 10 {
			t.Errorf("who asks next gets %v", again.Rates)
		}
	})
}

func TestABatchByHandlesIsThatByNames(t *testing.T) {
	alone(t, planned(), func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		top, err := n.Limit(jatah.Limit{Name: "top", Rate: jatah.PerSecond(2)})
		if err != nil {
			t.Fatal(err)
		}
		child, err := n.Limit(jatah.Limit{Name: "child", Rate: jatah.PerSecond(10), Parent: "top"})
		if err != nil {
			t.Fatal(err)
		}
		pro := plan(t, api, "pro")
		asks := []jatah.Ask{{api, "a", 7}, {api, "a", 4}, {pro, "a", 8}, {child, "x", 2}, {child, "y", 1}, {top, "top", 1}, {api, "", 1}, {api, "b", -1}, {api, "vip", 20}, {api, "a", 0}}
		reqs := []jatah.Request{{"api", "a", 7, ""}, {"api", "a", 4, ""}, {"api", "a", 8, "pro"}, {"child", "x", 2, ""}, {"child", "y", 1, ""}, {"top", "top", 1, ""},
			{"api", "", 1, ""}, {"api", "b", -1, ""}, {"api", "vip", 20, ""}, {"api", "a", 0, ""}}
		kept := jatah.Decision{Remaining: 4711}
		ds := n.AppendBatch(t.Context(), append(make([]jatah.Decision, 0, 64), kept), asks)
		if len(ds) != 1+len(asks) || !reflect.DeepEqual(ds[0], kept) {
			t.Fatalf("%d decisions for %d asks, after %+v", len(ds), len(asks), ds[0])
		}
		for _, name := range []string{"api", "top", "child"} {
			l, _ := n.Lookup(name)
			for _, key := range []string{"a", "b", "vip", "x", "y", "top", "child"} {
				if err := l.Reset(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, want := range n.Batch(t.Context(), reqs) {
			got := ds[1+i]
			if fmt.Sprint(got.Err) != fmt.Sprint(want.Err) {
				t.Errorf("%d: error %v, by name %v", i, got.Err, want.Err)
			}
			got.Err, want.Err = nil, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d: %+v, by name %+v", i, got, want)
			}
		}
	})
}

func TestABatchByHandlesAllocatesNothing(t *testing.T) {
	n, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	l, err := n.Limit(jatah.Limit{Name: "api", Rate: jatah.PerSecond(1_000_000_000)})
	if err != nil {
		t.Fatal(err)
	}
	asks, ds := []jatah.Ask{{l, "a", 1}, {l, "b", 1}, {l, "c", 1}}, []jatah.Decision(nil)
	if allocs := testing.AllocsPerRun(1000, func() { ds = n.AppendBatch(t.Context(), ds[:0], asks) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
