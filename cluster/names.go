package cluster

import (
	"context"
	"fmt"
	"net"
	"time"
)

const (
	// pings of a rival, this far apart: with a fifth of all packets lost, 6 round trips fail
	// together twice in a thousand times, and then others are asked as well.
	pings    = 6
	pingGap  = 150 * time.Millisecond
	vouchers = 3 // members that ping a rival for us
)

// claim makes this process the holder of its name, or fails with ErrNameTaken if another process
// answers to it. Until then this process is in nobody's view, so a refusal disturbs nobody.
func (c *Cluster) claim(ctx context.Context) error {
	for {
		rivals, highest := c.rivals()
		for _, r := range rivals {
			if c.answers(ctx, r) {
				return fmt.Errorf("%w: %q is held by the process at %s, give this node another name", ErrNameTaken, r.name, r.addr)
			}
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("cluster: claiming the name: %w", err)
		}
		done := false
		c.setMeta(func(m *meta) {
			// One that has come up while we were pinging has to be pinged too.
			if now, high := c.rivalsLocked(); !subset(now, rivals) {
				return
			} else if highest = max(highest, high); len(now) > 0 || m.State == joining {
				m.Claim = highest + 1
			}
			m.State = active
			done = true
		})
		if done {
			c.introduce()
			return nil
		}
	}
}

// rivals are the living processes of our name that outrank us, and the highest claim that anyone we
// know of has made on it.
func (c *Cluster) rivals() ([]*peer, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rivalsLocked()
}

func (c *Cluster) rivalsLocked() (rivals []*peer, highest uint64) {
	highest = c.lost[c.cfg.Name].claim
	for _, p := range c.peers {
		if p.name != c.cfg.Name {
			continue
		}
		highest = max(highest, p.meta.Claim)
		if !p.left && p.meta.outranks(&c.meta) {
			rivals = append(rivals, p)
		}
	}
	return rivals, highest
}

func subset(a, b []*peer) bool {
	known := make(map[*peer]bool, len(b))
	for _, p := range b {
		known[p] = true
	}
	for _, p := range a {
		if !known[p] {
			return false
		}
	}
	return true
}

// answers says whether a process is alive: it, and only it, answers a ping to its wire name. Other
// members ping it too, since the way from here to there may be the only thing that is broken.
func (c *Cluster) answers(ctx context.Context, r *peer) bool {
	if r.addr == c.addr {
		return false // its port is ours now
	}
	helpers := c.helpers(r)
	results := make(chan bool, 1+len(helpers))
	c.spawn(func() { results <- c.ping(r.wire, r.addr.String()) })
	ask := control{Op: opPing, Name: r.wire, Addr: r.addr.String()}
	wait, cancel := context.WithTimeout(ctx, (pings+2)*pingGap+c.probe)
	defer cancel()
	for _, h := range helpers {
		ok := c.spawn(func() {
			got, err := c.tell(wait, h, ask)
			results <- err == nil && len(got) == 1 && got[0] == 1
		})
		if !ok {
			results <- false
		}
	}
	for range 1 + len(helpers) {
		select {
		case yes := <-results:
			if yes {
				return true
			}
		case <-c.ctx.Done():
			return false
		}
	}
	return false
}

// helpers are a few other processes, members or not.
func (c *Cluster) helpers(r *peer) []*peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hs []*peer
	for _, p := range c.peers { // in no order, which is as good as at random
		if p.name != r.name && p.addr != r.addr && !p.left && len(hs) < vouchers {
			hs = append(hs, p)
		}
	}
	return hs
}

// pingAddr is an address as memberlist's Ping wants it.
type pingAddr string

func (a pingAddr) Network() string { return "udp" }
func (a pingAddr) String() string  { return string(a) }

var _ net.Addr = pingAddr("")

// ping asks the process with this wire name at this address for a sign of life, a few times.
func (c *Cluster) ping(wire, addr string) bool {
	results := make(chan bool, pings)
	tries := 0
	tick := time.NewTicker(pingGap)
	defer tick.Stop()
	try := func() {
		tries++
		if !c.spawn(func() {
			_, err := c.ml.Ping(wire, pingAddr(addr))
			results <- err == nil
		}) {
			results <- false
		}
	}
	try()
	for failed := 0; failed < pings; {
		select {
		case ok := <-results:
			if ok {
				return true
			}
			failed++
		case <-tick.C:
			if tries < pings {
				try()
			}
		case <-c.ctx.Done():
			return false
		}
	}
	return false
}

// contest finds out, once at a time and in the background, whether a process that outranks us is
// alive. Then this node goes: all others prefer the other one. If it is only a ghost that the failure
// detector has not noticed yet, we claim the name above it.
func (c *Cluster) contest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.contesting || c.meta.State != active {
		return
	}
	c.contesting = true
	c.spawn(func() {
		err := c.claim(c.ctx)
		c.mu.Lock()
		c.contesting = false
		c.mu.Unlock()
		if err != nil && c.ctx.Err() == nil {
			c.fail(err)
			return
		}
		c.poke() // for one that came up meanwhile
	})
}
