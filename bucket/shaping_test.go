package bucket

import (
	"math/big"
	"testing"
	"time"
)

// depart takes one token and returns when it departs, in seconds after t0.
func depart(m Meter, now int64) (float64, bool) {
	if !spend(m, now, 1) {
		return 0, false
	}
	return float64(now-t0)/1e9 + m.(Delayer).Delay().Seconds(), true
}

func TestAQueueSpacesDeparturesAndRefusesAtOnce(t *testing.T) {
	s := specMinute("leaky_bucket", 5)
	s.Queue = 5
	m := mustCompile(t, s).New()
	for i := range 6 {
		if at, ok := depart(m, t0); !ok || at != float64(12*i) {
			t.Errorf("request %d departs at %v, %v", i, at, ok)
		}
	}
	if _, ok := depart(m, t0); ok || m.Wait(1) != 12*time.Second {
		t.Errorf("the seventh: %v, wait %v", ok, m.Wait(1))
	}
}

func TestWhoWouldWaitTooLongTakesNoPlace(t *testing.T) {
	m := mustCompile(t, Spec{Algorithm: "leaky_bucket", Rates: []Rate{Per(1, time.Second)}, Queue: 10, MaxWait: 4 * time.Second}).New()
	for i := range 5 {
		if at, ok := depart(m, t0); !ok || at != float64(i) {
			t.Errorf("request %d departs at %v, %v", i, at, ok)
		}
	}
	if _, ok := depart(m, t0); ok || m.Wait(1) != time.Second {
		t.Errorf("a wait of 5 s: %v, wait %v", ok, m.Wait(1))
	}
	if at, ok := depart(m, t0+second); !ok || at != 5 {
		t.Errorf("a second later it departs at %v, %v", at, ok)
	}
}

func TestABucketOfTheSameSizeDoesNotDelay(t *testing.T) {
	s := specMinute("token_bucket", 5)
	s.Burst = 6
	m := mustCompile(t, s).New()
	if got := spendMany(m, t0, 7); got != 6 || m.Wait(1) != 12*time.Second {
		t.Errorf("%d pass, then wait %v", got, m.Wait(1))
	}
}

// queueTwin is a list of departures.
type queueTwin struct {
	gap     *big.Rat // ns between departures
	queue   int64
	maxWait int64
	last    []*big.Rat // all departures
}

// offer returns when n tokens that arrive together would have departed, or false.
func (q *queueTwin) offer(now, n int64, take bool) (*big.Rat, bool) {
	next := rat(now)
	if len(q.last) > 0 {
		next = most(next, plus(q.last[len(q.last)-1], q.gap))
	}
	// Tokens not gone: one that departs is gone a gap later. In fractions, as the bucket has it.
	backlog := new(big.Rat).Quo(minus(next, rat(now)), q.gap)
	if q.queue > 0 && plus(backlog, rat(n)).Cmp(rat(1+q.queue)) > 0 {
		return nil, false
	}
	end := plus(next, times(rat(n-1), q.gap))
	if q.maxWait > 0 && minus(end, rat(now)).Cmp(rat(q.maxWait)) > 0 {
		return nil, false
	}
	if take {
		for i := range n {
			q.last = append(q.last, plus(next, times(rat(i), q.gap)))
		}
	}
	return end, true
}

func TestQueueAgreesWithAListOfDepartures(t *testing.T) {
	rnd := source(t)
	allowed, delayed, denied := 0, 0, 0
	for range 100 {
		s := Spec{Algorithm: "leaky_bucket", Rates: []Rate{Per(1+rnd.Int64N(50), time.Duration(1+rnd.Int64N(int64(time.Minute))))}}
		gap := big.NewRat(int64(s.Rates[0].Per), s.Rates[0].Count)
		if gap.Cmp(rat(1)) < 0 {
			continue
		}
		q := &queueTwin{gap: gap}
		if rnd.IntN(3) > 0 {
			s.Queue = 1 + rnd.Int64N(20)
		}
		if rnd.IntN(3) > 0 || s.Queue == 0 { // whole gaps, so that both decide on the same fraction
			s.MaxWait = s.Rates[0].Per * time.Duration(1+rnd.Int64N(4))
		}
		q.queue, q.maxWait = s.Queue, int64(s.MaxWait)
		m := mustCompile(t, s).New()
		now := t0 + rnd.Int64N(int64(day))
		for range 60 {
			switch rnd.IntN(3) {
			case 0:
				now += rnd.Int64N(floor(gap)*4 + 2)
			case 1:
				m.Advance(now, 1, 0)
				now += int64(m.Wait(1)) + rnd.Int64N(3) - 1
			}
			n := 1 + rnd.Int64N(3)
			m.Advance(now, 1, 0)
			if m.at().now > now {
				continue
			}
			_, may := q.offer(now, n, false)
			if got := m.Free() >= float64(n); got != may {
				t.Fatalf("%+v: %d tokens at %d: %v, want %v; %v free", s, n, now, got, may, m.Free())
			}
			if !may {
				denied++
				w := m.Wait(float64(n))
				if _, ok := q.offer(now+int64(w), n, false); w != Never && !ok {
					t.Fatalf("%+v: %d tokens at %d still do not pass after %v", s, n, now, w)
				}
				if _, ok := q.offer(now+int64(min(w, Never/4))-1, n, false); ok {
					t.Fatalf("%+v: %d tokens at %d pass earlier than after %v", s, n, now, w)
				}
				continue
			}
			end, _ := q.offer(now, n, true)
			m.Use(float64(n), 0)
			d := m.(Delayer).Delay()
			if allowed++; d > 0 {
				delayed++
			}
			if want := ceil(minus(end, rat(now))).Int64(); int64(d) != want {
				t.Fatalf("%+v: %d tokens at %d depart after %d, want %d", s, n, now, d, want)
			}
		}
	}
	if allowed < 1000 || delayed < 500 || denied < 500 {
		t.Errorf("%d allowed, %d of them delayed, %d denied: too few", allowed, delayed, denied)
	}
}

// saturate takes tokens as soon as it can for a time, and returns how many in each second.
func saturate(m Meter, from int64, seconds int) []int {
	got := make([]int, seconds)
	for now := from; ; {
		m.Advance(now, 1, 0)
		if w := m.Wait(1); w > 0 {
			if now += int64(w); now >= from+int64(seconds)*second {
				return got
			}
			continue
		}
		m.Use(1, 0)
		got[(now-from)/second]++
	}
}

func TestABurstByAverageLastsAsTheFormulaSays(t *testing.T) {
	s := Spec{
		Algorithm: "burst_average", Rates: []Rate{Per(2, time.Second)},
		BurstRate: Per(8, time.Second), BurstThreshold: Per(1, time.Second), BurstTime: 16 * time.Second,
	}
	m := mustCompile(t, s).New()
	got := saturate(m, t0, 40)
	for i, n := range got {
		want := 2
		if i < 2 { // 1/s * 16 s / 8/s
			want = 8
		}
		if n != want {
			t.Errorf("second %d: %d, want %d", i, n, want)
		}
	}
	if d := AverageBurst(s.BurstThreshold, s.BurstRate, s.BurstTime); d != 2*time.Second {
		t.Errorf("the formula says %v", d)
	}
	// Idle for burst_time it bursts again.
	m.Advance(t0+40*second, 1, 0)
	reset := m.Reset()
	m.Advance(t0+40*second+int64(reset)-1, 1, 0)
	if m.Fresh() {
		t.Error("as new too early")
	}
	again := t0 + 40*second + int64(reset)
	m.Advance(again, 1, 0)
	if !m.Fresh() || reset > 17*time.Second {
		t.Errorf("not as new after %v", reset)
	}
	if got := saturate(m, again, 3); got[0] != 8 || got[1] != 8 || got[2] != 2 {
		t.Errorf("the second burst: %v", got)
	}
}

func TestALoadBelowTheThresholdKeepsItsBurst(t *testing.T) {
	s := Spec{
		Algorithm: "burst_average", Rates: []Rate{Per(2, time.Second)}, Burst: 4,
		BurstRate: Per(8, time.Second), BurstThreshold: Per(1, time.Second), BurstTime: 16 * time.Second,
	}
	m := mustCompile(t, s).New()
	for i := range int64(20) { // 4 at once each 8 s: half the threshold
		if got := spendMany(m, t0+i*8*second, 4); got != 4 {
			t.Fatalf("only %d pass", got)
		}
		if w := m.Wait(1); w != 125*time.Millisecond {
			t.Fatalf("the next token comes after %v, not at the burst rate", w)
		}
	}
}
