package hybrid

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/ring"
)

// A world runs engines in virtual time on a network that loses, doubles, delays and reorders, and cuts links. Everything
// in it follows from its seed.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	now   int64
	queue eventQueue
	seq   int
	nodes []*simNode
	cut   map[[2]int]bool
	loss  float64
	spec  Spec
	keys  []string
	meter map[string]*meter
	rings map[string]*ring.Ring
	grace int64

	incs       uint64
	offered    int
	waited     int
	messages   int
	slowest    int64
	sources    [Sources]int
	byKey      map[string]int
	hook       func(*Engine) // set on every engine that is made
	onDecision func(n *simNode, key string, d Decision)
}

type event struct {
	at  int64
	seq int
	do  func()
}
type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

const ms = int64(time.Millisecond)
const sec = int64(time.Second)

func (w *world) after(d int64, f func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + max(0, d), w.seq, f})
}

func (w *world) run(until int64) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		x := heap.Pop(&w.queue).(event)
		w.now = x.at
		x.do()
	}
	w.now = until
}

// uniform is a duration from 0 up to d.
func (w *world) uniform(d int64) int64 { return int64(w.rng.Float64() * float64(d)) }

// meter is the dumb exact twin: one bucket for the whole cluster. worst is its deepest deficit, in tokens.
type meter struct {
	perNs, burst float64
	level        float64 // used
	last         int64
	worst        float64
	n            int
	rule         bucket.Meter // another rule than a token bucket
}

// worldEpoch is the Unix time at which a world begins: a whole number of days.
const worldEpoch = int64(1699920000) * sec

func (m *meter) admit(now int64, cost int64) {
	if m.rule != nil {
		m.rule.Advance(worldEpoch+now, 1, 0)
		m.rule.Use(float64(cost), 0)
		m.worst = math.Max(m.worst, -m.rule.Free())
		m.n += int(cost)
		return
	}
	m.level = math.Max(0, m.level-float64(now-m.last)*m.perNs) + float64(cost)
	m.last = now
	m.worst = math.Max(m.worst, m.level-m.burst)
	m.n += int(cost)
}

// simNode is one member: its engine, and what it believes of the others.
type simNode struct {
	w             *world
	id            int
	name          string
	e             *Engine
	limit         *Limit
	alive, paused bool
	life          int // of the process: messages to an earlier one are lost
	skew          int64
	view          map[int]bool
	failed        map[int]int64 // own clock
	pending       []*pendingTake
	polling       bool
}

type pendingTake struct {
	key  string
	w    *Pending
	at   int64
	cost int64
}

func (n *simNode) clock() int64 { return n.w.now + n.skew }

func newWorld(t testing.TB, seed uint64, nodes, spare int, spec Spec, keys int) *world {
	if raceDetector {
		t.Skip("a world is one goroutine: there is nothing to race, and the detector makes it slow")
	}
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), cut: map[[2]int]bool{}, spec: spec, meter: map[string]*meter{}, rings: map[string]*ring.Ring{},
		grace: 20 * sec, byKey: map[string]int{}}
	for i := range keys {
		k := fmt.Sprintf("key-%d", i)
		w.keys = append(w.keys, k)
		w.meter[k] = &meter{perNs: float64(spec.Rate.Count) / float64(spec.Rate.Per), burst: float64(spec.Burst)}
		if spec.Rule != nil {
			alg, err := bucket.Compile(*spec.Rule)
			if err != nil {
				t.Fatal(err)
			}
			w.meter[k].rule = alg.New()
			w.meter[k].rule.Advance(worldEpoch, 1, 0)
		}
	}
	for i := range nodes + spare {
		w.nodes = append(w.nodes, &simNode{w: w, id: i, name: fmt.Sprintf("n%d", i), skew: sec + w.uniform(1000*sec)})
	}
	return w
}

// start begins the first nodes as a cluster that has been up for long.
func (w *world) start(nodes int) {
	for _, n := range w.nodes[:nodes] {
		n.boot()
		n.e.born, n.e.welcome = n.clock()-10*sec, n.e.inc
		for _, o := range w.nodes[:nodes] {
			n.view[o.id] = true
		}
		n.push()
		for _, p := range n.e.parts {
			if p.owned { // it is full from the start, not from when shares arrive
				p.told, p.fresh = false, true
				n.e.startFull(p, n.clock())
			}
		}
	}
	for _, n := range w.nodes {
		w.tickLoop(n)
	}
}

// boot begins a process.
func (n *simNode) boot() {
	w := n.w
	n.alive, n.paused, n.polling = true, false, false
	n.life++
	n.view, n.failed, n.pending = map[int]bool{n.id: true}, map[int]int64{}, nil
	n.e = New(Config{Node: n.name, Network: (*simNetwork)(n), Ring: ring.Config{Partitions: 5}, Grace: time.Duration(w.grace),
		Incarnation: func() uint64 { w.incs++; return w.incs }})
	n.e.clock = n.clock
	n.e.anchor.Store(worldEpoch - n.skew) // all wall clocks are right
	n.e.wallClock = nil
	n.e.spawn = func(f func()) { f() }
	n.e.born, n.e.lastTick = n.clock(), n.clock()
	if w.hook != nil {
		w.hook(n.e)
	}
	l, err := n.e.Define(w.spec)
	if err != nil {
		w.t.Fatal(err)
	}
	n.limit = l
}

// push tells the engine what the node sees.
func (n *simNode) push() {
	var v View
	for i := range n.view {
		v.Alive = append(v.Alive, n.w.nodes[i].name)
	}
	slices.Sort(v.Alive)
	for i, at := range n.failed {
		if !n.view[i] {
			v.Lost = append(v.Lost, Lost{Name: n.w.nodes[i].name, Since: at})
		}
	}
	slices.SortFunc(v.Lost, func(a, b Lost) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	id := fmt.Sprint(v.Alive)
	r := n.w.rings[id]
	if r == nil {
		var err error
		if r, err = ring.New(ring.Config{Partitions: 5}, v.Alive); err != nil {
			n.w.t.Fatal(err)
		}
		n.w.rings[id] = r
	}
	v.Ring = r
	n.e.SetView(n.clock(), v)
	n.settle()
}

type simNetwork simNode

func (s *simNetwork) Send(to string, msg []byte) error {
	n := (*simNode)(s)
	n.w.messages++
	for _, o := range n.w.nodes {
		if o.name == to {
			n.w.deliver(n, o, msg)
		}
	}
	return nil
}

func (s *simNetwork) Transfer(to string, msg []byte) error {
	n := (*simNode)(s)
	w := n.w
	for _, o := range w.nodes {
		if o.name != to {
			continue
		}
		if !o.alive || w.cut[[2]int{n.id, o.id}] || w.cut[[2]int{o.id, n.id}] {
			return errors.New("refused")
		}
		life := o.life
		w.arrive(ms+w.uniform(5*ms), n, o, life, func() { o.e.ReceiveTransfer(o.clock(), n.name, msg) })
	}
	return nil
}

// spoil overwrites a packet that was taken in, as the next one would: an engine that kept a part of it decides nonsense from here on.
func spoil(msg []byte) {
	for i := range msg {
		msg[i] = 0xa5
	}
}

// deliver loses, doubles and delays.
func (w *world) deliver(from, to *simNode, msg []byte) {
	if w.rng.Float64() < w.loss {
		return
	}
	copies := 1
	if w.loss > 0 && w.rng.Float64() < 0.05 {
		copies = 2
	}
	for ; copies > 0; copies-- {
		d := 200*int64(time.Microsecond) + w.uniform(ms)
		if w.loss > 0 && w.rng.Float64() < 0.02 {
			d += w.uniform(400 * ms)
		}
		mine := bytes.Clone(msg) // Send must not keep it, and it may come more than once
		w.arrive(d, from, to, to.life, func() {
			to.e.Receive(to.clock(), from.name, mine)
			spoil(mine)
		})
	}
}

// arrive runs f at the receiver, unless the link is cut or the process is another by then. A paused process reads
// its socket when it runs again.
func (w *world) arrive(d int64, from, to *simNode, life int, f func()) {
	w.after(d, func() {
		if w.cut[[2]int{from.id, to.id}] || !to.alive || to.life != life {
			return
		}
		var try func()
		try = func() {
			switch {
			case !to.alive || to.life != life:
			case to.paused:
				w.after(20*ms+w.uniform(50*ms), try)
			default:
				f()
				to.settle()
			}
		}
		try()
	})
}

func (w *world) tickLoop(n *simNode) {
	var f func()
	f = func() {
		if n.alive && !n.paused {
			n.e.Tick(n.clock(), 0)
			n.settle()
		}
		w.after(95*ms+w.uniform(10*ms), f)
	}
	w.after(w.uniform(100*ms), f)
}

// settle collects decisions that came, and polls while the engine wants it.
func (n *simNode) settle() {
	keep := n.pending[:0]
	for _, p := range n.pending {
		select {
		case d := <-p.w.done:
			n.w.slowest = max(n.w.slowest, n.w.now-p.at)
			n.done(p.key, p.cost, n.limit.count(n.limit.def.Load(), p.key, d)) // as Finish does
		default:
			keep = append(keep, p)
		}
	}
	n.pending = keep
	select {
	case <-n.e.kick:
		n.poll(0)
	default:
	}
}

func (n *simNode) poll(d int64) {
	if n.polling {
		return
	}
	n.polling = true
	e := n.e
	var f func()
	f = func() {
		switch {
		case n.e != e || !n.alive:
			return
		case n.paused:
			n.w.after(10*ms, f)
			return
		}
		n.polling = false
		if next := e.Poll(n.clock()); next > 0 {
			n.poll(next)
		}
		n.settle()
	}
	n.w.after(d, f)
}

func (n *simNode) take(key string, cost int64) {
	w := n.w
	if !n.alive || n.paused {
		return
	}
	w.offered++
	d, p := n.limit.start(n.limit.def.Load(), key, cost) // Begin, also for permits
	if p != nil {
		w.waited++
		n.pending = append(n.pending, &pendingTake{key, p, w.now, cost})
	} else {
		n.done(key, cost, d)
	}
	n.settle()
}

func (n *simNode) done(key string, cost int64, d Decision) {
	if d.Err != nil {
		n.w.t.Errorf("decision: %v", d.Err)
	}
	n.w.sources[d.Source]++
	if d.OK {
		n.w.meter[key].admit(n.w.now, cost)
		n.w.byKey[key]++
	}
	if n.w.onDecision != nil {
		n.w.onDecision(n, key, d)
	}
}

// load makes every node ask for keys at random moments, at the given total rate, while on() says so.
func (w *world) load(perSecond float64, nodes int, on func() bool) {
	mean := float64(sec) * float64(nodes) / perSecond
	for _, n := range w.nodes {
		var f func()
		f = func() {
			if on() {
				n.take(w.keys[w.rng.IntN(len(w.keys))], 1)
			}
			w.after(int64(w.rng.ExpFloat64()*mean), f)
		}
		w.after(int64(w.rng.ExpFloat64()*mean), f)
	}
}

// worst is the largest excess over all keys.
func (w *world) worst() (x float64) {
	for _, m := range w.meter {
		x = math.Max(x, m.worst)
	}
	return x
}

func testSpec(rate, burst int64) Spec {
	return Spec{Name: "api", Rate: bucket.Per(rate, time.Second), Burst: burst}
}
