package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
	"github.com/jatah-io/jatah/internal/netlab"
)

// breaker does the steps. Its methods return broken promises and what keeps it from going on.
type breaker struct {
	c     *cluster
	load  *load
	watch *watch
	mu    sync.Mutex
	stops []time.Duration // how long each node took to end after SIGTERM
	note  func(format string, a ...any)
}

// do does a step, and returns when the fault is over; the cluster may still have to recover.
func (b *breaker) do(ctx context.Context, s Step) error {
	victims := make([]*node, len(s.Nodes))
	for i, n := range s.Nodes {
		victims[i] = b.c.nodes[n]
	}
	switch s.Kind {
	case Kill:
		return b.kill(ctx, victims[0], s.For)
	case Pause:
		return b.pause(ctx, victims[0], s.For)
	case Isolate, OneWay, Halves, Corner, Loss:
		return b.cut(ctx, s.For, b.drops(s))
	case Restart:
		return b.restart(ctx, victims[0])
	case Rolling:
		return b.rolling(ctx)
	case Blackout:
		return b.blackout(ctx, s)
	case Join, Gone:
		return b.visit(ctx, s)
	case Disk:
		return b.disk(ctx, victims[0], s.For)
	case Files:
		return b.files(ctx, victims[0], s.For)
	case Clock:
		return b.clock(ctx, victims[0], s)
	case Reload:
		return b.reload(ctx)
	case Limits:
		return b.limits(ctx, s)
	case Keys:
		return b.keys(ctx, s)
	}
	return fmt.Errorf("%w: %q", ErrKind, s.Kind)
}

// up starts a node again, and ends its trouble when it is ready or has not become so in time.
func (b *breaker) up(ctx context.Context, n *node) error {
	if err := n.start(ctx); err != nil {
		return err
	}
	err := b.c.await(ctx, recoverTime, func() error {
		if err := n.died(); err != nil {
			return err
		}
		return n.ask.Ready(ctx)
	})
	n.troubled.Add(-1)
	return err
}

func (b *breaker) kill(ctx context.Context, n *node, length time.Duration) error {
	n.troubled.Add(1)
	if err := n.kill(); err != nil {
		return err
	}
	pause(ctx, length)
	return b.up(ctx, n)
}

func (b *breaker) pause(ctx context.Context, n *node, length time.Duration) error {
	p := n.running()
	n.troubled.Add(1)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	pause(ctx, length)
	err := p.Signal(syscall.SIGCONT)
	// What was sent to it while it slept may be given up only now.
	time.AfterFunc(patience+500*time.Millisecond, func() { n.troubled.Add(-1) })
	return err
}

// drops are the packets that a step loses.
func (b *breaker) drops(s Step) []netlab.Drop {
	others := func(of []int) (all []int) {
		for i := range b.c.nodes {
			if !slices.Contains(of, i+1) {
				all = append(all, i+1)
			}
		}
		return all
	}
	var lab []int // the lab counts from 1
	for _, n := range s.Nodes {
		lab = append(lab, n+1)
	}
	switch s.Kind {
	case OneWay:
		return []netlab.Drop{{From: lab[0], To: lab[1], Loss: 1}}
	case Corner:
		return netlab.Between(lab[:1], lab[1:], 1)
	case Loss:
		return b.c.lab.Everywhere(s.Loss)
	default:
		return netlab.Between(lab, others(lab), 1)
	}
}

func (b *breaker) cut(ctx context.Context, length time.Duration, drops []netlab.Drop) error {
	if _, err := b.c.lab.Apply(drops...); err != nil {
		return err
	}
	pause(ctx, length)
	dropped, err := b.c.lab.Apply()
	b.note("%d packets dropped", dropped)
	return err
}

func (b *breaker) restart(ctx context.Context, n *node) error {
	if err := b.stop(n); err != nil {
		return err
	}
	return b.up(ctx, n)
}

// stop ends a node in good order.
func (b *breaker) stop(n *node) error {
	n.troubled.Add(1)
	took, err := n.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stops = append(b.stops, took)
	return err
}

func (b *breaker) rolling(ctx context.Context) error {
	for _, n := range b.c.regular() {
		if err := b.restart(ctx, n); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// blackout ends all nodes at once and starts them again.
func (b *breaker) blackout(ctx context.Context, s Step) error {
	each := func(f func(n *node) error) error {
		failed := make([]error, b.c.size)
		var all sync.WaitGroup
		for i, n := range b.c.regular() {
			all.Go(func() { failed[i] = f(n) })
		}
		all.Wait()
		return errors.Join(failed...)
	}
	err := each(func(n *node) error {
		if s.Orderly {
			return b.stop(n)
		}
		n.troubled.Add(1)
		return n.kill()
	})
	pause(ctx, s.For)
	return errors.Join(err, each(func(n *node) error { return b.up(ctx, n) }))
}

// visit lets one more node come, stay, and leave in good order, or be killed and forgotten.
func (b *breaker) visit(ctx context.Context, s Step) error {
	n := b.c.guest()
	n.troubled.Add(1)
	if err := b.up(ctx, n); err != nil {
		return err
	}
	pause(ctx, s.For)
	if s.Kind == Join {
		defer n.troubled.Add(-1)
		return b.stop(n)
	}
	n.troubled.Add(1)
	defer n.troubled.Add(-1)
	if err := n.kill(); err != nil {
		return err
	}
	// A member can be forgotten when it is seen to have failed.
	return b.c.await(ctx, recoverTime, func() error { return b.c.nodes[0].ask.Forget(ctx, n.name) })
}

// disk fills the disk of a node, and defines and removes a limit there, which wants to write.
func (b *breaker) disk(ctx context.Context, n *node, length time.Duration) error {
	free, err := fillDisk(n.state())
	if err != nil {
		return err
	}
	end := time.Now().Add(length)
	var said []error
	for i := 0; time.Now().Before(end) && ctx.Err() == nil; i++ {
		_, err := n.ask.PutLimit(ctx, client.Limit{Name: "full-disk", Rate: fmt.Sprintf("%d/s", i+1)})
		said = append(said, err)
		pause(ctx, 500*time.Millisecond)
	}
	if err := free(); err != nil {
		return err
	}
	if err := errors.Join(said...); err != nil {
		b.note("with a full disk limits were refused: %v", said[len(said)-1])
	}
	// It writes again when it can.
	return b.c.await(ctx, recoverTime, func() error {
		if _, err := n.ask.PutLimit(ctx, client.Limit{Name: "full-disk", Rate: "1/s"}); err != nil {
			return err
		}
		return n.ask.DeleteLimit(ctx, "full-disk")
	})
}

// files lets a node open few files more and opens connections to it until it has no more.
func (b *breaker) files(ctx context.Context, n *node, length time.Duration) error {
	const more = 8
	undo, err := bound(n.running().PID(), more)
	if err != nil {
		return err
	}
	n.troubled.Add(1)
	var open []net.Conn
	for range 4 * more {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if conn, err := b.c.web.DialContext(ctx, "tcp", n.http); err == nil {
			open = append(open, conn)
		}
		cancel()
	}
	pause(ctx, length)
	for _, conn := range open {
		conn.Close()
	}
	err = undo()
	time.AfterFunc(patience+500*time.Millisecond, func() { n.troubled.Add(-1) })
	return err
}

// reload changes a limit in all files, at first to something that is refused.
func (b *breaker) reload(ctx context.Context) error {
	rate := b.c.churn
	b.c.churn = -1 // which no rate may be
	before := make([]float64, len(b.c.nodes))
	for _, n := range b.c.regular() {
		var err error
		if before[n.index], err = b.watch.value(ctx, n, mRefused); err != nil {
			return err
		}
		if err := b.c.write(n); err != nil {
			return err
		}
	}
	var broken []error
	for _, n := range b.c.regular() {
		broken = append(broken, b.c.await(ctx, changeTime, func() error {
			if now, err := b.watch.value(ctx, n, mRefused); err != nil || now <= before[n.index] {
				return errors.Join(err, fmt.Errorf("%s has not refused a file that is wrong", n.name))
			}
			return nil
		}))
	}
	b.c.churn = rate%1000 + 1
	for _, n := range b.c.nodes { // that of the guest too, for when it comes
		if err := b.c.write(n); err != nil {
			return err
		}
		if p := n.running(); p != nil && n.index%2 == 0 { // the others notice by themselves
			if err := p.Signal(syscall.SIGHUP); err != nil {
				return err
			}
		}
	}
	want := fmt.Sprintf("%d/s", b.c.churn)
	for _, n := range b.c.regular() {
		broken = append(broken, b.c.await(ctx, changeTime, func() error { return hasRate(ctx, n, churnLimit, want) }))
	}
	return errors.Join(broken...)
}

func hasRate(ctx context.Context, n *node, name, want string) error {
	l, err := n.ask.Limit(ctx, name)
	if err == nil && l.Rate != want {
		err = fmt.Errorf("chaos: %s has %s with %s, not %s", n.name, name, l.Rate, want)
	}
	return err
}

// limits defines a limit at one node, changes it at another and removes it at a third, each time until all agree.
func (b *breaker) limits(ctx context.Context, s Step) error {
	name := fmt.Sprintf("sent-%d", s.Number)
	all := b.c.regular()
	at := func(i int) *node { return all[(s.Number+i)%len(all)] }
	for i, rate := range []string{"7/s", "9/s"} {
		if _, err := at(i).ask.PutLimit(ctx, client.Limit{Name: name, Rate: rate}); err != nil {
			return err
		}
		for _, n := range all {
			if err := b.c.await(ctx, changeTime, func() error { return hasRate(ctx, n, name, rate) }); err != nil {
				return err
			}
			if _, err := n.ask.Take(ctx, client.Request{Limit: name, Key: client.Key{"k"}, Cost: 1}); err != nil {
				return err
			}
		}
	}
	if err := at(2).ask.DeleteLimit(ctx, name); err != nil {
		return err
	}
	for _, n := range all {
		err := b.c.await(ctx, changeTime, func() error {
			if _, err := n.ask.Limit(ctx, name); !errors.Is(err, client.ErrUnknownLimit) {
				return errors.Join(err, fmt.Errorf("chaos: %s still has the limit %s", n.name, name))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keys takes from keys that nobody has seen, at all nodes.
func (b *breaker) keys(ctx context.Context, s Step) error {
	end := time.Now().Add(s.For)
	requests := make([]client.Request, 500)
	for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
		for i := range requests {
			requests[i] = client.Request{Limit: floodLimit, Key: client.Key{fmt.Sprintf("%d-%d-%d", s.Number, n, i)}, Cost: 1}
		}
		at := b.c.regular()[n%b.c.size]
		for _, r := range at.ask.Batch(ctx, requests) {
			if r.Err != nil {
				b.load.failed(ctx, at, false, r.Err)
			}
		}
		b.load.decisions.Add(int64(len(requests)))
		pause(ctx, 20*time.Millisecond)
	}
	return nil
}
