package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// ErrAlive: a member cannot be forgotten while it is alive.
var ErrAlive = errors.New("cluster: member is alive")

// op of a control message.
type op uint8

const (
	opLeave   op = iota + 1 // the sender leaves in good order
	opForget                // forget the lost member Name, process Proc
	opMeta                  // the sender's metadata is Data now
	opDigest                // the answer is the digest of all living processes the receiver knows
	opPing                  // ping the process with wire name Name at Addr; the answer is one byte, 1 for alive
	opRecords               // Data has records of the register
	opSum                   // the answer is the sum of the register
	opStamps                // Data says what the sender's register has; the answer is the difference
	opProbe                 // the answer is Proc bytes; Data is padding
)

// control is the body of a kindControl frame. Its number of fields is fixed: a decoder refuses an array of another length.
type control struct {
	Op   op
	Name string
	Addr string
	Proc uint64
	Data []byte
}

// tell sends a control message to one process and waits for the answer.
func (c *Cluster) tell(ctx context.Context, p *peer, m control) ([]byte, error) {
	b, err := marshal(&m)
	if err != nil {
		return nil, fmt.Errorf("cluster: control message: %w", err)
	}
	return c.ask(ctx, p, kindControl, b)
}

// tellAll sends a control message to all processes that have not left and waits until all have
// answered. The error joins those of the members that did not; what became of others is no
// matter.
func (c *Cluster) tellAll(ctx context.Context, m control) error {
	c.mu.Lock()
	var all []*peer
	for _, p := range c.peers {
		if !p.left {
			all = append(all, p)
		}
	}
	c.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			if _, err := c.tell(ctx, p, m); err != nil && c.snap.Load().byName[p.name] == p {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// introduceTimeout is how long one process is told of our metadata before it is contacted like a seed.
const introduceTimeout = 2 * time.Second

// introduce tells all processes that this one is a member now. Gossip does so too, but it passes by a
// node now and then, which then has to wait for an exchange of states, a quarter of a minute or
// more. Who does not know us at all gets such an exchange from us.
func (c *Cluster) introduce() {
	c.mu.Lock()
	m := control{Op: opMeta, Data: c.metaBytes}
	for _, p := range c.peers {
		if p.left {
			continue
		}
		c.spawn(func() {
			ctx, cancel := context.WithTimeout(c.ctx, introduceTimeout)
			defer cancel()
			if _, err := c.tell(ctx, p, m); err != nil && c.ctx.Err() == nil {
				_ = c.contact(p.addr)
			}
		})
	}
	c.mu.Unlock()
}

// compare asks a process at random what it knows of who is alive, and exchanges states with it if that
// is not what we know. Gossip is said a few times to a few nodes each, and now and then all of them
// miss somebody; this finds it within seconds, for two small packets each few seconds.
func (c *Cluster) compare() {
	c.mu.Lock()
	var all []*peer
	for _, p := range c.peers {
		if !p.left {
			all = append(all, p)
		}
	}
	c.mu.Unlock()
	if len(all) == 0 {
		return
	}
	p := all[rand.IntN(len(all))]
	ctx, cancel := context.WithTimeout(c.ctx, introduceTimeout)
	defer cancel()
	theirs, err := c.tell(ctx, p, control{Op: opDigest})
	same := err == nil && len(theirs) == 8 && binary.BigEndian.Uint64(theirs) == c.digest()
	if !same && c.ctx.Err() == nil { // no answer: it may not know us
		_ = c.contact(p.addr)
	}
}

// digest of the living processes and what they have said that matters for views, in no order.
func (c *Cluster) digest() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := digestOne(&c.meta)
	for _, p := range c.peers {
		if !p.left {
			sum += digestOne(&p.meta)
		}
	}
	return sum
}

func digestOne(m *meta) uint64 {
	return mix(process(m.Incarnation)<<2 ^ uint64(m.State) ^ m.Claim<<48)
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood, 2014): with it sums of different sets differ.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// control acts on a control message.
func (c *Cluster) control(from *peer, b []byte) ([]byte, error) {
	m, err := readControl(b)
	if err != nil {
		return nil, err
	}
	switch m.Op {
	case opLeave:
		c.mu.Lock()
		from.left = true
		c.mu.Unlock()
		c.poke()
		return nil, nil
	case opForget:
		addr, _ := netip.ParseAddrPort(m.Addr) // none: only its name is forgotten
		c.mu.Lock()
		c.forget(m.Name, goneProcess{m.Proc, addr})
		c.mu.Unlock()
		c.poke()
		return nil, nil
	case opMeta:
		name, told, err := decodeMeta(from.wire, m.Data)
		if err != nil || name != from.name {
			return nil, fmt.Errorf("%w: control: metadata", errPacket)
		}
		if err := c.compatible(name, &from.node, &told); err != nil {
			return nil, err
		}
		c.mu.Lock()
		from.update(told)
		c.mu.Unlock()
		c.poke()
		return nil, nil
	case opDigest:
		return binary.BigEndian.AppendUint64(nil, c.digest()), nil
	case opPing:
		if _, err := netip.ParseAddrPort(m.Addr); err != nil {
			return nil, fmt.Errorf("%w: control: address %q", errPacket, m.Addr)
		}
		if c.ping(m.Name, m.Addr) {
			return []byte{1}, nil
		}
		return []byte{0}, nil
	case opRecords, opSum, opStamps:
		return c.registerControl(from, m)
	case opProbe:
		return answerProbe(&m)
	}
	return nil, fmt.Errorf("%w: control: operation %d", errPacket, m.Op)
}

// forgetTimeout is how long Forget goes on telling one member.
const forgetTimeout = 5 * time.Second

// Forget drops a lost member, here at once and at the other members as they hear of it. It
// says that the process will not come back with what was lent to it. Errors: ErrAlive,
// ErrUnknownMember if it is not lost.
func (c *Cluster) Forget(name string) error {
	c.mu.Lock()
	l, ok := c.lost[name]
	if !ok || name == c.cfg.Name {
		c.mu.Unlock()
		if _, ok := c.View().Member(name); ok {
			return fmt.Errorf("%w: %q", ErrAlive, name)
		}
		return fmt.Errorf("%w: %q is not lost", ErrUnknownMember, name)
	}
	c.forget(name, goneProcess{process(l.inc), l.addr})
	c.mu.Unlock()
	c.poke()
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.ctx, forgetTimeout)
		defer cancel()
		// Whoever does not hear it now hears it with the next exchange of states.
		_ = c.tellAll(ctx, control{Op: opForget, Name: name, Proc: process(l.inc), Addr: l.addr.String()})
	})
	return nil
}

// forget drops the process from the lost, and keeps it from coming back by hearsay. Where it has not
// been seen to fail yet it will not be counted as lost when it is. Called with mu held.
func (c *Cluster) forget(name string, p goneProcess) {
	if checkName(name) != nil {
		return
	}
	if l, ok := c.lost[name]; ok && process(l.inc) == p.proc {
		delete(c.lost, name)
	}
	c.forgotten[name] = p
}

// goneProcess is one that was forgotten. Join does not count for its address until a member is alive there again.
type goneProcess struct {
	proc uint64
	addr netip.AddrPort // not valid: unknown
}

// sharedState goes with memberlist's exchange of states: what a newcomer has to know of those that
// are no longer there, since their shares still count.
type sharedState struct {
	Lost      []sharedLost
	Forgotten []sharedName
}

type sharedLost struct {
	Name        string
	Addr        string
	Incarnation Incarnation
	Claim       uint64
	Age         time.Duration // and no time of day: clocks differ
	Left        bool
}

type sharedName struct {
	Name string
	Proc uint64
	Addr string
}

func (c *Cluster) localState() []byte {
	now := time.Now()
	var s sharedState
	c.mu.Lock()
	for name, l := range c.lost {
		s.Lost = append(s.Lost, sharedLost{
			Name: name, Addr: l.addr.String(), Incarnation: l.inc, Claim: l.claim, Age: now.Sub(l.since), Left: l.left,
		})
	}
	for name, p := range c.forgotten {
		s.Forgotten = append(s.Forgotten, sharedName{Name: name, Proc: p.proc, Addr: p.addr.String()})
	}
	c.mu.Unlock()
	b, err := marshal(&s)
	if err != nil {
		c.log.Error("cluster: state", "error", err)
		return nil
	}
	return b
}

// mergeState takes the other side's. Called by memberlist without its lock.
func (c *Cluster) mergeState(b []byte) {
	s, err := readShared(b)
	if err != nil {
		c.n.dropMalformed.Add(1)
		return
	}
	now := time.Now()
	c.mu.Lock()
	for _, f := range s.Forgotten {
		if !c.aliveLocked(f.Name, f.Proc) {
			addr, _ := netip.ParseAddrPort(f.Addr)
			c.forget(f.Name, goneProcess{f.Proc, addr})
		}
	}
	for _, l := range s.Lost {
		c.mergeLost(l, now)
	}
	c.boundLost(now)
	c.mu.Unlock()
	c.poke()
}

// mergeLost takes hearsay of one lost member. What was seen here counts more: the time of it does
// not move when the same loss is heard of again, or it would never grow old. Called with mu held.
func (c *Cluster) mergeLost(l sharedLost, now time.Time) {
	proc := process(l.Incarnation)
	addr, err := netip.ParseAddrPort(l.Addr)
	if checkName(l.Name) != nil || err != nil || l.Age < 0 || c.forgotten[l.Name].proc == proc ||
		c.aliveLocked(l.Name, proc) || l.Name == c.cfg.Name && proc == process(c.meta.Incarnation) {
		return
	}
	got := lostMember{addr: addr, inc: l.Incarnation, claim: l.Claim, since: now.Add(-l.Age), left: l.Left}
	known, ok := c.lost[l.Name]
	switch {
	case !ok, known.claim < got.claim:
		c.lost[l.Name] = got
	case process(known.inc) == proc && got.left && !known.left:
		known.left = true // its farewell reached others and not us
		c.lost[l.Name] = known
	}
}

// aliveLocked says whether this process is alive. A name that is held by a later process is
// taken out of the lost by the next rebuild.
func (c *Cluster) aliveLocked(name string, proc uint64) bool {
	p := c.peers[wireName(name, proc)]
	return p != nil && !p.left
}
