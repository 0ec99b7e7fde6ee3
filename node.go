package jatah

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/hybrid"
	"github.com/jatah-io/jatah/ring"
)

// Node is one member of a cluster, or a node alone. Make it with Start. Safe for any number of goroutines.
type Node struct {
	cfg     Config
	e       *hybrid.Engine
	c       *cluster.Cluster // nil: alone
	joined  chan struct{}    // closed when c is set
	ready   atomic.Bool
	leaving atomic.Bool
	down    atomic.Pointer[error]
	downed  chan struct{} // closed when down is set
	state   *state        // nil: nothing is kept
	close   sync.Once
	err     error

	defining sync.Mutex // one definition or removal at a time, so that a limiter fits its limit
	limiters *xsync.Map[string, *Limiter]
	topics   topics
	exams    exams
	began    time.Time
	events   eventLog
	watch    *watcher
	own      map[string]bool // the limits that Limit and SetLimits defined
	pub      *published
}

// Start makes a node and joins its cluster. It returns when the node is ready to decide: its share of every limit is
// its own once the others had Config.Settle to hear of it. ctx bounds the start only. Errors: ErrConfig, ErrNameTaken, ErrMismatch,
// ErrSecret, what the network says about Bind, or the context's.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	n, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := n.Wait(ctx); err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

// Open is Start without the wait: the node is a member, but may have no share yet. See Ready and Wait.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, joined: make(chan struct{}), downed: make(chan struct{}), limiters: xsync.NewMap[string, *Limiter](), own: map[string]bool{},
		topics: newTopics(), began: time.Now()}
	n.topics.set(topTopic, n.answerTop)
	n.topics.set(doctorTopic, n.answerDoctor)
	n.topics.set(statsTopic, n.answerStats)
	n.watch = newWatcher(&n.events)
	n.Note(Event{Kind: EventStarted, Node: cfg.Node, Text: cfg.Node + " started"})
	n.pub = newPublished(n)
	if cfg.alone() {
		if err := n.openEngine(nil, cluster.Config{}.Ring, 0); err != nil {
			return nil, err
		}
		n.runState()
		n.e.Run()
		n.ready.Store(true)
		go n.watch.run(n)
		return n, nil
	}
	cc := cfg.cluster()
	cc.Register = n.pub.reg
	n.c, err = cluster.Start(ctx, cc, cluster.Events{
		// Not before, as where a key belongs depends on the cluster that was found.
		Ring:     func(r ring.Config) error { return n.openEngine(network{n}, r, smallMessage) },
		View:     n.setView,
		Packet:   func(from string, msg []byte) { n.e.Receive(n.e.Now(), from, msg) },
		Transfer: func(from string, msg []byte) { n.e.ReceiveTransfer(n.e.Now(), from, msg) },
		Call:     n.answerCall,
		Down: func(err error) {
			n.down.Store(&err)
			close(n.downed)
		},
	})
	if err != nil {
		n.abandonState()
		return nil, err
	}
	n.runState()
	n.e.Fit(n.c.MaxMessage())
	close(n.joined)
	n.setView(n.c.View())
	n.e.Run()
	go n.watch.run(n)
	return n, nil
}

// openEngine makes the engine and gives it what the node knows already: what was kept, and what others have published.
func (n *Node) openEngine(net hybrid.Network, r ring.Config, maxMessage int) error {
	e := hybrid.New(n.cfg.hybrid(net, r, maxMessage))
	n.defining.Lock()
	n.e = e
	n.defining.Unlock()
	return n.openState()
}

// network carries the engine's messages over the cluster. The engine may have something to say before Start has
// returned the cluster; that is lost, as any message may be.
type network struct{ n *Node }

var errNotJoined = errors.New("jatah: not joined yet")

func (w network) cluster() *cluster.Cluster {
	select {
	case <-w.n.joined:
		return w.n.c
	default:
		return nil
	}
}

func (w network) Send(to string, msg []byte) error {
	if c := w.cluster(); c != nil {
		return c.Send(to, msg)
	}
	return errNotJoined
}

// transferTimeout bounds one attempt of a hand-off; the engine tries again.
const transferTimeout = 2 * time.Second

func (w network) Transfer(to string, msg []byte) error {
	c := w.cluster()
	if c == nil {
		return errNotJoined
	}
	ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
	defer cancel()
	return c.Transfer(ctx, to, msg)
}

func (n *Node) setView(v *cluster.View) {
	hv := hybrid.View{Ring: v.Ring, Expect: v.Expect, Unsure: v.Unsure, Settle: v.Settle, Grace: grace(v.Grace)}
	for _, m := range v.Members {
		hv.Alive = append(hv.Alive, m.Name)
	}
	now := n.e.Now()
	for _, l := range v.Lost {
		hv.Lost = append(hv.Lost, hybrid.Lost{Name: l.Name, Left: l.Left, Since: now - int64(time.Since(l.Since))})
	}
	n.e.SetView(now, hv)
	n.watch.view(v, time.Now())
}

// Name is the node's name.
func (n *Node) Name() string { return n.cfg.Node }

// Addr is the address of the cluster's traffic; empty where the node is alone.
func (n *Node) Addr() string {
	if n.c == nil {
		return ""
	}
	return n.c.Addr().String()
}

// Ready is nil when the node can decide, or says why it cannot.
func (n *Node) Ready() error {
	switch down := n.down.Load(); {
	case down != nil:
		return fmt.Errorf("%w: %w", ErrNotReady, *down)
	case n.leaving.Load():
		return fmt.Errorf("%w: leaving the cluster", ErrNotReady)
	case !n.ready.Load() && !n.settled():
		if n.c.View().Unsure {
			return fmt.Errorf("%w: no seed has answered yet; start the other nodes, or correct Config.Join (cluster.join). Without an answer this node goes on alone: in a few seconds where every seed refuses the connection, otherwise after Config.Grace", ErrNotReady)
		}
		return fmt.Errorf("%w: settling; the other nodes have %v to hear of this one", ErrNotReady, n.e.Settling().Round(10*time.Millisecond))
	}
	return nil
}

func (n *Node) settled() bool {
	if n.e.Settling() > 0 {
		return false
	}
	n.ready.Store(true)
	return true
}

// Wait returns when the node is ready, or with the context's error.
func (n *Node) Wait(ctx context.Context) error {
	for !n.ready.Load() && !n.settled() {
		t := time.NewTimer(n.e.Settling())
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: still settling: %w", ErrNotReady, ctx.Err())
		case <-t.C:
		}
	}
	return nil
}

// Limit defines a limit, or changes the one of the same name while it is in use: what was used stays used. Only a change to or from
// mode split starts keys anew, since a share of one's own knows nothing of a pool: it may let one burst through once more. The
// error wraps ErrLimit. A Parent must be defined on this node already. It takes the place of a published limit of the name, see Publish, on this node.
func (n *Node) Limit(l Limit) (*Limiter, error) {
	s, err := l.spec()
	if err != nil {
		return nil, err
	}
	n.defining.Lock()
	defer n.defining.Unlock()
	if n.mustMakeWay(&s) {
		if errs := n.e.CheckAll([]hybrid.Spec{s}, []string{s.Name}); errs != nil {
			return nil, errs[0]
		}
		n.makeWay(s.Name)
	}
	x, err := n.define(s, l.Costs)
	n.adopt(s.Name)
	return x, err
}

// define is the second half of Limit. Called with the lock defining held.
func (n *Node) define(s hybrid.Spec, routes map[string]int64) (*Limiter, error) {
	h, err := n.e.Define(s)
	if err != nil {
		return nil, err
	}
	x, ok := n.limiters.Load(s.Name)
	if !ok {
		x = newLimiter(h, n.e.Now, n.cfg.slackOf())
		x.shut.Store(n.leaving.Load())
	}
	costs := newCostTable(routes)
	x.each(func(x *Limiter) { x.costs.Store(costs) })
	if !ok {
		n.limiters.Store(s.Name, x)
	}
	x.each((*Limiter).redefined)
	n.own[s.Name] = true
	return x, nil
}

// Lookup finds a limit by name.
func (n *Node) Lookup(name string) (*Limiter, bool) {
	return n.limiters.Load(name)
}

// Limits lists the definitions, sorted by name.
func (n *Node) Limits() []Limit {
	var ls []Limit
	for _, s := range n.e.Specs() {
		d := limitOf(s)
		if l, ok := n.limiters.Load(s.Name); ok {
			d.Costs = l.costs.Load().costs
		}
		ls = append(ls, d)
	}
	slices.SortFunc(ls, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return ls
}

// RemoveLimit forgets a limit that Limit or SetLimits defined and all its keys; it says whether there was one. If one of the name is published
// that takes its place, and what was used stays used. Otherwise requests through handles on it are refused from then on,
// also those that wait, and so are takes of limits that have it as Parent, with ErrParent, until it is defined again.
func (n *Node) RemoveLimit(name string) bool {
	n.defining.Lock()
	defer n.defining.Unlock()
	return n.release(name)
}

// release is RemoveLimit for one of several. Called with the lock defining held.
func (n *Node) release(name string) bool {
	if !n.own[name] {
		return false
	}
	delete(n.own, name)
	if n.adopt(name); n.pub.used[name] == nil {
		n.remove(name)
	}
	return true
}

// remove forgets a limit, whoever defined it. Called with the lock defining held.
func (n *Node) remove(name string) bool {
	ok := n.e.Remove(name)
	delete(n.own, name)
	if l, had := n.limiters.LoadAndDelete(name); had {
		l.each((*Limiter).shutdown)
	}
	return ok
}

// Forget drops a member that failed, on every node, so that its share need not stay reserved for Config.Grace. Do it
// only when the member is gone for good: one that still runs behind a partition goes on using its share. Its address in Config.Join
// does not count any more either. Errors: ErrAlive, ErrUnknownNode.
func (n *Node) Forget(_ context.Context, name string) error {
	if name == n.cfg.Node {
		return fmt.Errorf("%w: %q is this node", ErrAlive, name)
	}
	if n.c == nil {
		return fmt.Errorf("%w: %q; this node is alone", ErrUnknownNode, name)
	}
	v := n.c.View()
	if _, alive := v.Member(name); alive {
		return fmt.Errorf("%w: %q; stop it first", ErrAlive, name)
	}
	if !slices.ContainsFunc(v.Lost, func(l cluster.Lost) bool { return l.Name == name }) {
		return fmt.Errorf("%w: %q", ErrUnknownNode, name)
	}
	return n.c.Forget(name)
}

// leaveTimeout bounds Close: the hand-off and the announcement.
const leaveTimeout = 5 * time.Second

// Close hands over what the node owns, leaves the cluster and ends. It takes at most about five seconds. Safe to call twice.
func (n *Node) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	return n.Shutdown(ctx)
}

// Shutdown is Close with a deadline: what is not handed over when ctx ends is lost, unless Config.StateDir keeps it.
func (n *Node) Shutdown(ctx context.Context) error {
	n.close.Do(func() {
		n.watch.stop()
		n.endWaits()
		if n.c != nil {
			n.err = n.leave(ctx)
		}
		n.e.Close()
		if n.state != nil {
			n.err = errors.Join(n.err, n.state.end())
		}
	})
	return n.err
}

// endWaits tells all who wait that the node is going. It takes nobody else in.
func (n *Node) endWaits() {
	n.defining.Lock()
	defer n.defining.Unlock()
	n.leaving.Store(true)
	n.limiters.Range(func(_ string, l *Limiter) bool {
		l.each((*Limiter).shutdown)
		return true
	})
}

func (n *Node) leave(ctx context.Context) error {
	if err := n.e.Leave(n.e.Now()); err != nil {
		n.cfg.Logger.Warn("nothing is handed over", "err", err)
	}
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for n.e.Handing() > 0 {
		select {
		case <-ctx.Done():
			n.cfg.Logger.Warn("left before every hand-off was acknowledged", "missing", n.e.Handing())
			n.e.Retire()
			return errors.Join(n.c.Leave(ctx), n.c.Close())
		case <-t.C:
		}
	}
	n.e.Retire()
	return errors.Join(n.c.Leave(ctx), n.c.Close())
}

// smallMessage fits in any packet size; it is used until the cluster has said what fits.
const smallMessage = 600
