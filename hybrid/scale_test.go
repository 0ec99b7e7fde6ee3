package hybrid

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/ring"
)

// bare is engines that have settled, on a network that counts and delivers only when told to.
type bare struct {
	engines map[string]*Engine
	names   []string
	now     int64
	queue   []letter
	drop    bool
	sent    int
	bytes   int
}

type letter struct {
	from, to string
	msg      []byte
}

type bareNetwork struct {
	b    *bare
	from string
}

func (n bareNetwork) Send(to string, msg []byte) error {
	n.b.sent++
	n.b.bytes += len(msg)
	if !n.b.drop {
		n.b.queue = append(n.b.queue, letter{n.from, to, bytes.Clone(msg)})
	}
	return nil
}

func (n bareNetwork) Transfer(string, []byte) error { return nil }

// newBare starts the nodes on the default ring; keys is the most that each keeps.
func newBare(t testing.TB, nodes int, spec Spec, keys int) *bare {
	b := &bare{engines: map[string]*Engine{}, now: 1}
	for i := range nodes {
		b.names = append(b.names, fmt.Sprintf("node-%02d", i))
	}
	cfg := Config{MaxKeys: keys, Settle: time.Millisecond}
	r, err := ring.New(cfg.Ring, b.names)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range b.names {
		cfg.Node, cfg.Network = name, bareNetwork{b, name}
		inc := uint64(i) + 1<<63 // of the size that random ones have
		cfg.Incarnation = func() uint64 { return inc }
		e := New(cfg)
		e.clock = func() int64 { return b.now }
		e.born, e.lastTick = b.now, b.now
		e.SetView(b.now, View{Alive: b.names, Ring: r})
		if _, err := e.Define(spec); err != nil {
			t.Fatal(err)
		}
		b.engines[name] = e
	}
	for range 2 { // meet, and lend
		b.tick()
	}
	return b
}

// tick is one sync interval: everybody ticks, and all messages arrive.
func (b *bare) tick() {
	b.now += tick
	for _, n := range b.names {
		b.engines[n].Tick(b.now, 0)
	}
	b.flush()
}

func (b *bare) flush() {
	for len(b.queue) > 0 {
		q := b.queue
		b.queue = nil
		for _, l := range q {
			b.engines[l.to].Receive(b.now, l.from, l.msg)
			spoil(l.msg)
		}
	}
}

func (b *bare) take(e *Engine, key string) Decision {
	l, _ := e.Lookup("api")
	d, p := l.Begin(key, 1)
	if p == nil {
		return d
	}
	b.flush()
	return <-p.done
}

// TestMessagesAtRest: a node at rest sends one packet per tick to each other member, and nothing else.
func TestMessagesAtRest(t *testing.T) {
	for _, nodes := range []int{3, 10, 100} {
		if nodes > 10 && testing.Short() {
			continue
		}
		b := newBare(t, nodes, testSpec(100, 100), 0)
		b.sent, b.bytes = 0, 0
		const ticks = 1
		for range ticks {
			b.tick()
		}
		perSecond := b.sent * int(time.Second) / (ticks * int(tick)) / nodes
		t.Logf("%d nodes: each sends %d messages a second, %d bytes each", nodes, perSecond, b.bytes/b.sent)
		if b.sent != nodes*(nodes-1)*ticks {
			t.Errorf("%d nodes sent %d messages, one per pair, direction and tick are %d", nodes, b.sent, nodes*(nodes-1)*ticks)
		}
	}
}

// TestNoAllocationOnCreditAndOnDenial: the two decisions that are made in local memory allocate nothing.
func TestNoAllocationOnCreditAndOnDenial(t *testing.T) {
	b := newBare(t, 3, Spec{Name: "api", Rate: bucket.Per(1, 10*time.Hour), Burst: 3000}, 0)
	for range 30 { // until it is known that nobody has anything to tell of these keys
		b.tick()
	}
	var far string // a key of another node
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	for i := 0; far == ""; i++ {
		if k := fmt.Sprint("key-", i); e.ownerOf(e.partOf(e.hash(l, k))) != e.self {
			far = k
		}
	}
	b.take(e, far)
	a, _ := l.lookup(far)
	if a.left() < 150 {
		t.Fatalf("only %d of credit", a.left())
	}
	ctx := context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if d := l.Take(ctx, far, 1); !d.OK || d.Source != SourceLocal {
			t.Fatalf("not on credit: %+v", d)
		}
	}); n != 0 {
		t.Errorf("a take on credit allocates %v times", n)
	}
	e.sync(b.now, l, far, 0, 10_000)
	b.flush()
	b.take(e, far)
	if n := testing.AllocsPerRun(1000, func() {
		if d := l.Take(ctx, far, 1); d.OK || d.Source != SourceLocal || d.RetryAfter < time.Hour {
			t.Fatalf("not refused in memory: %+v", d)
		}
	}); n != 0 {
		t.Errorf("a take on a standing denial allocates %v times", n)
	}
}

// BenchmarkTickIdle is one tick of a node that keeps a million accounts, of keys that nobody uses at present.
func BenchmarkTickIdle(b *testing.B) {
	const keys = 1_000_000
	w := newBare(b, 3, slow(30), 2*keys)
	w.drop = true
	e := w.engines[w.names[0]]
	l, _ := e.Lookup("api")
	for i := range keys {
		a, err := e.account(l, fmt.Sprint("key-", i))
		if err != nil {
			b.Fatal(err)
		}
		a.idleAt = w.now
		a.refusal.Store(&refusal{at: w.now}) // denied, so that it is kept
	}
	for b.Loop() {
		w.now += tick / 1000 // time stands almost still: what is swept is not what is measured
		e.Tick(w.now, 0)
	}
	if e.accounts.n != keys {
		b.Fatalf("%d accounts are left", e.accounts.n)
	}
}

// BenchmarkTickActive is one tick in which each of 10 000 keys was used: the lender's tick, and the owner's work with the
// reports it sends.
func BenchmarkTickActive(b *testing.B) {
	const keys = 10_000
	for _, side := range []string{"lender", "owner"} {
		b.Run(side, func(b *testing.B) {
			w := newBare(b, 2, testSpec(1_000_000, 1_000_000), 4*keys)
			for range 30 { // as in the test above
				w.tick()
			}
			lender, owner := w.engines[w.names[0]], w.engines[w.names[1]]
			l, _ := lender.Lookup("api")
			var accounts []*account
			for i := 0; len(accounts) < keys; i++ {
				k := fmt.Sprintf("user:%07d", i) // 12 bytes
				if lender.ownerOf(lender.partOf(lender.hash(l, k))) == lender.self {
					continue
				}
				w.take(lender, k)
				a, _ := l.lookup(k)
				accounts = append(accounts, a)
			}
			w.tick()
			var up, down, ticks int
			b.ResetTimer()
			b.StopTimer()
			for range b.N { // Loop wants its timer running
				for _, a := range accounts {
					if _, ok := a.spend(1); !ok {
						b.Fatal("no credit")
					}
				}
				w.now += tick
				before := w.bytes
				if side == "lender" {
					b.StartTimer()
				}
				lender.Tick(w.now, 0)
				b.StopTimer()
				up += w.bytes - before
				q := w.queue
				w.queue, before = nil, w.bytes
				if side == "owner" {
					b.StartTimer()
				}
				for _, m := range q {
					owner.Receive(w.now, m.from, m.msg)
				}
				b.StopTimer()
				down += w.bytes - before
				w.flush()
				owner.Tick(w.now, 0)
				w.flush()
				ticks++
			}
			b.ReportMetric(float64(b.Elapsed())/float64(ticks*keys), "ns/key")
			b.ReportMetric(float64(up)/float64(ticks*keys), "report-B/key")
			b.ReportMetric(float64(down)/float64(ticks*keys), "grant-B/key")
		})
	}
}

// BenchmarkTickAtRest is one tick of a cluster in which nobody takes anything: what members cost each other by being there. ns/packet is writing, reading and taking in
// one of them, with its part of the ticks of both sides.
func BenchmarkTickAtRest(b *testing.B) {
	for _, nodes := range []int{3, 10, 30, 100, 300} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			w := newBare(b, nodes, testSpec(100, 100), 0)
			for range 10 { // until all is lent, and heirs are known
				w.tick()
			}
			w.sent, w.bytes = 0, 0
			for b.Loop() {
				w.tick()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(w.sent), "ns/packet")
			b.ReportMetric(float64(w.bytes)/float64(w.sent), "B/packet")
			b.ReportMetric(float64(w.sent)/float64(b.N)/float64(nodes), "packets/node")
		})
	}
}
