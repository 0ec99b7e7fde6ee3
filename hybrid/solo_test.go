package hybrid

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/ring"
)

// exactly is an exact bucket beside a key: what was admitted must fit it at any time.
type exactly struct {
	p   *bucket.Params
	tat uint64
}

func (x *exactly) admit(t *testing.T, what string, now, cost int64) {
	t.Helper()
	x.tat = x.p.Used(x.tat, now, cost)
	if l := x.p.Level(x.tat, now); l < 0 {
		t.Errorf("%s: %d were admitted, and then there are %d", what, cost, l)
	}
}

// TestSoloBesideTheExactBucket: over any order of takes, looks, refunds, ticks and pauses, the keys of a node that is the only member admit what an
// exact bucket admits, and refuse only what it refuses, or would have refused two ticks before.
func TestSoloBesideTheExactBucket(t *testing.T) {
	if raceDetector {
		t.Skip("one goroutine")
	}
	for _, spec := range []Spec{
		{Name: "api", Rate: bucket.Per(100, time.Minute), Burst: 20},
		{Name: "api", Rate: bucket.Per(1000, time.Second), Burst: 50},
		{Name: "api", Rate: bucket.Per(7, time.Second), Burst: 1},
		{Name: "api", Rate: bucket.Per(3, 7*time.Second), Burst: 1000, Fallback: FallbackWait},
		{Name: "api", Rate: bucket.Per(5, time.Second), Burst: 5, Overshoot: 0.5},
	} {
		t.Run(fmt.Sprint(spec.Rate, " ", spec.Burst), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			b := newBare(t, 1, spec, 0)
			e := b.engines[b.names[0]]
			l, _ := e.Lookup("api")
			params, err := bucket.NewParams(spec.Rate, spec.Burst)
			if err != nil {
				t.Fatal(err)
			}
			if spec.Fallback == FallbackWait { // such keys start empty
				b.now += int64(params.FillTime())
				b.tick()
			}
			twins := map[string]*exactly{}
			slack := int64(float64(spec.Rate.Count)/float64(spec.Rate.Per)*float64(2*tick)) + 2
			var took, solo uint64
			next := b.now + tick
			for range 3000 {
				to := b.now + rng.Int64N(int64(spec.Rate.Per)/spec.Rate.Count)/2
				if rng.IntN(500) == 0 {
					to += rng.Int64N(int64(20 * time.Second))
				}
				for ; next <= to; next += tick {
					b.now = next - tick
					b.tick()
				}
				b.now = to
				key := fmt.Sprint("key-", rng.IntN(3))
				x := twins[key]
				if x == nil {
					x = &exactly{p: params}
					twins[key] = x
				}
				was := x.p.Level(x.tat, b.now)
				switch rng.IntN(40) {
				case 0:
					took++
					d := l.Take(context.Background(), key, 0)
					if p, _ := l.keys.Find(key); p != nil && p.credit.has(creditSolo) && (d.Remaining > was || was-d.Remaining > slack) {
						t.Fatalf("a look sees %d, there are %d", d.Remaining, was)
					}
				case 1: // somebody who looks at the owner: the key is not solo any more
					l.Refund(context.Background(), key, 0)
				default:
					cost := 1 + rng.Int64N(min(4, spec.Burst))
					d := l.Take(context.Background(), key, cost)
					took++
					if d.OK {
						x.admit(t, key, b.now, cost)
					} else if a, _ := l.lookup(key); a == nil && was >= cost+slack {
						t.Fatalf("%d were refused of %s, there are %d: %+v", cost, key, was, d)
					}
					p, _ := l.keys.Find(key)
					if left := x.p.Level(x.tat, b.now); p != nil && p.credit.has(creditSolo) && d.Remaining > left {
						t.Fatalf("%d remain, it says %d", left, d.Remaining)
					}
				}
				solo += uint64(e.nsolo)
			}
			if solo == 0 {
				t.Error("no key was solo")
			}
			var counted uint64
			for _, s := range e.Stats().Limits {
				for i := range s.Allowed {
					counted += s.Allowed[i] + s.Denied[i]
				}
			}
			if counted != took {
				t.Errorf("%d decisions were counted, there were %d", counted, took)
			}
		})
	}
}

// TestSoloSaturated: a key that is asked for too much gives all that there is.
func TestSoloSaturated(t *testing.T) {
	b := newBare(t, 1, testSpec(1000, 100), 0)
	l, _ := b.engines[b.names[0]].Lookup("api")
	admitted, start := 0, b.now
	for step := range 20_000 { // every half millisecond
		if b.now += int64(500 * time.Microsecond); step%200 == 199 {
			b.tick()
			b.now -= tick
		}
		for range 2 {
			if l.Take(context.Background(), "k", 1).OK {
				admitted++
			}
		}
	}
	most := 100 + int((b.now-start)/int64(time.Millisecond))
	if admitted > most || admitted < most*99/100 {
		t.Errorf("%d were admitted, an exact bucket admits %d", admitted, most)
	}
}

// TestSoloAnswersWhenItHelps: after the wait that a denial tells, and not before, the request passes.
func TestSoloAnswersWhenItHelps(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(10, time.Second), Burst: 5}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	ctx := context.Background()
	for range 5 {
		if d := l.Take(ctx, "k", 1); !d.OK {
			t.Fatalf("%+v", d)
		}
	}
	d := l.Take(ctx, "k", 3)
	if d.OK || d.RetryAfter != 300*time.Millisecond || d.Source != SourceLocal {
		t.Fatalf("empty: %+v", d)
	}
	b.now += int64(d.RetryAfter) - 1
	if d := l.Take(ctx, "k", 3); d.OK || d.RetryAfter != 1 {
		t.Errorf("a nanosecond early: %+v", d)
	}
	b.now++
	if d := l.Take(ctx, "k", 3); !d.OK || d.Remaining != 0 {
		t.Errorf("in time: %+v", d)
	}
	if d := l.Take(ctx, "k", 6); d.OK || d.RetryAfter != bucket.Never {
		t.Errorf("above the burst: %+v", d)
	}
}

// TestSoloMeetsAnother: when a second member comes, what was used stays used, and no full key is kept.
func TestSoloMeetsAnother(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 40}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	used := map[string]int64{}
	for i := range 3000 {
		key := fmt.Sprint("key-", i)
		for range i % 40 {
			if !l.Take(context.Background(), key, 1).OK {
				t.Fatal(key)
			}
			used[key]++
		}
	}
	if e.nsolo != len(used) || e.accounts.n != 0 || e.nledgers != 0 {
		t.Fatalf("%d solo keys, %d accounts, %d ledgers", e.nsolo, e.accounts.n, e.nledgers)
	}
	names := []string{b.names[0], "another"}
	r, err := ring.New(e.cfg.Ring, names)
	if err != nil {
		t.Fatal(err)
	}
	e.SetView(b.now, View{Alive: names, Ring: r})
	if e.nsolo != 0 || l.keys.Len() != 0 {
		t.Errorf("%d solo keys and %d purses are left", e.nsolo, l.keys.Len())
	}
	kept := 0
	for key, n := range used {
		hash := e.hash(l, key)
		p := e.parts[e.partOf(hash)]
		if !p.owned {
			continue // it was handed over
		}
		x := p.ledgers[ledgerKey{l, key}]
		if kept++; x == nil || !near(x.pool, float64(40-n)) || x.outstanding() != 0 {
			t.Fatalf("%s: used %d, its ledger is %+v", key, n, x)
		}
	}
	if kept == 0 || kept == len(used) || e.nledgers != kept {
		t.Errorf("%d of %d keys stay here, in %d ledgers", kept, len(used), e.nledgers)
	}
}

// TestSoloIsForgottenWhenFull, and not before: neither by the sweep nor for a new key in a full table.
func TestSoloIsForgottenWhenFull(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Second), Burst: 60}, 100)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	ctx := context.Background()
	for i := range 100 {
		for range 1 + i%2*59 { // one token, or all
			l.Take(ctx, fmt.Sprint(i), 1)
		}
	}
	if d := l.Take(ctx, "new", 1); d.Err != ErrOverflow {
		t.Errorf("no key is full, and there was room: %+v", d)
	}
	b.now += int64(2 * time.Second)
	for i := range 50 {
		if d := l.Take(ctx, fmt.Sprint("new-", i), 1); !d.OK {
			t.Fatalf("%d keys are full, and there was no room for the %d-th: %+v", 50-i, i, d)
		}
	}
	for i := 1; i < 100; i += 2 {
		if d := l.Take(ctx, fmt.Sprint(i), 10); d.OK {
			t.Fatalf("%d was used up two seconds ago and has %d: it was forgotten", i, d.Remaining)
		}
	}
	for range 3 * sweepTicks {
		b.tick()
	}
	if n := l.keys.Len(); n != 50 {
		t.Errorf("%d keys are left, want those that were used up", n)
	}
	for range 700 {
		b.tick()
	}
	if e.nsolo != 0 || l.keys.Len() != 0 {
		t.Errorf("%d keys are left when all are full", l.keys.Len())
	}
}

// TestSoloRedefined and removed: what was used stays used under other amounts, and a removed limit leaves nothing.
func TestSoloRedefined(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 100}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	ctx := context.Background()
	for range 30 {
		l.Take(ctx, "k", 1)
	}
	if _, err := e.Define(Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 80}); err != nil {
		t.Fatal(err)
	}
	if d := l.Take(ctx, "k", 1); !d.OK || d.Remaining != 69 {
		t.Errorf("30 of 100 were used, then one of 80: %+v", d)
	}
	for i := range 10 {
		l.Take(ctx, fmt.Sprint(i), 1)
	}
	if e.nsolo != 10 {
		t.Errorf("%d new keys are solo", e.nsolo)
	}
	e.Remove("api")
	if d := l.Take(ctx, "3", 1); d.OK || d.Err != ErrClosed {
		t.Errorf("removed: %+v", d)
	}
	if e.nsolo != 0 {
		t.Errorf("%d solo keys of a limit that is gone", e.nsolo)
	}
}

// TestSoloIsSaved: a snapshot has what was used of solo keys, and of one that was unfolded before.
func TestSoloIsSaved(t *testing.T) {
	spec := Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 100}
	b := newBare(t, 1, spec, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	for i := range 1000 {
		l.Take(context.Background(), fmt.Sprint(i), 1+int64(i)%90)
	}
	l.Charge(context.Background(), "7", 2) // no longer solo
	wall := time.Unix(1e9, 0)
	image := e.Snapshot(b.now, wall)
	c := newBare(t, 1, spec, 0)
	f := New(Config{Node: b.names[0], Network: bareNetwork{c, b.names[0]}, Settle: time.Millisecond})
	f.clock = func() int64 { return c.now }
	f.born, f.lastTick = c.now, c.now
	if _, err := f.Define(spec); err != nil {
		t.Fatal(err)
	}
	if err := f.Restore(c.now, wall, image); err != nil {
		t.Fatal(err)
	}
	c.engines[b.names[0]] = f
	r, err := ring.New(f.cfg.Ring, c.names)
	if err != nil {
		t.Fatal(err)
	}
	f.SetView(c.now, View{Alive: c.names, Ring: r})
	c.tick()
	c.tick()
	m, _ := f.Lookup("api")
	for i := range 1000 {
		want := 100 - 1 - int64(i)%90
		if i == 7 {
			want -= 2
		}
		if d := m.Take(context.Background(), fmt.Sprint(i), 0); d.Remaining != want {
			t.Fatalf("%d: %d remain of %d", i, d.Remaining, want)
		}
	}
}

// TestSoloKeysAreSmall: what a key takes beside its own bytes.
func TestSoloKeysAreSmall(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has memory of its own")
	}
	const keys = 1_000_000 // fewer may be more each: memory comes in blocks of 4 MiB
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 100}, 2*keys)
	l, _ := b.engines[b.names[0]].Lookup("api")
	heap := func() uint64 {
		var m runtime.MemStats
		for range 3 { // what earlier tests left
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	ctx := context.Background()
	for i := range keys {
		l.Take(ctx, fmt.Sprintf("user:%08d", i), 1)
	}
	per := float64(heap()-before)/keys - 13
	t.Logf("%.1f bytes per key beside its own 13", per)
	if per > 64 {
		t.Errorf("%.1f bytes per key beside its own", per)
	}
	runtime.KeepAlive(b)
}

// TestHotCredit lets goroutines spend from one key whose credit is divided, while ticks, charges and cooling go on: no token is spent twice, none is lost, and
// every decision is counted.
func TestHotCredit(t *testing.T) {
	const burst = 30_000
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: burst}, 0)
	e := b.engines[b.names[0]]
	e.parallel = 4
	var now atomic.Int64
	now.Store(b.now)
	e.clock = now.Load
	l, _ := e.Lookup("api")
	ctx := context.Background()
	l.Take(ctx, "k", 1)
	l.heat("k")
	if len(e.hot) != 1 || e.accountOf(l, "k").hot.Load() == nil {
		t.Fatal("the key is not hot")
	}
	var admitted, asked atomic.Int64
	admitted.Add(1)
	asked.Add(1)
	var wg sync.WaitGroup
	var stop atomic.Bool
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			for range 20_000 {
				cost := int64(1)
				if rng.IntN(10) == 0 {
					cost = 3
				}
				asked.Add(1)
				if l.Take(ctx, "k", cost).OK {
					admitted.Add(cost)
				}
				if rng.IntN(2000) == 0 {
					l.heat("k")
				}
			}
		})
	}
	ticked := make(chan struct{})
	go func() {
		defer close(ticked)
		for i := 0; !stop.Load(); i++ {
			e.Tick(now.Add(tick/100), 0) // the clock nearly stands still: nothing refills
			if i%3 == 0 {
				e.mu.Lock()
				if a := e.accountOf(l, "k"); a != nil {
					e.cool(a)
				}
				e.mu.Unlock()
			}
		}
	}()
	wg.Wait()
	stop.Store(true)
	<-ticked
	if n := admitted.Load(); n > burst {
		t.Errorf("%d were admitted of %d", n, burst)
	}
	for range 10 {
		e.Tick(now.Add(tick), 0)
	}
	for l.Take(ctx, "k", 1).OK {
		admitted.Add(1)
		asked.Add(1)
	}
	asked.Add(1)
	if n := admitted.Load(); n != burst {
		t.Errorf("%d of %d were admitted in the end", n, burst)
	}
	var counted uint64
	for _, s := range e.Stats().Limits {
		for i := range s.Allowed {
			counted += s.Allowed[i] + s.Denied[i]
		}
	}
	if counted != uint64(asked.Load()) {
		t.Errorf("%d decisions were counted, there were %d", counted, asked.Load())
	}
}

// TestSoloConcurrent: goroutines use up keys while the sweep, snapshots and looks go on.
func TestSoloConcurrent(t *testing.T) {
	const burst, keys = 200, 40
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, 24*time.Hour), Burst: burst}, 0)
	e := b.engines[b.names[0]]
	var now atomic.Int64
	now.Store(b.now)
	e.clock = now.Load
	l, _ := e.Lookup("api")
	var admitted [keys]atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 6))
			for range 8_000 {
				i := rng.IntN(keys)
				cost := rng.Int64N(4)
				if l.Take(context.Background(), fmt.Sprint("key-", i), cost).OK {
					admitted[i].Add(cost)
				}
				switch rng.IntN(3000) {
				case 0:
					e.Snapshot(now.Load(), time.Unix(1e9, 0))
				case 1:
					e.mu.Lock()
					e.dissolve(nil, now.Load())
					e.mu.Unlock()
				case 2:
					e.Stats()
				}
			}
		})
	}
	done := make(chan struct{})
	var stop atomic.Bool
	go func() {
		defer close(done)
		for !stop.Load() {
			e.Tick(now.Add(tick/1000), 0)
		}
	}()
	wg.Wait()
	stop.Store(true)
	<-done
	for range 10 {
		e.Tick(now.Add(tick), 0)
	}
	for i := range keys {
		for l.Take(context.Background(), fmt.Sprint("key-", i), 1).OK {
			admitted[i].Add(1)
		}
		if n := admitted[i].Load(); n != burst {
			t.Errorf("%d of %d were admitted of key %d", n, burst, i)
		}
	}
}

// TestOwnCreditIsNotWaitedFor: an owner that is alone has nobody to call credit back from, so it answers each request at once, also right
// after a tick that took back what it had lent to itself.
func TestOwnCreditIsNotWaitedFor(t *testing.T) {
	for round := range 40 {
		seed := uint64(time.Now().UnixNano())
		rng := rand.New(rand.NewPCG(seed, 2))
		b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(5, time.Second), Burst: 5, Overshoot: 0.5}, 0)
		l, _ := b.engines[b.names[0]].Lookup("api")
		for i := range 3 {
			l.Refund(context.Background(), fmt.Sprint("key-", i), 0) // from now on it is not solo
		}
		next := b.now + tick
		for range 500 {
			to := b.now + rng.Int64N(int64(100*time.Millisecond))
			for ; next <= to; next += tick {
				b.now = next - tick
				b.tick()
			}
			b.now = to
			if _, w := l.Begin(fmt.Sprint("key-", rng.IntN(3)), 1+rng.Int64N(4)); w != nil {
				t.Fatalf("round %d, seed %d: a request waits, and nobody will answer it", round, seed)
			}
		}
	}
}
