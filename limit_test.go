package jatah_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func TestLimitsComeBackAsTheyWereDefined(t *testing.T) {
	for _, l := range []jatah.Limit{
		{Name: "bucket", Rate: jatah.PerMinute(100), Burst: 20, Algorithm: jatah.TokenBucket},
		{Name: "rates", Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(500), jatah.PerDay(5000)}, Algorithm: jatah.FixedWindow},
		{Name: "day", Rate: jatah.PerDay(10), Algorithm: jatah.FixedWindow, Calendar: "day", Timezone: "Europe/Berlin"},
		{Name: "log", Rate: jatah.PerMinute(100), Algorithm: jatah.SlidingLog, MaxLog: 64},
		{Name: "queue", Rate: jatah.PerSecond(5), Algorithm: jatah.LeakyBucket, Queue: 10, MaxWait: 2 * time.Second, Mode: jatah.Strict},
		{Name: "router", Rate: jatah.PerSecond(2), Burst: 4, Algorithm: jatah.BurstAverage, BurstRate: jatah.PerSecond(8), BurstThreshold: jatah.PerSecond(1), BurstTime: 16 * time.Second},
		{Name: "plans", Rate: jatah.PerMinute(10), Burst: 10, Algorithm: jatah.TokenBucket,
			Plans:     map[string]jatah.Plan{"pro": {Rate: jatah.PerMinute(100), Burst: 50}},
			Overrides: []jatah.Override{{Key: "vip", Plan: "pro"}, {Prefix: "in:", Rate: jatah.PerSecond(100), Burst: 100}}},
	} {
		node, err := jatah.Start(t.Context(), jatah.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		h, err := node.Limit(l)
		if err != nil {
			t.Errorf("%s: %v", l.Name, err)
			continue
		}
		if got := h.Limit(); !got.Equal(l) {
			t.Errorf("%s came back as\n%+v, was\n%+v", l.Name, got, l)
		}
		if d := h.Take(t.Context(), "k", 1); !d.OK || d.Err != nil {
			t.Errorf("%s: a first request: %+v", l.Name, d)
		}
	}
}

func TestDefinitionsThatCannotBe(t *testing.T) {
	for want, l := range map[string]jatah.Limit{
		"both given":          {Rate: jatah.PerSecond(1), Rates: []jatah.Rate{jatah.PerSecond(1), jatah.PerHour(9)}},
		"is unknown":          {Rate: jatah.PerSecond(1), Algorithm: "tokens"},
		"no meaning":          {Rate: jatah.PerSecond(1), Calendar: "day"},
		"plan name":           {Rate: jatah.PerSecond(1), Plans: map[string]jatah.Plan{"a b": {Rate: jatah.PerSecond(1)}}},
		`plan "pro"`:          {Rate: jatah.PerSecond(1), Plans: map[string]jatah.Plan{"pro": {Rate: jatah.PerSecond(1), Burst: -1}}},
		"does not exist":      {Rate: jatah.PerSecond(1), Overrides: []jatah.Override{{Key: "a", Plan: "pro"}}},
		"key or for a prefix": {Rate: jatah.PerSecond(1), Overrides: []jatah.Override{{Key: "a", Prefix: "b"}}},
		"two overrides":       {Rate: jatah.PerSecond(1), Overrides: []jatah.Override{{Key: "a"}, {Key: "a"}}},
	} {
		l.Name = "api"
		if err := l.Validate(); !errors.Is(err, jatah.ErrLimit) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", l, err, want)
		}
	}
}

func TestAPlanIsNamedByTheCaller(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(10), Burst: 10, Plans: map[string]jatah.Plan{"pro": {Rate: jatah.PerDay(100), Burst: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Plan("gold"); !errors.Is(err, jatah.ErrUnknownPlan) {
		t.Errorf("a plan that does not exist: %v", err)
	}
	pro, err := api.Plan("pro")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if d := api.Take(ctx, "u", 10); !d.OK || d.Remaining != 0 {
		t.Errorf("10 of 10: %+v", d)
	}
	if d := pro.Take(ctx, "u", 90); !d.OK || d.Remaining != 0 {
		t.Errorf("as pro 90 more: %+v", d)
	}
	ds := node.Batch(ctx, []jatah.Request{{Limit: "api", Key: "w", Cost: 50, Plan: "pro"}, {Limit: "api", Key: "w", Cost: 1, Plan: "gold"}, {Limit: "api", Key: "w", Cost: 1}})
	if !ds[0].OK || !errors.Is(ds[1].Err, jatah.ErrUnknownPlan) || ds[2].OK {
		t.Errorf("a batch with plans: %+v", ds)
	}
}
