package jatah

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func someStats() NodeStats {
	return NodeStats{Node: "n2", Ready: true, K: 3, Weight: 1.0 / 3, Stats: Stats{
		Limits: []LimitStats{
			{Name: "api", Mode: Strict, Decisions: []DecisionCount{{true, SourceLocal, 7}, {false, SourceLocal, 8}, {true, SourceAllow, 9}}, DryRun: 1, Keys: 2, Merged: 3, Permits: 4},
			{Name: "idle"},
		},
		Ask: AskStats{Sent: 1, Resent: 2, TimedOut: 3, Silent: 27, Canceled: 28, InFlight: 4,
			Latency: Histogram{Bounds: []time.Duration{10, 20}, Counts: []uint64{5, 6, 7}, Sum: 2000 * 24 * time.Hour, Count: 18}}, // of many that wait at once
		Members: 3, MembersFailed: 1, Accounts: 11, Active: 12, Ledgers: 13, Buckets: 14, Evictions: 15, Overflows: 16, Debt: 17, Pauses: 18,
		HandOffsIn: 19, HandOffsOut: 20, HandOffsLost: 21, PacketsIn: 22, PacketsOut: 23, BytesIn: 24, BytesOut: 25, Tick: 26,
		Rejoins: 29, RejoinErrors: 30, LookupErrors: 31,
	}}
}

func packed(t testing.TB, v any) []byte {
	t.Helper()
	b, err := packTop(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStatsAreReadAsTheyWereWritten(t *testing.T) {
	want := someStats()
	a := wireOf(&want)
	got, err := readStats("n2", packed(t, &a))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, got, want)
	}
}

// TestStatsOfOtherVersions: a later one has more fields, sources and counters, an earlier one fewer counters.
func TestStatsOfOtherVersions(t *testing.T) {
	want := someStats()
	a := wireOf(&want)
	type flat struct {
		Ready   bool
		K       int
		Weight  float64
		Limits  []wireLimit
		Omitted int
		Ask     wireAsk
		Gauges  []uint64
		More    map[string][]string
	}
	l := flat{a.Ready, a.K, a.Weight, a.Limits, a.Omitted, a.Ask, append(a.Gauges[:len(a.Gauges):len(a.Gauges)], 1, 2, 3), map[string][]string{"x": {"y"}}}
	l.Limits[0].Counts = append(l.Limits[0].Counts, 5, 6)
	if got, err := readStats("n2", packed(t, &l)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("later: %v\ngot  %+v\nwant %+v", err, got, want)
	}
	a = wireOf(&want)
	a.Gauges = a.Gauges[:3]
	got, err := readStats("n2", packed(t, &a))
	if err != nil || got.Stats.Accounts != 11 || got.Stats.Active != 0 || got.Stats.BytesOut != 0 {
		t.Errorf("earlier: %+v, %v", got, err)
	}
}

func TestStatsThatCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(a *statsAnswer){
		"twice":         func(a *statsAnswer) { a.Limits[1].Name = "api" },
		"no name":       func(a *statsAnswer) { a.Limits[0].Name = "" },
		"long name":     func(a *statsAnswer) { a.Limits[0].Name = strings.Repeat("x", maxEventWord+1) },
		"weight":        func(a *statsAnswer) { a.Weight = 1.5 },
		"negative":      func(a *statsAnswer) { a.K = -1 },
		"much":          func(a *statsAnswer) { a.Limits[0].Counts[0] = 1 << 60 },
		"many counters": func(a *statsAnswer) { a.Gauges = make([]uint64, mostLists+1) },
		"bounds":        func(a *statsAnswer) { a.Ask.Bounds = []uint64{20, 10} },
		"no bounds":     func(a *statsAnswer) { a.Ask.Bounds = nil },
	} {
		s := someStats()
		a := wireOf(&s)
		spoil(&a)
		if got, err := readStats("n2", packed(t, &a)); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
}

// TestStatsOfAMemberThatCannotTell: one of an earlier version knows no such question, and another answers what cannot be read.
func TestStatsOfAMemberThatCannotTell(t *testing.T) {
	n, err := Start(t.Context(), Config{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.topics.byName.Delete(statsTopic)
	if c, err := n.ClusterStats(t.Context()); err != nil || c.Nodes != nil || c.Missing != nil || len(c.Unknown) != 1 || c.Unknown[0] != "n1" {
		t.Errorf("an earlier version: %+v, %v", c, err)
	}
	n.topics.set(statsTopic, func(context.Context, string, []byte) ([]byte, error) { return []byte{0xc1}, nil })
	if c, err := n.ClusterStats(t.Context()); err != nil || c.Nodes != nil || len(c.Missing) != 1 || c.Unknown != nil {
		t.Errorf("an answer that cannot be read: %+v, %v", c, err)
	}
}

func FuzzStatsAnswer(f *testing.F) {
	s := someStats()
	a := wireOf(&s)
	f.Add(packed(f, &a))
	f.Add(packed(f, &statsAnswer{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readStats("n2", b)
		if err != nil {
			if !errors.Is(err, ErrAnswer) {
				t.Errorf("%v", err)
			}
			return
		}
		a := wireOf(&got)
		again, err := readStats("n2", packed(t, &a))
		if err != nil || len(again.Stats.Limits) != len(got.Stats.Limits) || again.Stats.Ask.Latency.Count != got.Stats.Ask.Latency.Count {
			t.Errorf("%+v was read again as %+v, %v", got, again, err)
		}
	})
}

// TestStatsTakeNoMoreRoomThanTheyHave: what claims to have many elements is not believed.
func TestStatsTakeNoMoreRoomThanTheyHave(t *testing.T) {
	many := []byte{0xdd, 0x7f, 0xff, 0xff, 0xff}
	for name, b := range map[string][]byte{
		"fields": many, "limits": append([]byte{0x97, 0xc3, 1, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0}, many...), "nothing": {},
		"zeros": append(append([]byte{0x97, 0xc3, 1, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x97, 0xa1, 'a', 0}, many...), make([]byte, MaxAnswer/2)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readStats("n2", b)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
			t.Errorf("%s: %d bytes took %d MiB to read", name, len(b), used>>20)
		}
	}
}

// TestStatsAreBounded: with thousands of limits an answer still fits, and has those that are used.
func TestStatsAreBounded(t *testing.T) {
	n, err := Start(t.Context(), Config{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for i := range 6000 {
		l, err := n.Limit(Limit{Name: fmt.Sprintf("%s%05d", strings.Repeat("x", 59), i), Rate: PerHour(5)})
		if err != nil {
			t.Fatal(err)
		}
		if i == 5999 {
			l.Take(t.Context(), "k", 1)
		}
	}
	b, err := n.answerStats(context.Background(), "n2", bytes.Repeat([]byte{0xc1}, 100))
	if err != nil || len(b) > MaxAnswer {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	s, err := readStats("n1", b)
	if err != nil || len(s.Stats.Limits) < 2000 || s.Omitted != 6000-len(s.Stats.Limits) {
		t.Fatalf("%d limits, %d omitted, %v", len(s.Stats.Limits), s.Omitted, err)
	}
	if last := s.Stats.Limits[len(s.Stats.Limits)-1]; !strings.HasSuffix(last.Name, "05999") || len(last.Decisions) != 1 {
		t.Errorf("the one that is used is not among them: the last is %+v", last)
	}
}
