package hybrid

import (
	"container/heap"
	"math"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// Scenarios are told on a cluster that has been up for long, in virtual time, on a network that delays by 0.2 to 1.2 ms and
// does nothing else unless told so. What they assert does not depend on the delays.

const (
	tick      = 100 * ms
	roundTrip = 3 * ms
)

// cluster is n nodes that have lent each other their shares.
func quiet(t testing.TB, n, spare int, spec Spec) *world {
	w := newWorld(t, *firstSeed, n, spare, spec, 1)
	w.start(n)
	w.sleep(sec)
	return w
}

// slow is a limit that gains next to nothing in a test, so that balances are exact.
func slow(burst int64) Spec {
	return Spec{Name: "api", Rate: bucket.Per(1, 100*24*time.Hour), Burst: burst}
}

func (w *world) sleep(d int64) { w.run(w.now + d) }

// rest lasts until idle credit has come back.
func (w *world) rest() { w.sleep((idleTicks + 10) * tick) }

// step lets the next event happen.
func (w *world) step() {
	x := heap.Pop(&w.queue).(event)
	w.now = x.at
	x.do()
}

// ask takes and waits for the decision.
func (n *simNode) ask(key string, cost int64) Decision {
	d, p := n.limit.Begin(key, cost)
	n.settle()
	if p != nil {
		d = n.w.await(p)
	}
	if m := n.w.meter[key]; m != nil && d.OK && d.Err == nil {
		m.admit(n.w.now, cost)
	}
	return d
}

// await runs the world until a request is decided.
func (w *world) await(p *Pending) Decision {
	for end := w.now + sec; w.now < end; w.step() {
		select {
		case d := <-p.done:
			return d
		default:
		}
	}
	w.t.Helper()
	w.t.Fatal("a request was not decided within a second")
	return Decision{}
}

// takes asks one by one until the first refusal, at most most times, and returns how many passed.
func (n *simNode) takes(key string, most int) (ok int) {
	for ok < most && n.ask(key, 1).OK {
		ok++
	}
	return ok
}

// adjust refunds and charges as Limit.Refund and Limit.Charge do, without waiting for wall time.
func (n *simNode) adjust(key string, refund, charge int64) Decision {
	n.w.t.Helper()
	a, p, err := n.e.sync(n.clock(), n.limit, key, refund, charge)
	n.settle()
	switch {
	case err != nil:
		n.w.t.Fatal(err)
	case p == nil:
		return a.decision(true, SourceShare, n.clock())
	}
	return n.w.await(p)
}

func (n *simNode) refund(key string, tokens int64) Decision { return n.adjust(key, tokens, 0) }
func (n *simNode) charge(key string, tokens int64) Decision { return n.adjust(key, 0, tokens) }

// owner is who owns a key in the first living node's view.
func (w *world) owner(key string) *simNode {
	for _, n := range w.nodes {
		if n.alive {
			return w.named(n.e.ownerOf(n.e.partOf(n.e.hash(n.limit, key))).name)
		}
	}
	return nil
}

func (w *world) named(name string) *simNode {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	w.t.Fatalf("no node %q", name)
	return nil
}

// others are the living nodes that do not own the key.
func (w *world) others(key string) (ns []*simNode) {
	o := w.owner(key)
	for _, n := range w.nodes {
		if n.alive && n != o {
			ns = append(ns, n)
		}
	}
	return ns
}

// balance is what the key's pool holds at its owner, and what is out as credit.
func (w *world) balance(key string) (pool, out float64) {
	n := w.owner(key)
	return n.balance(key)
}

func (n *simNode) balance(key string) (pool, out float64) {
	now := n.clock()
	hash := n.e.hash(n.limit, key)
	p := n.e.parts[n.e.partOf(hash)]
	if !p.owned {
		return math.NaN(), math.NaN()
	}
	n.e.settleShares(p, now)
	x := n.e.peekLedger(p, n.limit, key, hash, now)
	return p.level(x, now), x.outstanding()
}

// isolate cuts a node off from all others, both ways, without anybody being told.
func (w *world) isolate(n *simNode) {
	for _, o := range w.nodes {
		if o != n {
			w.cut[[2]int{n.id, o.id}] = true
			w.cut[[2]int{o.id, n.id}] = true
		}
	}
}

func (w *world) heal() { clear(w.cut) }

// define changes the limit on every living node, each at the same time.
func (w *world) define(s Spec) {
	w.spec = s
	for _, n := range w.nodes {
		if n.alive {
			n.define(s)
		}
	}
}

func (n *simNode) define(s Spec) {
	if _, err := n.e.Define(s); err != nil {
		n.w.t.Fatal(err)
	}
	n.settle()
}

// credit is what the node holds of a key.
func (n *simNode) credit(key string) int64 {
	if a, ok := n.limit.lookup(key); ok {
		return a.left()
	}
	return 0
}

func (n *simNode) asks() uint64 { return n.e.stats.asks.Load() }

// near says that a balance is what it should be, within what the slow rate gains in minutes.
func near(got, want float64) bool { return math.Abs(got-want) < 1e-3 }

// lookup is the account of a key.
func (l *Limit) lookup(key string) (*account, bool) {
	a := l.e.accountOf(l, key)
	return a, a != nil
}
