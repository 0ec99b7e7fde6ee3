package dashboard

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// nodeStats are the counters of a node with one limit.
func nodeStats(name string, limit string, allowed, refused uint64) jatah.NodeStats {
	return jatah.NodeStats{Node: name, Stats: jatah.Stats{Limits: []jatah.LimitStats{{Name: limit, Decisions: []jatah.DecisionCount{
		{Allowed: true, Source: jatah.SourceLocal, Count: allowed}, {Allowed: false, Source: jatah.SourceOwner, Count: refused}}}}}}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestRatesAreOfEachNode: a member that is missed once, one that starts anew and one that joins are no bursts and no negative numbers.
func TestRatesAreOfEachNode(t *testing.T) {
	f, now := newFeed(), time.Unix(1e9, 0)
	for i, step := range []struct {
		nodes []jatah.NodeStats
		want  rate
	}{
		{[]jatah.NodeStats{nodeStats("n1", "api", 1000, 500), nodeStats("n2", "api", 5000, 0)}, rate{0, 0}},
		{[]jatah.NodeStats{nodeStats("n1", "api", 1010, 503), nodeStats("n2", "api", 5100, 0)}, rate{110, 3}},
		{[]jatah.NodeStats{nodeStats("n1", "api", 1020, 506)}, rate{10, 3}},
		{[]jatah.NodeStats{nodeStats("n1", "api", 1030, 509), nodeStats("n2", "api", 5300, 0)}, rate{110, 3}},                                // 200 in two seconds
		{[]jatah.NodeStats{nodeStats("n1", "api", 1040, 512), nodeStats("n2", "api", 7, 7)}, rate{10, 3}},                                    // n2 was started anew
		{[]jatah.NodeStats{nodeStats("n1", "api", 1050, 515), nodeStats("n2", "api", 8, 7), nodeStats("n3", "api", 1e9, 0)}, rate{11, 3}},    // n3 joins
		{[]jatah.NodeStats{nodeStats("n1", "api", 1050, 515), nodeStats("n2", "api", 8, 7), nodeStats("n3", "other", 2e9, 0)}, rate{2e9, 0}}, // with a limit it did not have
	} {
		now = now.Add(time.Second)
		next := f.wait()
		f.take(now, step.nodes)
		select {
		case <-next:
		default:
			t.Errorf("step %d: who waits was not told", i)
		}
		if got := f.state.now; !near(got.allowed, step.want.allowed) || !near(got.refused, step.want.refused) {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
	p := f.pastOf("api")
	if len(p.Times) != 6 || p.Allowed[0] != 110 || p.Refused[5] != 0 || !p.Recorded {
		t.Errorf("the history is %+v", p)
	}
	u := f.rates["api"]
	if u.allowed != 1058 || u.refused != 522 || u.sources[jatah.SourceOwner] == nil {
		t.Errorf("the counters of api: %+v", u)
	}
}

// TestADryRunRefusesNobody, whatever the counters say would be.
func TestADryRunRefusesNobody(t *testing.T) {
	f, now := newFeed(), time.Unix(1e9, 0)
	for i := range uint64(2) {
		s := nodeStats("n1", "api", 100+10*i, 50+7*i)
		s.Stats.Limits[0].DryRun = 50 + 7*i
		f.take(now.Add(time.Duration(i)*time.Second), []jatah.NodeStats{s, nodeStats("n2", "api", 3*i, 2*i)})
	}
	u := f.rates["api"]
	if u.now != (rate{20, 2}) || u.dry != 7 || u.allowed != 170 || u.refused != 2 || f.state.now != (rate{20, 2}) || f.last["n1"].rate != (rate{17, 0}) {
		t.Errorf("%+v, all together %+v, n1 %+v", u, f.state.now, f.last["n1"].rate)
	}
}

// TestDigitsAreCalm: a rate that jumps is followed in a few seconds, and one that ends becomes nothing.
func TestDigitsAreCalm(t *testing.T) {
	f, now, n := newFeed(), time.Unix(1e9, 0), uint64(0)
	step := func(per uint64) float64 {
		n += per
		now = now.Add(time.Second)
		f.take(now, []jatah.NodeStats{nodeStats("n1", "api", n, 0)})
		return f.rates["api"].smooth.allowed
	}
	step(5)
	if got := step(100); got != 100 {
		t.Errorf("the first rate is %v: there was nothing to smooth it with", got)
	}
	if got := step(200); !near(got, 140) || f.rates["api"].now.allowed != 200 {
		t.Errorf("a jump from 100 to 200 is told as %v", got)
	}
	for range 40 {
		step(0)
	}
	if got := step(0); got != 0 {
		t.Errorf("long after the last, %v a second", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h, now := newHistory(), time.Unix(1e9, 0)
	busy := map[string]rate{}
	for i := range mostSeries + 50 {
		busy[fmt.Sprint("l", i)] = rate{1, 2}
	}
	h.add(now, rate{5, 6}, busy)
	if len(h.limits) != mostSeries {
		t.Errorf("%d limits are recorded", len(h.limits))
	}
	if p := h.of("another"); p.Recorded || len(p.Times) != 1 || p.Allowed[0] != 0 {
		t.Errorf("one there was no room for: %+v", p)
	}
	var used string // one of those that there was room for
	for used = range h.limits {
		break
	}
	for i := range samples + 10 {
		h.add(now.Add(time.Duration(i+1)*time.Second), rate{float64(i), 0}, map[string]rate{used: {float64(i), 0}})
	}
	if len(h.limits) != 1 {
		t.Errorf("%d limits are recorded, of which one was used in the last minutes", len(h.limits))
	}
	p := h.of("")
	if len(p.Times) != samples || p.Allowed[samples-1] != samples+9 || p.Allowed[0] != 10 || p.Times[samples-1]-p.Times[0] != 1000*(samples-1) {
		t.Errorf("%d samples from %v to %v", len(p.Times), p.Allowed[0], p.Allowed[samples-1])
	}
	if p := h.of(used); p.Allowed[0] != 10 || p.Allowed[samples-1] != samples+9 {
		t.Errorf("of one limit: %v to %v", p.Allowed[0], p.Allowed[samples-1])
	}
	if p := h.of("another"); !p.Recorded {
		t.Error("there is room again, but not for what was not used")
	}
	h.add(now.Add(time.Hour), rate{}, map[string]rate{"back": {3, 0}})
	if p := h.of("back"); p.Allowed[samples-1] != 3 || p.Allowed[samples-2] != 0 {
		t.Errorf("of a new one: %v", p.Allowed[samples-3:])
	}
}

// A clock that is set back leaves no chart that goes back in time.
func TestHistoryIsInTheOrderOfTime(t *testing.T) {
	h, begin := newHistory(), time.Unix(1000, 0)
	for i, at := range []int{0, 1, 2, -60, -59, -59, -58} {
		h.add(begin.Add(time.Duration(at)*time.Second), rate{allowed: float64(i)}, nil)
	}
	p := h.of("")
	if want := []int64{941_000, 942_000}; !slices.Equal(p.Times, want) || !slices.Equal(p.Allowed, []float32{5, 6}) || len(p.Refused) != 2 {
		t.Errorf("the history is %+v, want the times %v", p, want)
	}
}

func TestQuantilesOfAsks(t *testing.T) {
	f, now := newFeed(), time.Unix(1e9, 0)
	asks := func(node string, bounds []time.Duration, counts ...uint64) jatah.NodeStats {
		s := nodeStats(node, "api", 0, 0)
		s.Stats.Ask.Latency = jatah.Histogram{Bounds: bounds, Counts: counts}
		return s
	}
	ms := []time.Duration{time.Millisecond, 10 * time.Millisecond}
	f.take(now, []jatah.NodeStats{asks("n1", ms, 50, 50, 50), asks("n2", ms, 0, 0, 0)})
	f.take(now.Add(time.Second), []jatah.NodeStats{asks("n1", ms, 50, 50, 50), asks("n2", ms, 0, 0, 0)})
	if d, ok := f.quantile(0.5); ok {
		t.Errorf("nothing was asked, but it took %v", d)
	}
	f.take(now.Add(2*time.Second), []jatah.NodeStats{asks("n1", ms, 90, 60, 50), asks("n2", ms, 40, 10, 0), asks("n3", ms[:1], 1, 1)})
	f.take(now.Add(3*time.Second), []jatah.NodeStats{asks("n1", ms, 90, 60, 50), asks("n2", ms, 40, 10, 0), asks("n3", ms[:1], 1000, 1000)})
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0.4, 500 * time.Microsecond}, {0.8, time.Millisecond}, {0.9, 5500 * time.Microsecond}, {1, 10 * time.Millisecond}} {
		if d, ok := f.quantile(c.q); !ok || (d-c.want).Abs() > time.Microsecond {
			t.Errorf("the part %v took at most %v, want %v", c.q, d, c.want)
		}
	}
	f.take(now.Add(4*time.Second), []jatah.NodeStats{asks("n1", ms, 90, 60, 5000)})
	if d, _ := f.quantile(0.9); d != 10*time.Millisecond {
		t.Errorf("beyond all bounds: %v, want the last", d)
	}
}
