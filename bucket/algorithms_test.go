package bucket

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEveryAlgorithmIsInTheTable(t *testing.T) {
	want := []string{"token_bucket", "fixed_window", "sliding_window", "sliding_log", "leaky_bucket", "burst_average", "concurrency"}
	if got := Algorithms(); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	a := mustCompile(t, Spec{Rates: []Rate{Per(5, time.Second), Per(3, time.Minute)}})
	if a.Spec().Algorithm != "token_bucket" || a.Limit() != 3 || a.DenyAll() {
		t.Errorf("%+v, limit %d", a.Spec(), a.Limit())
	}
	a.Spec().Rates[0] = Rate{}
	if a.DenyAll() || a.Spec().Rates[0].Count != 5 {
		t.Error("an algorithm can be changed from outside")
	}
}

func TestABadDefinitionNamesItsField(t *testing.T) {
	r := []Rate{Per(10, time.Second)}
	burst := Spec{Algorithm: "burst_average", Rates: r, BurstRate: Per(20, time.Second), BurstThreshold: Per(5, time.Second), BurstTime: time.Minute}
	change := func(f func(*Spec)) Spec {
		s := burst
		f(&s)
		return s
	}
	for _, c := range []struct {
		spec Spec
		says string
	}{
		{Spec{Algorithm: "tokenbucket", Rates: r}, "sliding_log"},
		{Spec{}, "rate is missing"},
		{Spec{Rates: []Rate{Per(-1, time.Second)}}, "negative"},
		{Spec{Rates: r, Burst: -1}, "burst"},
		{Spec{Rates: r, Burst: 1 << 51}, "burst"},
		{Spec{Rates: r, Queue: 5}, "queue has no meaning for token_bucket"},
		{Spec{Algorithm: "fixed_window", Rates: r, Burst: 5}, "burst has no meaning"},
		{Spec{Algorithm: "sliding_window", Rates: r, Calendar: "day"}, "calendar has no meaning"},
		{Spec{Algorithm: "fixed_window", Rates: r, Timezone: "Europe/Berlin"}, "without a calendar"},
		{Spec{Algorithm: "fixed_window", Rates: r, Calendar: "fortnight"}, "fortnight"},
		{Spec{Algorithm: "fixed_window", Rates: r, Calendar: "day"}, "needs a rate per day"},
		{Spec{Algorithm: "fixed_window", Rates: []Rate{Per(10, day)}, Calendar: "day", Timezone: "Europe/Bern"}, "tzdata"},
		{Spec{Algorithm: "fixed_window", Rates: []Rate{Per(10, day)}, Calendar: "day", Timezone: "Local"}, "Local"},
		{Spec{Algorithm: "fixed_window", Rates: []Rate{Per(1<<51, 30*day)}}, "tokens per window"},
		{Spec{Algorithm: "sliding_log", Rates: r, MaxLog: 1}, "max_log"},
		{Spec{Algorithm: "leaky_bucket", Rates: r, Queue: -1}, "queue"},
		{Spec{Algorithm: "leaky_bucket", Rates: r, MaxWait: -1}, "max_wait"},
		{Spec{Algorithm: "leaky_bucket", Rates: r, Queue: 5, Burst: 5}, "exclude"},
		{Spec{Algorithm: "leaky_bucket", Rates: append(r, r...), Queue: 5}, "one rate"},
		{change(func(s *Spec) { s.Rates = append(r, r...) }), "one rate"},
		{change(func(s *Spec) { s.BurstRate = Rate{} }), "burst_rate"},
		{change(func(s *Spec) { s.BurstThreshold = Rate{} }), "burst_threshold"},
		{change(func(s *Spec) { s.BurstTime = time.Millisecond }), "burst_time"},
		{change(func(s *Spec) { s.BurstRate = Per(10, time.Second) }), "not faster"},
		{change(func(s *Spec) { s.BurstThreshold = Per(1200, time.Minute) }), "never end"},
	} {
		err := c.spec.Validate()
		if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, which does not say %q", c.spec, err, c.says)
		}
	}
	for _, s := range []Spec{
		burst, {Rates: []Rate{{}}}, {Algorithm: "leaky_bucket", Rates: r, MaxWait: time.Second},
		{Algorithm: "fixed_window", Rates: []Rate{Per(10, week)}, Calendar: "week", Timezone: "America/New_York"},
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// BenchmarkMeter is a take of one token from one meter, with the answer's waits.
func BenchmarkMeter(b *testing.B) {
	for _, s := range []Spec{
		{Rates: []Rate{Per(1000, time.Second)}},
		{Algorithm: "fixed_window", Rates: []Rate{Per(1000, time.Second)}},
		{Algorithm: "sliding_window", Rates: []Rate{Per(1000, time.Second)}},
		{Algorithm: "sliding_log", Rates: []Rate{Per(1000, time.Second)}},
		{Algorithm: "burst_average", Rates: []Rate{Per(1000, time.Second)}, Burst: 1000, BurstRate: Per(2000, time.Second), BurstThreshold: Per(500, time.Second), BurstTime: 16 * time.Second},
		{Algorithm: "fixed_window", Rates: []Rate{Per(1000, time.Second), Per(20000, time.Minute)}},
	} {
		a := mustCompile(b, s)
		for _, load := range []struct {
			name string
			step int64
		}{{"allowed", 2e6}, {"overload", 1e5}} {
			name := a.Spec().Algorithm + "/" + load.name
			if len(s.Rates) > 1 {
				name = "several/" + load.name
			}
			b.Run(name, func(b *testing.B) {
				table := NewMeterTable(a, 0)
				now := t0
				b.ReportAllocs()
				for b.Loop() {
					now += load.step
					table.Take("key", now, 1)
				}
			})
		}
	}
}
