package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

func TestCostOfARoute(t *testing.T) {
	costs := map[string]int64{"/export": 100, "/search/*": 5, "/search/deep/*": 20, "/search/deep/free": 0, "/v1*": 2}
	withDefault := map[string]int64{"*": 7, "/health": 0}
	for _, c := range []struct {
		costs map[string]int64
		route string
		want  int64
	}{
		{nil, "/export", 1},
		{nil, "", 1},
		{costs, "/export", 100},
		{costs, "/export/", 1}, // not the same
		{costs, "/EXPORT", 1},
		{costs, "/search", 1}, // nothing after the slash, and no slash
		{costs, "/search/", 5},
		{costs, "/search/a", 5},
		{costs, "/search/a/b", 5},
		{costs, "/search/deep", 5},
		{costs, "/search/deep/a", 20},     // the longest
		{costs, "/search/deep/free", 0},   // exactly this
		{costs, "/search/deep/free/", 20}, // not exactly
		{costs, "/v1", 2},
		{costs, "/v10/x", 2},
		{costs, "/v", 1},
		{costs, "", 1},
		{withDefault, "/anything", 7},
		{withDefault, "", 7},
		{withDefault, "/health", 0},
	} {
		alone(t, jatah.Limit{Name: "api", Rate: jatah.PerSecond(1), Burst: 100, Costs: c.costs}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
			if got := l.Cost(c.route); got != c.want {
				t.Errorf("%v: %q costs %d, want %d", c.costs, c.route, got, c.want)
			}
		})
	}
}

func TestCostsAreChecked(t *testing.T) {
	limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(10)}
	for _, c := range []struct {
		route string
		cost  int64
		want  string // part of the error; "": none
	}{
		{"/a", 10, ""}, {"/a", 0, ""}, {"*", 1, ""}, {"GET /a/{id}", 3, ""}, {"/ä*", 3, ""},
		{"/a", -1, `the cost of route "/a" is -1; it must be 0 or more`},
		{"/a", 11, `the cost of route "/a" is 11, above the burst 10: it could never pass`}, // the burst is that of the rate
		{"", 1, `use "*" for all routes`},
		{"/a/*/b", 1, "has a star before its end"},
		{"/a/**", 1, "has a star before its end"},
		{"/" + strings.Repeat("a", jatah.MaxRoute), 1, "at most 1024"},
	} {
		limit.Costs = map[string]int64{c.route: c.cost, "/fine": 1}
		err := limit.Validate()
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, jatah.ErrLimit) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.20q: %d: %v; want %q", c.route, c.cost, err, c.want)
		}
	}
	off := jatah.Limit{Name: "off", Costs: map[string]int64{"/a": 5}}
	if err := off.Validate(); err != nil {
		t.Errorf("a limit that denies everything cannot name costs: %v", err)
	}
}

// The costs of a limit are the definition's: later changes of the caller's map are not seen, a new definition is.
func TestCostsBelongToTheDefinition(t *testing.T) {
	costs := map[string]int64{"/a": 5}
	limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Costs: costs}
	alone(t, limit, func(t *testing.T, n *jatah.Node, l *jatah.Limiter) {
		costs["/a"] = 6
		if got := l.Cost("/a"); got != 5 {
			t.Errorf("the cost is %d after the caller's map changed, want 5", got)
		}
		if got := l.Limit().Costs["/a"]; got != 5 {
			t.Errorf("the definition shows %d, want 5", got)
		}
		limit.Costs = map[string]int64{"/a": 11}
		if _, err := n.Limit(limit); !errors.Is(err, jatah.ErrLimit) {
			t.Errorf("%v; want ErrLimit", err)
		}
		limit.Costs = map[string]int64{"/a": 7}
		if _, err := n.Limit(limit); err != nil {
			t.Fatal(err)
		}
		if got, shown := l.Cost("/a"), n.Limits()[0].Costs["/a"]; got != 7 || shown != 7 {
			t.Errorf("after the new definition the cost is %d and shown as %d, want 7", got, shown)
		}
	})
}

func TestLimitsAreEqual(t *testing.T) {
	a := jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 20, Costs: map[string]int64{"/a": 5}}
	for _, c := range []struct {
		name   string
		change func(l *jatah.Limit)
		want   bool
	}{
		{"itself", func(*jatah.Limit) {}, true},
		{"another map of the same costs", func(l *jatah.Limit) { l.Costs = map[string]int64{"/a": 5} }, true},
		{"another cost", func(l *jatah.Limit) { l.Costs = map[string]int64{"/a": 6} }, false},
		{"no costs", func(l *jatah.Limit) { l.Costs = nil }, false},
		{"another burst", func(l *jatah.Limit) { l.Burst = 21 }, false},
		{"another fallback", func(l *jatah.Limit) { l.Fallback = jatah.FallbackDeny }, false},
	} {
		b := a
		c.change(&b)
		if a.Equal(b) != c.want || b.Equal(a) != c.want {
			t.Errorf("%s: %v, want %v", c.name, a.Equal(b), c.want)
		}
	}
	none, empty := jatah.Limit{Name: "api"}, jatah.Limit{Name: "api", Costs: map[string]int64{}}
	if !none.Equal(empty) || !empty.Equal(none) {
		t.Error("no costs and an empty map are different")
	}
}

func ExampleLimiter_Cost() {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: 200,
		Costs: map[string]int64{"/export": 100, "/search/*": 5}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, route := range []string{"/export", "/search/shoes", "/profile"} {
		fmt.Println(route, api.Take(ctx, "user:42", api.Cost(route)).Remaining)
	}
	// Output:
	// /export 100
	// /search/shoes 95
	// /profile 94
}
