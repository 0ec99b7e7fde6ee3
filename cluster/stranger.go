package cluster

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// A process that speaks to this node counts it as a member. If this node does not know it, or took it for dead, the
// two views differ, and memberlist may leave it so until its next exchange of states, half a minute or more away: it tells
// a newcomer nothing of members that are under suspicion at that moment, and a death that was reported with
// an old incarnation is news to nobody but those who believe it. Until then the limits are divided
// among different numbers of nodes. So the first packet of such a process makes this node exchange states at once.

// strangerEvery is the least time between two exchanges for this reason.
const strangerEvery = time.Second

// stranger asks for an exchange of states because of a packet from a process that is not known to live. It does not block.
func (c *Cluster) stranger(name string, proc uint64) {
	if !c.ready.Load() || name == c.cfg.Name && proc == process(c.inc.Load()) {
		return
	}
	select {
	case c.strangers <- wireName(name, proc):
	default: // one is waiting already
	}
}

// strangerLoop does what stranger asks for.
func (c *Cluster) strangerLoop() {
	for {
		select {
		case wire := <-c.strangers:
			if a, ok := c.whoKnows(wire); ok {
				c.n.strangers.Add(1)
				if err := c.contact(a); err != nil {
					c.log.Debug("cluster: asking about a stranger", "process", wire, "address", a, "error", err)
				}
			}
		case <-c.ctx.Done():
			return
		}
		timer := time.NewTimer(strangerEvery)
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// whoKnows is the stranger's own address if it was a member before, else that of any other member: one of them has told it of us.
func (c *Cluster) whoKnows(wire string) (netip.AddrPort, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meta.State == leaving || c.peers[wire] != nil {
		return netip.AddrPort{}, false
	}
	if p := c.gone[wire]; p != nil {
		return p.addr, true
	}
	var any []netip.AddrPort
	for _, p := range c.peers {
		if !p.left {
			any = append(any, p.addr)
		}
	}
	if len(any) == 0 {
		return netip.AddrPort{}, false
	}
	return any[rand.IntN(len(any))], true
}
