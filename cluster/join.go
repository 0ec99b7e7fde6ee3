package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// rejoinEvery is how often missing seeds are tried, with half as much again of jitter, so that nodes do not move in
	// step. Who starts leaves the members of a cluster several tries to find it; see aloneWait.
	rejoinEvery = time.Second
	// lostSoonest is how often a member is tried that has just been lost, so that a split heals well within a minute.
	lostSoonest = 3 * time.Second
	// compareEvery is after how many of these rounds a node compares views with some member.
	compareEvery = 3
	// lookupEvery is how often the names in Config.Join are looked up when nobody is missing.
	lookupEvery = 30 * time.Second
	// contactsAtOnce bounds one round; the rest has its turn in the next ones.
	contactsAtOnce = 8
	// aliasEvery is how often an address is tried again that answers but is no member's own: a load
	// balancer, or a translated address.
	aliasEvery = time.Minute
	// lostEvery bounds how seldom a member that failed long ago is tried; see lostWait.
	lostEvery = 5 * time.Minute
	// joinWait bounds how long Start waits for seeds that do not answer.
	joinWait = 4 * time.Second
)

// rejoin is what the search for missing members remembers. Start uses it first, then rejoinLoop.
type rejoin struct {
	addrs  []netip.AddrPort            // of the seeds
	last   map[string][]netip.AddrPort // by seed
	looked time.Time
	next   map[netip.AddrPort]time.Time // not before then

	mu      sync.Mutex
	aliases map[netip.AddrPort]bool // addresses that turned out to be our own
}

// join contacts the seeds, then claims the name.
func (c *Cluster) join(ctx context.Context) error {
	r := &c.rejoin
	r.last, r.next = make(map[string][]netip.AddrPort), make(map[netip.AddrPort]time.Time)
	r.aliases = make(map[netip.AddrPort]bool)
	if err := c.lookup(ctx); err != nil {
		c.log.Warn("cluster: looking up seeds", "error", err)
	}
	var others []netip.AddrPort
	for _, a := range r.addrs {
		if !c.isSelf(a) {
			others = append(others, a)
		}
	}
	if err := c.contactFirst(ctx, others); err != nil {
		return err
	}
	// What the contacts brought is seen by rivals at once, and by the view loop, which Send and
	// Call need to reach those that are to vouch for a rival, as soon as it has run.
	c.poke()
	c.decideSeed()
	if c.ev.Ring != nil {
		if err := c.ev.Ring(c.cfg.Ring); err != nil {
			return err
		}
	}
	return c.claim(ctx)
}

// contactFirst tries all seeds at once and waits for them. It is no error if none is reached, but
// it is if one of them says that we cannot be in one cluster.
func (c *Cluster) contactFirst(ctx context.Context, addrs []netip.AddrPort) error {
	if len(addrs) == 0 {
		return nil
	}
	results := make(chan error, len(addrs))
	for _, a := range addrs {
		if !c.spawn(func() { results <- c.contact(a) }) {
			return ErrClosed
		}
	}
	timer := time.NewTimer(joinWait)
	defer timer.Stop()
	var reached int
	var secret error
	for range addrs {
		select {
		case err := <-results:
			switch {
			case err == nil:
				reached++
			case errors.Is(err, ErrMismatch):
				return err
			case errors.Is(err, ErrSecret):
				secret = err
			}
		case <-timer.C:
			c.log.Warn("cluster: some seeds do not answer, going on without them")
			return nil
		case <-ctx.Done():
			return fmt.Errorf("cluster: joining: %w", ctx.Err())
		}
	}
	if reached > 0 {
		return nil
	}
	if secret != nil { // all that answered have another one
		return secret
	}
	c.log.Warn("cluster: no seed could be reached, starting alone and trying again", "seeds", len(addrs))
	return nil
}

// contact exchanges states with whoever is at an address.
func (c *Cluster) contact(a netip.AddrPort) error {
	_, err := c.ml.Join([]string{a.String()})
	c.noteContact(a, err)
	if err == nil {
		if c.processAt(a) == nil && c.ownAlias(a) {
			c.rejoin.mu.Lock()
			c.rejoin.aliases[a] = true
			c.rejoin.mu.Unlock()
			c.countExpected()
		}
		return nil
	}
	// memberlist gives texts, no chains of errors.
	text := err.Error()
	if _, rest, ok := strings.Cut(text, ErrMismatch.Error()); ok {
		return fmt.Errorf("%w%s", ErrMismatch, strings.TrimSpace(rest))
	}
	if strings.Contains(text, "encrypt") || strings.Contains(text, "decrypt") {
		return fmt.Errorf("%w: seed %s has another secret or none; give this node the secret that the others use", ErrSecret, a)
	}
	return fmt.Errorf("cluster: %s: %w", a, err)
}

// ownAlias says whether an address that belongs to no known process is another one of ours.
func (c *Cluster) ownAlias(a netip.AddrPort) bool {
	_, err := c.ml.Ping(c.wire, pingAddr(a.String()))
	return err == nil
}

// aloneWait is how long a process leaves a cluster that may be there to find it.
const aloneWait = 4 * time.Second

// noteContact remembers of an address whether it is known what is there: memberlist gives only the text of the error.
func (c *Cluster) noteContact(a netip.AddrPort, err error) {
	c.mu.Lock()
	c.settled[a] = err == nil || strings.Contains(err.Error(), syscall.ECONNREFUSED.Error())
	c.mu.Unlock()
	c.poke()
}

// unsure says whether a cluster may be there that this process has not found. Called with mu held.
//
// To meet others that have just started is not enough: they may all be seeds that were restarted while the rest of the cluster
// lives on, which none of them knows.
func (c *Cluster) unsure(now time.Time) bool {
	age := now.Sub(c.began)
	if c.meta.Sure || len(c.seeds) == 0 || age >= c.cfg.Grace {
		return false
	}
	for _, p := range c.peers {
		if p.meta.Sure && !p.left {
			return false
		}
	}
	if c.unresolved || slices.ContainsFunc(c.joined, func(a netip.AddrPort) bool { return !c.settled[a] }) {
		return true
	}
	return (len(c.joined) > 0 || c.nameless) && age < aloneWait
}

// sureLoop publishes a view when time alone has made this node sure.
func (c *Cluster) sureLoop() {
	for _, at := range []time.Duration{min(aloneWait, c.cfg.Grace), max(aloneWait, c.cfg.Grace)} {
		timer := time.NewTimer(at - time.Since(c.began))
		select {
		case <-timer.C:
			c.poke()
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// processAt finds the living process that advertises an address.
func (c *Cluster) processAt(a netip.AddrPort) *peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		if p.addr == a {
			return p
		}
	}
	return nil
}

// isSelf says whether an address is this node's own: what it advertises, the same port on another
// of this host's addresses, or one that has turned out to lead back here.
func (c *Cluster) isSelf(a netip.AddrPort) bool {
	if a == c.addr {
		return true
	}
	c.rejoin.mu.Lock()
	alias := c.rejoin.aliases[a]
	c.rejoin.mu.Unlock()
	if alias || a.Port() != c.addr.Port() {
		return alias
	}
	if !c.everywhere {
		return false
	}
	local, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(local, func(l net.Addr) bool {
		p, err := netip.ParsePrefix(l.String())
		return err == nil && p.Addr().Unmap() == a.Addr()
	})
}

// lookup resolves the seeds and counts how many nodes they stand for.
func (c *Cluster) lookup(ctx context.Context) error {
	addrs, err := resolve(ctx, c.cfg.Resolver, c.seeds, c.rejoin.last)
	c.mu.Lock()
	c.unresolved, c.nameless = err != nil && !allNotFound(err), err != nil
	c.mu.Unlock()
	if err != nil {
		c.n.lookupErrors.Add(1)
	}
	c.rejoin.mu.Lock()
	c.rejoin.addrs, c.rejoin.looked = addrs, time.Now()
	c.rejoin.mu.Unlock()
	c.countExpected()
	return err
}

// countExpected: all addresses of Join, of which ours may be one, and this node.
func (c *Cluster) countExpected() {
	c.rejoin.mu.Lock()
	addrs := c.rejoin.addrs
	c.rejoin.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(addrs), c.isSelf)
	c.mu.Lock()
	c.joined = others
	c.mu.Unlock()
	c.poke()
}

// expected is how many members Join stands for, this node included, without those whose last process was forgotten. Called with mu held.
func (c *Cluster) expected(s *snapshot) int {
	if len(c.seeds) == 0 {
		return 0
	}
	gone := make(map[netip.AddrPort]bool)
	for _, f := range c.forgotten {
		gone[f.addr] = true
	}
	for _, p := range s.byName {
		delete(gone, p.addr)
	}
	n := 1
	for _, a := range c.joined {
		if !gone[a] {
			n++
		}
	}
	return n
}

// rejoinLoop looks for members that are missing for as long as the node runs. memberlist does not:
// it forgets a dead node after half a minute, and a split that lasts longer would be for ever.
func (c *Cluster) rejoinLoop() {
	for round := 1; ; round++ {
		timer := time.NewTimer(rejoinEvery + rand.N(rejoinEvery/2))
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
		c.mu.Lock()
		gone := c.meta.State == leaving
		c.mu.Unlock()
		if gone {
			return
		}
		c.rejoinRound()
		if round%compareEvery == 0 {
			c.compare()
			c.sweep()
		}
	}
}

// rejoinRound contacts some of those that are missing, and does not wait for the outcome.
func (c *Cluster) rejoinRound() {
	missing := c.missing(time.Now())
	if since := time.Since(c.rejoin.looked); len(c.seeds) > 0 && (since > lookupEvery || len(missing) > 0 && since > lookupEvery/3) {
		_ = c.lookup(c.ctx)
		missing = c.missing(time.Now())
	}
	for _, m := range missing[:min(len(missing), contactsAtOnce)] {
		// Each by itself: one that does not answer must not keep the others waiting.
		c.rejoin.due(m.addr, tryTimeout)
		c.spawn(func() {
			wait := m.wait
			if c.rejoinOne(m.addr) {
				wait = max(wait, aliasEvery) // a member of that address is no longer missing; else it is an alias
			}
			c.rejoin.due(m.addr, wait)
		})
	}
}

// tryTimeout is longer than any try of an address takes: until then there is no other one.
const tryTimeout = time.Minute

// due sets when an address is tried next.
func (r *rejoin) due(a netip.AddrPort, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[a] = time.Now().Add(after)
}

func (c *Cluster) rejoinOne(a netip.AddrPort) bool {
	c.n.rejoins.Add(1)
	err := c.contact(a)
	if err == nil {
		return true
	}
	c.n.rejoinErrors.Add(1)
	c.log.Debug("cluster: rejoin", "address", a, "error", err)
	if errors.Is(err, ErrMismatch) || errors.Is(err, ErrSecret) {
		c.mu.Lock()
		c.warn("rejoin "+a.String(), "cluster: cannot join", "address", a, "error", err)
		c.mu.Unlock()
	}
	return false
}

// target is an address where a member is missing.
type target struct {
	addr netip.AddrPort
	wait time.Duration // after this try
	due  time.Time
}

// missing lists seeds and lost members that are due, longest due first.
func (c *Cluster) missing(now time.Time) []target {
	want := make(map[netip.AddrPort]time.Duration)
	c.mu.Lock()
	for name, l := range c.lost {
		if !l.left && name != c.cfg.Name {
			want[l.addr] = lostWait(now.Sub(l.since))
		}
	}
	held := make(map[netip.AddrPort]bool)
	for _, p := range c.peers {
		held[p.addr] = true
	}
	c.mu.Unlock()
	for _, a := range c.rejoin.addrs {
		want[a] = rejoinEvery
	}
	self := make(map[netip.AddrPort]bool)
	for a := range want {
		self[a] = c.isSelf(a)
	}
	var ts []target
	c.rejoin.mu.Lock()
	defer c.rejoin.mu.Unlock()
	was := c.rejoin.next
	next := make(map[netip.AddrPort]time.Time, len(want))
	for a, wait := range want {
		if held[a] || self[a] {
			continue // and its next try, should it go missing, is at once
		}
		due := was[a]
		next[a] = due
		if !now.Before(due) {
			ts = append(ts, target{a, wait, due})
		}
	}
	c.rejoin.next = next
	slices.SortFunc(ts, func(a, b target) int { return a.due.Compare(b.due) })
	return ts
}

// lostWait is the time between tries of a member that failed this long ago: a twentieth of it, so
// that a split heals within a fraction of its own length, and dead addresses cost little.
func lostWait(age time.Duration) time.Duration {
	return min(max(age/20, lostSoonest), lostEvery)
}

// sweep forgets answers that nobody will ask for again, and what left long ago.
func (c *Cluster) sweep() {
	now := time.Now()
	for _, p := range c.snap.Load().byProc {
		p.seen.sweep(now)
	}
	c.poke()
}
