package jatah_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// These tests run clusters of real nodes in virtual time, on a network in memory. Which goroutine of a bubble runs
// first is the scheduler's choice, so they assert invariants and never traces.

var (
	schedules = flag.Int("schedules", 12, "random fault schedules of the bubble tests")
	firstSeed = flag.Uint64("seed", 1, "first seed of the bubble tests")
)

// tolerance is for the oracle's own arithmetic, in tokens.
const tolerance = 1e-6

// bubble is a cluster, its load and its oracle.
type bubble struct {
	t     *testing.T
	net   *simnet.Network
	rng   *rand.Rand // of the test's goroutine
	seed  uint64
	begin time.Time
	limit jatah.Limit
	alg   *bucket.Algorithm // nil: one token bucket of the limit
	keys  []string
	hosts []*host
	tune  func(*jatah.Config) // nil: nothing to change

	on   atomic.Uint64 // requests per second and node offered now, as float bits, times each host's weight
	done atomic.Bool

	mu       sync.Mutex // guards what follows; never held while time passes
	meters   map[string]*meter
	offered  int
	slowest  time.Duration
	bySource map[jatah.Source]int
	problems []string
	notable  func(h *host, key string, d jatah.Decision) // nil: nobody looks
}

// host is a place for one node at a time.
type host struct {
	b      *bubble
	name   string
	addr   string
	life   atomic.Pointer[life]
	paused atomic.Bool
	weight float64 // of its load; 1: the same as others
}

// life is one process.
type life struct {
	node *jatah.Node
	lim  *jatah.Limiter
}

// meter is the exact and dumb twin of one key for the whole cluster: one bucket that admits
// all and notes its deepest deficit, in tokens.
type meter struct {
	perNs, burst float64
	used         float64
	last         time.Duration
	worst        float64
	admitted     int64
	rule         bucket.Meter // another rule than a token bucket; begun is the Unix time of the bubble's begin
	begun        int64
}

func (m *meter) admit(now time.Duration, cost int64) {
	if m.rule != nil {
		m.rule.Advance(m.begun+int64(now), 1, 0)
		m.rule.Use(float64(cost), 0)
		m.worst = math.Max(m.worst, -m.rule.Free())
		m.admitted += cost
		return
	}
	m.used = math.Max(0, m.used-float64(now-m.last)*m.perNs) + float64(cost)
	m.last = now
	m.worst = math.Max(m.worst, m.used-m.burst)
	m.admitted += cost
}

// inBubble runs f in virtual time with a network of the given seed, and ends all that it began.
func inBubble(t *testing.T, seed uint64, limit jatah.Limit, keys int, f func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, net: simnet.New(seed), rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, begin: time.Now(), limit: limit,
			meters: map[string]*meter{}, bySource: map[jatah.Source]int{}}
		if limit.Algorithm != jatah.Concurrency { // whose twin counts permits
			b.alg = ruleOf(t, limit)
		}
		if b.alg == nil && b.limit.Burst == 0 {
			b.limit.Burst = limit.Rate.Count
		}
		for i := range keys {
			b.keys = append(b.keys, fmt.Sprintf("key-%d", i))
		}
		t.Cleanup(func() {
			b.done.Store(true)
			b.net.Heal()
			for _, h := range b.hosts {
				h.crash()
			}
			time.Sleep(2 * time.Minute) // memberlist's probes and dials outlast their owner
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, p := range b.problems {
				t.Errorf("seed %d: %s", seed, p)
			}
		})
		b.weather(fine)
		f(b)
	})
}

// fine is a local network at rest.
var fine = simnet.Conditions{DelayMin: 200 * time.Microsecond, DelayMax: 700 * time.Microsecond}

func (b *bubble) weather(c simnet.Conditions) {
	b.t.Helper()
	if err := b.net.Set(c); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bubble) now() time.Duration { return time.Since(b.begin) }

// problem notes a failure from any goroutine; a few are enough.
func (b *bubble) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) < 5 {
		b.problems = append(b.problems, fmt.Sprintf("after %v: ", b.now())+fmt.Sprintf(format, args...))
	}
}

// add makes n more hosts, without nodes.
func (b *bubble) add(n int) {
	for range n {
		i := len(b.hosts)
		b.hosts = append(b.hosts, &host{b: b, name: fmt.Sprintf("n%d", i+1), addr: fmt.Sprintf("10.0.%d.%d:7946", i/250, i%250+1), weight: 1})
	}
}

// start makes n hosts with a node on each, and returns when each of them counts all.
func (b *bubble) start(n int) {
	b.t.Helper()
	b.add(n)
	for _, h := range b.hosts[:n] {
		h.open()
	}
	for _, h := range b.hosts[:n] {
		if err := h.node().Wait(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	b.together(30*time.Second, n)
	time.Sleep(3 * time.Second) // every share is lent by now
}

// open starts a process on the host that may not be ready yet.
func (h *host) open() *life {
	h.b.t.Helper()
	l, err := h.try()
	if err != nil {
		h.b.t.Fatal(err)
	}
	return l
}

func (h *host) try() (*life, error) {
	b := h.b
	tr, err := b.net.Transport(h.addr)
	if err != nil {
		return nil, err
	}
	cfg := jatah.Config{Node: h.name, Transport: tr, Grace: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	for _, s := range b.hosts[:min(2, len(b.hosts))] { // a limit is divided among at least as many
		cfg.Join = append(cfg.Join, s.addr)
	}
	if b.tune != nil {
		b.tune(&cfg)
	}
	l := &life{}
	if l.node, err = jatah.Open(b.t.Context(), cfg); err != nil {
		return nil, err
	}
	if l.lim, err = l.node.Limit(b.limit); err != nil {
		return nil, err
	}
	h.paused.Store(false)
	h.life.Store(l)
	return l, nil
}

func (h *host) node() *jatah.Node { return h.life.Load().node }

// crash ends the process as kill -9 does.
func (h *host) crash() {
	l := h.life.Swap(nil)
	if l == nil {
		return
	}
	h.b.net.Crash(h.addr)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	go l.node.Shutdown(ctx) // only to end its goroutines: nobody hears it
}

// leave ends the process in good order.
func (h *host) leave() {
	l := h.life.Load()
	if l == nil {
		return
	}
	_ = l.node.Close() // an error says that somebody may not have heard of it, as is to be expected under faults
	h.life.CompareAndSwap(l, nil)
}

func (h *host) pause()  { h.paused.Store(true); h.b.net.Pause(h.addr) }
func (h *host) resume() { h.b.net.Resume(h.addr); h.paused.Store(false) }

// up lists the hosts with a process.
func (b *bubble) up() []*host {
	var up []*host
	for _, h := range b.hosts {
		if h.life.Load() != nil {
			up = append(up, h)
		}
	}
	return up
}

// alive is the number of members that the host's node sees alive.
func (h *host) alive() (n int) {
	for _, m := range h.node().Info().Members {
		if m.State == jatah.Alive {
			n++
		}
	}
	return n
}

// within waits in virtual time until ok, and gives how long it took.
func (b *bubble) within(limit time.Duration, what string, ok func() bool) time.Duration {
	b.t.Helper()
	begin := b.now()
	for !ok() {
		if b.now()-begin > limit {
			b.t.Fatalf("seed %d: after %v: not yet: %s", b.seed, limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return b.now() - begin
}

// together waits until every node sees n members, and divides limits among as many.
func (b *bubble) together(limit time.Duration, n int) time.Duration {
	b.t.Helper()
	return b.within(limit, fmt.Sprintf("%d members that see each other and have equal shares", n), func() bool {
		for _, h := range b.up() {
			if i := h.node().Info(); i.K != n || !i.Ready || h.alive() != n {
				return false
			}
		}
		return true
	})
}

// owner is the host whose node owns the key.
func (b *bubble) owner(key string) *host {
	b.t.Helper()
	for range 100 {
		if h := b.find(key); h != nil {
			return h
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatalf("seed %d: nobody owns %s", b.seed, key)
	return nil
}

// find is the host that owns the key, as far as the first host that can tell knows. Nil: its node is gone and
// not yet found dead.
func (b *bubble) find(key string) *host {
	for _, h := range b.up() {
		st, _ := h.life.Load().lim.Peek(b.t.Context(), key) // an owner that does not answer has a name all the same
		if i := slices.IndexFunc(b.hosts, func(h *host) bool { return h.name == st.Owner && h.life.Load() != nil }); i >= 0 {
			return b.hosts[i]
		}
	}
	return nil
}

// others lists the hosts that are up but for one.
func (b *bubble) others(not *host) []*host {
	return slices.DeleteFunc(b.up(), func(h *host) bool { return h == not })
}

// take asks for cost tokens at one host, waits for the decision and tells the oracle.
func (h *host) take(key string, cost int64) (d jatah.Decision) {
	b, l := h.b, h.life.Load()
	if l == nil || h.paused.Load() {
		return d
	}
	begin := b.now()
	d = l.lim.Take(context.Background(), key, cost)
	b.decided(h, l, key, cost, d, b.now()-begin)
	return d
}

func (b *bubble) decided(h *host, l *life, key string, cost int64, d jatah.Decision, took time.Duration) {
	if h.life.Load() != l {
		return // the process is gone: nobody gets this answer
	}
	switch {
	case errors.Is(d.Err, jatah.ErrClosed): // it left in this very moment
		return
	case d.Err != nil:
		b.problem("%s: decision: %v", h.name, d.Err)
	case d.RetryAfter < 0 || d.ResetAfter < 0 || d.Remaining < 0 || d.Remaining > b.most() || d.OK && d.RetryAfter != 0 || !d.OK && d.RetryAfter == 0:
		b.problem("%s: impossible decision %+v", h.name, d)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offered++
	b.bySource[d.Source]++
	b.slowest = max(b.slowest, took)
	if d.OK && cost > 0 {
		b.meter(key).admit(b.now(), cost)
	}
	if b.notable != nil {
		b.notable(h, key, d)
	}
}

func (b *bubble) meter(key string) *meter {
	m := b.meters[key]
	if m == nil {
		m = &meter{perNs: float64(b.limit.Rate.Count) / float64(b.limit.Rate.Per), burst: float64(b.limit.Burst), last: b.now()}
		if b.alg != nil {
			m.rule, m.begun = b.alg.New(), b.begin.UnixNano()
			m.rule.Advance(m.begun+int64(b.now()), 1, 0)
		}
		b.meters[key] = m
	}
	return m
}

// most is the largest cost that can pass.
func (b *bubble) most() int64 {
	if b.alg != nil {
		return b.alg.Limit()
	}
	return b.limit.Burst
}

// admitted is what was let through for a key so far.
func (b *bubble) admitted(key string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.meter(key).admitted
}

// excess is the worst that the oracle saw, over all keys.
func (b *bubble) excess() (x float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.meters {
		x = max(x, m.worst)
	}
	return x
}

// offer makes the load generators offer so many requests per second in all; 0: quiet.
func (b *bubble) offer(perSecond float64) { b.on.Store(math.Float64bits(perSecond)) }

// generate begins a load generator for each host: at random moments, at any key.
func (b *bubble) generate() {
	var sum float64
	for _, h := range b.hosts {
		sum += h.weight
	}
	for i, h := range b.hosts {
		rng := rand.New(rand.NewPCG(b.seed, uint64(1000+i)))
		go func() {
			for !b.done.Load() {
				rate := math.Float64frombits(b.on.Load()) * h.weight / sum
				if rate == 0 {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / rate))
				if math.Float64frombits(b.on.Load()) > 0 {
					go h.take(b.keys[rng.IntN(len(b.keys))], 1)
				}
			}
		}()
	}
}

// rest checks that a cluster that was left alone for a few seconds has forgotten its troubles: its keys are full, or where
// debts may have to be repaid not empty, on every node's word, and what the limit allows passes. The weather is fine: that a packet which is
// 400 ms late costs a refusal is not what is asked here.
func (b *bubble) rest() {
	b.t.Helper()
	b.offer(0)
	b.weather(fine)
	time.Sleep(6 * time.Second)
	least := b.most()
	if b.limit.Fallback != jatah.FallbackWait || b.limit.Mode == jatah.Split {
		least = 1
	}
	for _, key := range b.keys {
		for _, h := range b.up() {
			st, err := h.life.Load().lim.Peek(b.t.Context(), key)
			if err != nil || st.Remaining < least {
				b.problem("%s peeks at %s after 6 s of quiet: %+v, %v; want at least %d tokens", h.name, key, st, err, least)
			}
		}
		h := b.up()[b.rng.IntN(len(b.up()))]
		if d := h.take(key, 1); !d.OK {
			b.problem("%s refuses a request for %s after 6 s of quiet: %+v", h.name, key, d)
		}
	}
}
