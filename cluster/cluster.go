package cluster

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/jatah-io/jatah/ring"
)

// Events are the callbacks of a cluster; nil ones are left out. None is called before Start is
// about to return. Packet, Call and Transfer may be called before the View that
// first shows the sender is delivered, but not before Cluster.View shows it. They must not
// call Close or Leave.
type Events struct {
	// Ring is called once, by Start, when the hash seed is decided and before this node is a member, with Config.Ring as it counts. It
	// comes before all others. An error ends Start, which returns it.
	Ring func(ring.Config) error
	// View gets each new view, in order, from one goroutine. It should be quick: later views wait.
	View func(*View)
	// Packet gets what Send sent. It runs on the goroutine that reads all packets off the socket and must
	// not block for long; it may call Send. msg is only valid during the call. Streams run it concurrently.
	Packet func(from string, msg []byte)
	// Call answers a Call, on a goroutine of its own; at most maxHandlers run at once, and
	// requests beyond that wait to be sent again. ctx ends when the cluster is closed.
	// An error goes back as its text.
	Call func(ctx context.Context, from string, req []byte) ([]byte, error)
	// Transfer takes what Transfer sent, on a goroutine of its own, counted with Call's.
	// The sender's Transfer returns when it has. msg may be kept.
	Transfer func(from string, msg []byte)
	// Down is called once if the node has to go, because another process holds its name
	// by now (ErrNameTaken), it has met an older cluster with another hash seed (an *ApartError), or its incarnations are used up. It is closing when this is called.
	Down func(error)
}

// maxHandlers is how many Call and Transfer handlers run at once.
const maxHandlers = 1024

// Cluster is one node's part in a cluster. Make it with Start. Safe for concurrent use.
type Cluster struct {
	cfg        Config
	ev         Events
	log        *slog.Logger
	ml         *memberlist.Memberlist
	tr         *transport
	sealing    *sealing
	keyring    *memberlist.Keyring // memberlist's; nil without secrets
	wire       string              // our name to memberlist
	addr       netip.AddrPort
	everywhere bool // bound to all interfaces
	seeds      []seed
	space      int // bytes of frames in a packet, after all headers
	probe      time.Duration

	ctx    context.Context // ended by Close
	cancel context.CancelFunc
	inc    atomic.Uint64 // our incarnation; the same as meta.Incarnation
	lastID atomic.Uint64 // of requests
	snap   atomic.Pointer[snapshot]
	ready  atomic.Bool
	n      counters

	waiting   waiters
	slots     chan struct{}
	signal    chan struct{} // room for one: the view may have changed
	first     chan struct{} // closed when the first view is out
	strangers chan string   // room for one: the wire name of who spoke

	mu         sync.Mutex // guards what follows; never held while calling memberlist
	meta       meta
	metaBytes  []byte
	peers      map[string]*peer // by wire name: all processes memberlist sees alive, but us
	gone       map[string]*peer // processes that were there, should they come back
	lost       map[string]lostMember
	forgotten  map[string]goneProcess  // by name
	joined     []netip.AddrPort        // what Config.Join stands for, other than this node
	settled    map[netip.AddrPort]bool // of these: it answered, or nobody listens there, as far as is known
	unresolved bool                    // some name in Config.Join could not be looked up
	nameless   bool                    // some name there does not exist
	began      time.Time
	contesting bool // a goroutine is finding out who holds our name
	warned     map[string]time.Time

	announce lock // one at a time tells memberlist our metadata
	rekey    lock // one at a time changes the secrets
	yielding atomic.Bool

	life   sync.RWMutex // guards closed against spawn
	closed bool
	wg     sync.WaitGroup
	leave  lock // one at a time of Leave and the end of Close
	left   bool
	ended  chan struct{} // closed when Close is done

	spread spreader
	rejoin rejoin // of the goroutine that looks for lost members, and of Start before it
}

// Start joins the cluster and returns when this node is a member of it. If no seed can be reached it
// is alone for now, and keeps trying. ctx bounds the start only. Errors: ErrConfig, ErrMismatch,
// ErrSecret, ErrNameTaken, or what the network says about Bind.
func Start(ctx context.Context, cfg Config, ev Events) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg: cfg, ev: ev, log: cfg.Logger,
		slots:    make(chan struct{}, maxHandlers),
		announce: make(lock, 1), rekey: make(lock, 1), leave: make(lock, 1), ended: make(chan struct{}),
		signal: make(chan struct{}, 1), first: make(chan struct{}), strangers: make(chan string, 1),
		peers: make(map[string]*peer), gone: make(map[string]*peer), lost: make(map[string]lostMember),
		forgotten: make(map[string]goneProcess), warned: make(map[string]time.Time),
		settled: make(map[netip.AddrPort]bool), began: time.Now(),
		spread: spreader{backlog: make(map[*peer]*backlog), members: make(chan struct{}, 1), turn: make(lock, 1)},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.snap.Store(&snapshot{view: &View{Self: cfg.Name}})
	for _, s := range cfg.Join {
		parsed, _ := parseSeed(s) // checked by withDefaults
		c.seeds = append(c.seeds, parsed)
	}
	if err := c.create(ctx); err != nil {
		c.cancel()
		return nil, err
	}
	c.spawn(c.viewLoop)
	if err := c.join(ctx); err != nil {
		// So that others need not find out that we are gone; whether or not they hear it.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Leave(ctx)
		_ = c.Close()
		return nil, err
	}
	c.ready.Store(true)
	c.poke()
	<-c.first
	c.spawn(c.rejoinLoop)
	c.spawn(c.strangerLoop)
	c.spawn(c.sureLoop)
	if cfg.Register != nil {
		c.membersChanged()
		c.spawn(c.spreadLoop)
	}
	return c, nil
}

// create opens the transport and makes the memberlist, which from then on can be talked to.
func (c *Cluster) create(ctx context.Context) error {
	c.meta = newMeta(c.cfg, newIncarnation(), time.Now())
	c.inc.Store(c.meta.Incarnation)
	c.wire = wireName(c.cfg.Name, process(c.meta.Incarnation))
	var err error
	if c.metaBytes, err = c.meta.encode(); err != nil {
		return err
	}
	logger := newLogBridge(c.log)
	if c.sealing, err = newSealing(c.cfg.ClusterName, c.cfg.Secrets); err != nil {
		return fmt.Errorf("%w: secrets: %w", ErrConfig, err)
	}
	tr, err := c.openTransport(ctx, logger)
	if err != nil {
		return err
	}
	c.tr, c.addr = tr, tr.advertise
	c.tellBuffer()

	m := c.cfg.memberlistConfig()
	m.Name = c.wire
	m.Transport = tr
	m.BindAddr, m.BindPort = c.addr.Addr().String(), int(c.addr.Port())
	m.AdvertiseAddr, m.AdvertisePort = m.BindAddr, m.BindPort
	m.Logger = logger
	d := &delegate{c}
	m.Delegate, m.Events, m.Alive, m.Merge = d, d, d, d
	if len(c.cfg.Secrets) > 0 {
		if m.Keyring, err = memberlist.NewKeyring(c.cfg.Secrets, c.cfg.Secrets[0]); err != nil {
			_ = tr.Shutdown()
			return fmt.Errorf("%w: secrets: %w", ErrConfig, err)
		}
		c.keyring = m.Keyring
	}
	c.space = c.frameSpace()
	c.probe = m.ProbeTimeout
	if c.ml, err = memberlist.Create(m); err != nil {
		_ = tr.Shutdown()
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// frameSpace is what is left of a packet for frames after all headers.
func (c *Cluster) frameSpace() int {
	return c.cfg.PacketSize - c.sealing.head() - c.sealing.tail() - headOverhead - len(c.cfg.Name)
}

// openTransport decides on the addresses and opens the sockets, unless a transport was given.
func (c *Cluster) openTransport(ctx context.Context, logger *log.Logger) (*transport, error) {
	if given := c.cfg.Transport; given != nil {
		var want netip.AddrPort
		if c.cfg.Advertise != "" {
			var err error
			if want, err = parseAdvertise(ctx, c.cfg.Resolver, c.cfg.Advertise); err != nil {
				return nil, err
			}
		}
		adv, err := finalAddress(given, want)
		if err != nil {
			return nil, err
		}
		return wrapTransport(given, adv, c.datagram), nil
	}
	a, err := findAddresses(ctx, c.cfg, net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	c.everywhere = a.bind.Addr().IsUnspecified()
	if c.cfg.Profile == "" && a.loopback() {
		c.cfg.Profile = Local
	}
	t, err := listen(a.bind, logger, c.datagram, func() { c.n.dropBusy.Add(1) })
	if err != nil {
		return nil, fmt.Errorf("cluster: bind %s: %w", c.cfg.Bind, err)
	}
	port := a.advertise.Port()
	if port == 0 {
		port = t.port()
	}
	return wrapSockets(t, netip.AddrPortFrom(a.advertise.Addr(), port)), nil
}

// finalAddress asks a given transport for the address to advertise.
func finalAddress(t memberlist.Transport, want netip.AddrPort) (netip.AddrPort, error) {
	ip, port, err := t.FinalAdvertiseAddr("", 0)
	if err != nil {
		return want, fmt.Errorf("%w: advertise: %w", ErrConfig, err)
	}
	own, ok := netip.AddrFromSlice(ip)
	if own = own.Unmap(); !want.IsValid() {
		want = netip.AddrPortFrom(own, uint16(port))
	} else if want.Port() == 0 {
		want = netip.AddrPortFrom(want.Addr(), uint16(port))
	}
	if !ok && !want.IsValid() || want.Addr().IsUnspecified() {
		return want, fmt.Errorf("%w: the transport gives %v:%d to advertise: set advertise to the address others reach this node at",
			ErrConfig, ip, port)
	}
	return want, nil
}

// Addr is the address this node advertises.
func (c *Cluster) Addr() netip.AddrPort { return c.addr }

// Incarnation of this node as it is now.
func (c *Cluster) Incarnation() Incarnation { return c.inc.Load() }

// Renew begins a new incarnation of this process: packets for the old one are dropped from now
// on. For a node that cannot know what it missed, for having been suspended. Calls
// in progress go on.
func (c *Cluster) Renew() Incarnation {
	_ = c.sealing.renew() // fails only for secrets that newSealing refused
	spent := false
	c.setMeta(func(m *meta) {
		if spent = process(m.Incarnation+1) != process(m.Incarnation); !spent {
			m.Incarnation++
		}
	})
	if spent {
		c.fail(errors.New("cluster: this process has used up its incarnations, start it again"))
	}
	return c.inc.Load()
}

// setMeta changes what this node tells about itself, and tells it.
func (c *Cluster) setMeta(change func(*meta)) {
	c.announce.lock() // the order of changes is the order of announcements
	defer c.announce.unlock()
	c.mu.Lock()
	change(&c.meta)
	c.inc.Store(c.meta.Incarnation)
	if b, err := c.meta.encode(); err == nil { // numbers only: it was checked with room for them
		c.metaBytes = b
	}
	c.mu.Unlock()
	c.poke()
	// The broadcast is queued before UpdateNode begins to wait for its end, which it need not.
	_ = c.ml.UpdateNode(time.Nanosecond)
}

// Send sends a message of up to MaxMessage bytes to a member, one way. It may be lost.
// Messages to one member that come at the same time share packets. msg is copied. Errors:
// ErrUnknownMember, ErrTooLarge, ErrBusy. It never waits for the network.
func (c *Cluster) Send(to string, msg []byte) error {
	p, err := c.peer(to)
	if err != nil {
		return err
	}
	if !p.fits(msg) {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(msg), c.MaxMessage())
	}
	return p.out.add(kindMsg, 0, msg)
}

// MaxMessage is the largest message that Send takes, in bytes.
func (c *Cluster) MaxMessage() int { return c.space - frameOverhead }

// peer is the process that holds a member's name.
func (c *Cluster) peer(name string) (*peer, error) {
	if p := c.snap.Load().byName[name]; p != nil {
		return p, nil
	}
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownMember, name)
}

// spawn runs f on a goroutine that Close waits for. It does nothing and is false after Close.
func (c *Cluster) spawn(f func()) bool {
	c.life.RLock()
	defer c.life.RUnlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// fail takes the node down.
func (c *Cluster) fail(err error) {
	c.life.RLock()
	closed := c.closed
	c.life.RUnlock()
	if closed {
		return
	}
	c.log.Error("cluster: going down", "error", err)
	go func() { // not counted: Close waits for those that are
		_ = c.Close()
		if c.ev.Down != nil && c.ready.Load() {
			c.ev.Down(err)
		}
	}()
}

// leaveTimeout bounds how long Leave goes on telling the others, whatever its context allows.
const leaveTimeout = 3 * time.Second

// Leave tells the others that this node goes in good order: it leaves their views at once and
// its name is free. It still answers until Close. Idempotent; after Close it does nothing. An
// error says that some member may take the departure for a failure.
func (c *Cluster) Leave(ctx context.Context) error {
	c.leave.lock()
	defer c.leave.unlock()
	if c.left || c.ctx.Err() != nil {
		return nil
	}
	c.left = true
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	c.setMeta(func(m *meta) { m.State = leaving })
	err := c.tellAll(ctx, control{Op: opLeave})
	// Telling each by itself is what makes it certain; memberlist's own farewell is for processes
	// that joined meanwhile and for its probes to stop. It waits for some rounds of gossip: with one other
	// member four, 0.8 s. It gets the time that is left, or a busy machine would make an error of it.
	end, _ := ctx.Deadline()
	if e := c.ml.Leave(max(time.Second, time.Until(end))); e != nil && err == nil {
		err = fmt.Errorf("cluster: leave: %w", e)
	}
	return err
}

// Close ends everything at once: without Leave it is a crash to the others. Idempotent; it
// waits for the handlers that run.
func (c *Cluster) Close() error {
	c.life.Lock()
	first := !c.closed
	c.closed = true
	c.life.Unlock()
	if !first {
		<-c.ended
		return nil
	}
	c.cancel()
	c.leave.lock() // memberlist panics when Leave begins after Shutdown
	_ = c.ml.Shutdown()
	c.leave.unlock()
	c.wg.Wait()
	close(c.ended)
	return nil
}

// lock is a mutex that may be held while time passes: in a synctest bubble, who waits for a
// sync.Mutex holds up the clock. Make it with room for one.
type lock chan struct{}

func (l lock) lock()   { l <- struct{}{} }
func (l lock) unlock() { <-l }
