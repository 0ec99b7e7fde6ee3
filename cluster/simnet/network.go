package simnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Errors of this package, to be matched with errors.Is. What a fault does to a connection
// is reported as the net package does: time-outs satisfy net.Error, refusals and resets are
// syscall.ECONNREFUSED and syscall.ECONNRESET.
var (
	// ErrAddress: an address is not of the form IP:port with a port above 0.
	ErrAddress = errors.New("simnet: bad address")
	// ErrInUse: a transport with this address is still open.
	ErrInUse = errors.New("simnet: address in use")
	// ErrConditions: a probability outside 0 to 1, or a range of delays that is negative or reversed.
	ErrConditions = errors.New("simnet: bad conditions")
	// ErrTooLong: a packet does not fit into a UDP datagram.
	ErrTooLong = errors.New("simnet: packet too long")
	// ErrClosed: the transport was shut down or crashed, or its network closed.
	ErrClosed = errors.New("simnet: closed")
)

// DefaultDelay is the one-way delay of a network whose conditions were never set: about
// that of one data centre.
const DefaultDelay = 200 * time.Microsecond

// Conditions are the weather on a link. The zero value is a perfect wire: nothing is lost and
// everything arrives at once.
type Conditions struct {
	// Loss is the probability, 0 to 1, that a packet vanishes. A lost piece of a stream is
	// sent again after 200 ms, then 400 ms and so on, as TCP would; with 1 streams stall.
	Loss float64
	// Duplicate is the probability, 0 to 1, that a packet arrives a second time, after a
	// delay of its own.
	Duplicate float64
	// DelayMin and DelayMax bound the one-way delay, uniform between them. Packets that
	// draw different delays overtake each other; the bytes of a stream stay in order.
	DelayMin, DelayMax time.Duration
	// Straggle is the probability, 0 to 1, that a packet is late by StraggleMin to
	// StraggleMax besides, and so arrives after many that were sent later.
	Straggle                 float64
	StraggleMin, StraggleMax time.Duration
}

func (c Conditions) validate() error {
	for _, p := range []struct {
		name string
		v    float64
	}{{"Loss", c.Loss}, {"Duplicate", c.Duplicate}, {"Straggle", c.Straggle}} {
		if !(p.v >= 0 && p.v <= 1) {
			return fmt.Errorf("%w: %s %v, want a probability of 0 to 1", ErrConditions, p.name, p.v)
		}
	}
	if c.DelayMin < 0 || c.DelayMax < c.DelayMin {
		return fmt.Errorf("%w: delay from %v to %v, want 0 <= min <= max", ErrConditions, c.DelayMin, c.DelayMax)
	}
	if c.StraggleMin < 0 || c.StraggleMax < c.StraggleMin {
		return fmt.Errorf("%w: stragglers from %v to %v, want 0 <= min <= max", ErrConditions, c.StraggleMin, c.StraggleMax)
	}
	return nil
}

// Network is a set of hosts and the links between them. Make it with [New], inside the
// synctest bubble that uses it. Safe for concurrent use; must not be copied.
//
// Addresses are those of transports, "10.0.0.1:7946". A fault may name an address that has
// no transport yet or no longer: it holds for whoever takes the address.
type Network struct {
	seed  uint64
	epoch time.Time

	// One mutex for everything: it is never held while waiting. That matters in a bubble,
	// whose clock stands still as long as any goroutine waits for a mutex.
	mu       sync.Mutex
	hosts    map[string]*Transport
	links    map[Link]*link
	weather  Conditions
	isolated map[string]bool
	pipes    map[*pipe]struct{} // directions of open streams
	queue    queue
	timer    *time.Timer
	timerAt  time.Duration // when timer fires, since epoch; idle if it does not
	ports    int           // the last ephemeral port given out
	closed   bool
}

// New makes a network without hosts, every link with [DefaultDelay] and no faults. The
// seed decides the fate of the packets: the n-th packet of a link fares the same in every
// run that sets the same conditions.
func New(seed uint64) *Network {
	return &Network{
		seed:     seed,
		epoch:    time.Now(),
		hosts:    make(map[string]*Transport),
		links:    make(map[Link]*link),
		weather:  Conditions{DelayMin: DefaultDelay, DelayMax: DefaultDelay},
		isolated: make(map[string]bool),
		pipes:    make(map[*pipe]struct{}),
		timerAt:  idle,
		ports:    firstEphemeralPort,
	}
}

// Transport puts a host on the network. The address is free again after the transport's
// Shutdown or [Network.Crash]; what is in flight then reaches the address's next holder.
func (n *Network) Transport(addr string) (*Transport, error) {
	ap, err := parse(addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("%w: the network; make a new one", ErrClosed)
	}
	if n.hosts[ap.String()] != nil {
		return nil, fmt.Errorf("%w: %s, shut its transport down or crash it first", ErrInUse, ap)
	}
	t := newTransport(n, ap)
	n.hosts[t.addr] = t
	return t, nil
}

// Set makes c the conditions of all links, from the next packet on, except of those that
// [Network.SetLink] gave conditions of their own.
func (n *Network) Set(c Conditions) error {
	if err := c.validate(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = c
	n.pumpAll()
	return nil
}

// SetLink gives what from sends to to conditions of its own; the way back keeps its own.
func (n *Network) SetLink(from, to string, c Conditions) error {
	if err := c.validate(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).own = &c
	n.pumpAll()
	return nil
}

// UnsetLink undoes SetLink: the link has the network's conditions again.
func (n *Network) UnsetLink(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).own = nil
	n.pumpAll()
}

// Cut drops all that from sends to to, also what is in flight, until [Network.Mend] or
// [Network.Heal]. Packets the other way pass. Streams between the two stall both ways, since
// acknowledgements are lost as well, and no new ones come about.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).cut = true
}

// Mend undoes a Cut of the same direction.
func (n *Network) Mend(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).cut = false
	n.pumpAll()
}

// Partition cuts, both ways, every pair of addresses that are in different groups. Cuts that
// exist stay; an address in no group keeps its links to all.
func (n *Network) Partition(groups ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, group := range groups {
		for _, other := range groups[i+1:] {
			for _, a := range group {
				for _, b := range other {
					n.link(a, b).cut = true
					n.link(b, a).cut = true
				}
			}
		}
	}
}

// Isolate cuts an address off from all others, also from those that come later.
func (n *Network) Isolate(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isolated[canonical(addr)] = true
}

// Reconnect undoes Isolate for one address. Cuts of its links stay.
func (n *Network) Reconnect(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.isolated, canonical(addr))
	n.pumpAll()
}

// Heal undoes every Cut, Partition and Isolate. Conditions and pauses stay.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.cut = false
	}
	clear(n.isolated)
	n.pumpAll()
}

// Pause makes the host of this address neither read nor send, as a stopped process does:
// packets to it wait in its socket buffer, which is bounded, and reads and writes of its
// streams wait too. The network cannot stop the host's goroutines: they run on, and the
// packets they send are dropped. No host, or paused already: no effect.
func (n *Network) Pause(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.hosts[canonical(addr)]; t != nil {
		t.paused = true
	}
}

// Resume ends a Pause; the host finds all that waited at once. Not paused: no effect.
func (n *Network) Resume(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.hosts[canonical(addr)]; t != nil && t.paused {
		t.resume()
	}
}

// Crash takes the host of this address off the network without a good-bye, as a killed process:
// its streams are reset, its transport fails, connections to it are refused. To lose
// power instead, so that nothing answers at all, Isolate it first. The goroutines of
// the host's user run on: shut memberlist down afterwards. No host: no effect.
func (n *Network) Crash(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.hosts[canonical(addr)]; t != nil {
		t.shutdown()
	}
}

// Close crashes all hosts and refuses new ones. It is idempotent. After it, and after the
// transports' users have ended, nothing of the network runs.
func (n *Network) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, t := range n.hosts {
		t.shutdown()
	}
	return nil
}

// open says whether packets pass from one address to the other. The lock is held.
func (n *Network) open(l *link) bool {
	if l.cut {
		return false
	}
	return len(n.isolated) == 0 || !n.isolated[l.From] && !n.isolated[l.To]
}

// path says whether streams make progress between two addresses: both ways must be open.
func (n *Network) path(a, b string) bool {
	if a == b {
		return true
	}
	ab, ba := n.link(a, b), n.link(b, a)
	return n.open(ab) && n.open(ba) && n.conditions(ab).Loss < 1 && n.conditions(ba).Loss < 1
}

func (n *Network) conditions(l *link) Conditions {
	if l.own != nil {
		return *l.own
	}
	return n.weather
}

// link finds or makes the state of one direction.
func (n *Network) link(from, to string) *link {
	if l := n.links[Link{from, to}]; l != nil {
		return l
	}
	key := Link{canonical(from), canonical(to)}
	l := n.links[key]
	if l == nil {
		// A generator per link and kind: how the scheduler interleaves the senders then does
		// not decide which packet of a link is lost. The zero byte keeps the names apart.
		name := xxhash.Sum64String(key.From + "\x00" + key.To)
		l = &link{
			Link:    key,
			packets: rand.New(rand.NewPCG(n.seed, name)),
			stream:  rand.New(rand.NewPCG(n.seed, ^name)),
		}
		n.links[key] = l
	}
	return l
}

func parse(addr string) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || ap.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("%w: %q, want IP:port such as 10.0.0.1:7946", ErrAddress, addr)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// canonical is the spelling that addresses are filed under; what is no address names nobody.
func canonical(addr string) string {
	if ap, err := parse(addr); err == nil {
		return ap.String()
	}
	return addr
}
