package cluster

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/jatah-io/jatah/ring"
)

// Member is a process that is alive as far as this node can tell.
type Member struct {
	Name        string
	Addr        string // "host:port" of the cluster's traffic
	Incarnation Incarnation
	HTTP        string // as in its Config
	Version     string
	Protocol    uint8         // the newest that it and this node speak
	Settle      time.Duration // as in its Config
	Grace       time.Duration

	secrets string
}

// Secrets are the fingerprints of the secrets that the member accepts, the one that it uses first. None: it has none, or does not tell, as
// those that speak PreviousProtocol do not.
func (m Member) Secrets() []string { return splitFingerprints(m.secrets) }

// Lost is a member that is gone and still remembered: one that failed until Forget (of those
// the newest 256), one that left for 10 minutes. A member that is alive is never among them.
type Lost struct {
	Name        string
	Addr        string
	Incarnation Incarnation
	Since       time.Time // when this node saw it go, or heard of it, less the age it was told
	Left        bool      // in good order
}

// View is who is there as one node sees it. Immutable: neither it nor what it points to changes.
type View struct {
	Seq     uint64 // 1 for the first; each view is one more than the one before
	Self    string
	Members []Member   // alive, this node included, sorted by name
	Lost    []Lost     // sorted by name
	Ring    *ring.Ring // of the members' names
	// Expect is the number of distinct addresses that Config.Join resolves to, plus one if this
	// node's own is not among them; 0 without Join. A look-up that fails leaves it as it was.
	Expect int
	// Unsure: Config.Join names others, and this process has met none that knows whether there is a cluster which counts without it. It
	// ends with the first such member that is met; four seconds after the start, in which the members of a cluster would have found
	// it, since they look for their seeds too; but where a seed does not answer at all, only after Grace.
	Unsure bool
	// Settle and Grace are the longest of all members'.
	Settle time.Duration
	Grace  time.Duration
}

// Member finds a member by name.
func (v *View) Member(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.Members, name, func(m Member, name string) int { return cmp.Compare(m.Name, name) })
	if !ok {
		return Member{}, false
	}
	return v.Members[i], true
}

// snapshot is a view with what it takes to reach its members.
type snapshot struct {
	view   *View
	byName map[string]*peer // who holds each member's name, but ours
	byProc map[uint64]*peer // all processes alive, members or not
}

const (
	maxLost  = 256 // failed members that are remembered: a bound for clusters whose nodes have ever new names
	leftFor  = 10 * time.Minute
	maxNamed = 1024 // forgotten names
)

// lostMember is a Lost with what is told to others of it.
type lostMember struct {
	addr  netip.AddrPort
	inc   Incarnation
	claim uint64
	since time.Time
	left  bool
}

// View is the current one.
func (c *Cluster) View() *View { return c.snap.Load().view }

// poke makes the view loop look again.
func (c *Cluster) poke() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// viewLoop publishes a new view whenever something changed.
func (c *Cluster) viewLoop() {
	first := true
	for {
		select {
		case <-c.signal:
		case <-c.ctx.Done():
			return
		}
		if !c.rebuild() {
			continue
		}
		if first {
			first = false
			close(c.first)
		}
		c.membersChanged()
		if c.ev.View != nil {
			c.ev.View(c.View())
		}
	}
}

// rebuild publishes a snapshot of what is known now. It says whether there is a new view, which is
// not before the node is a member. Only viewLoop calls it.
func (c *Cluster) rebuild() bool {
	old := c.snap.Load()
	ready := c.ready.Load()
	s := &snapshot{byName: make(map[string]*peer), byProc: make(map[uint64]*peer)}
	v := &View{Self: c.cfg.Name}

	c.mu.Lock()
	contested := c.chooseHolders(s)
	c.noteLost(old, s, time.Now())
	c.fill(v, s)
	c.mu.Unlock()

	if contested && ready {
		c.contest()
	}
	if !ready || old.view.Seq > 0 && sameView(old.view, v) {
		s.view = old.view
		c.snap.Store(s)
		return false
	}
	v.Seq = old.view.Seq + 1
	names := func(v *View) []string {
		ns := make([]string, len(v.Members))
		for i, m := range v.Members {
			ns[i] = m.Name
		}
		return ns
	}
	if ns := names(v); old.view.Ring != nil && slices.Equal(ns, names(old.view)) {
		v.Ring = old.view.Ring
	} else if r, err := ring.New(c.cfg.Ring, ns); err == nil { // the config was validated, names are not empty
		v.Ring = r
	} else {
		c.log.Error("cluster: ring", "error", err)
		v.Ring = old.view.Ring
	}
	s.view = v
	c.snap.Store(s)
	return true
}

// chooseHolders decides for each name which process holds it. It says whether one of our own name
// outranks us. Called with mu held.
func (c *Cluster) chooseHolders(s *snapshot) (contested bool) {
	for _, p := range c.peers {
		s.byProc[p.proc] = p
		if p.left || p.meta.State != active || p.meta.apart(&c.meta) {
			continue
		}
		if p.name == c.cfg.Name {
			contested = contested || c.meta.State == active && p.meta.outranks(&c.meta)
			continue
		}
		if holder := s.byName[p.name]; holder == nil || p.meta.outranks(&holder.meta) {
			s.byName[p.name] = p
		}
	}
	return contested
}

// noteLost remembers members that are gone and forgets those that are back. Called with mu held.
func (c *Cluster) noteLost(old, s *snapshot, now time.Time) {
	for name, p := range old.byName {
		if s.byName[name] == nil && c.forgotten[name].proc != p.proc {
			c.lost[name] = lostMember{addr: p.addr, inc: p.inc.Load(), claim: p.meta.Claim, since: now, left: p.left}
		}
	}
	for name := range s.byName {
		delete(c.lost, name)
	}
	if c.meta.State == active {
		delete(c.lost, c.cfg.Name) // it was kept for its claim
	}
	c.boundLost(now)
}

// boundLost drops what left long ago, and the oldest of too many. Called with mu held.
func (c *Cluster) boundLost(now time.Time) {
	maps.DeleteFunc(c.lost, func(_ string, l lostMember) bool { return l.left && now.Sub(l.since) > leftFor })
	for len(c.lost) > maxLost {
		var oldest string
		for name, l := range c.lost {
			if o := c.lost[oldest]; oldest == "" || l.left && !o.left || l.left == o.left && l.since.Before(o.since) {
				oldest = name
			}
		}
		c.log.Warn("cluster: too many lost members, forgetting the oldest", "node", oldest)
		delete(c.lost, oldest)
	}
	for name := range c.forgotten {
		if len(c.forgotten) <= maxNamed {
			break
		}
		delete(c.forgotten, name)
	}
}

// fill writes members, lost and what is agreed into v. Called with mu held.
func (c *Cluster) fill(v *View, s *snapshot) {
	v.Expect = c.expected(s)
	if v.Unsure = c.unsure(time.Now()); !v.Unsure && !c.meta.Sure && c.ready.Load() {
		c.spawn(func() { c.setMeta(func(m *meta) { m.Sure = true }) })
	}
	if len(s.byName) > 0 {
		c.notLonely()
	}
	v.Members = append(v.Members, c.meta.member(c.cfg.Name, c.addr.String(), &c.meta))
	for name, p := range s.byName {
		m := p.meta.member(name, p.addr.String(), &c.meta)
		m.Incarnation = p.inc.Load()
		v.Members = append(v.Members, m)
	}
	slices.SortFunc(v.Members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	for _, m := range v.Members {
		v.Settle, v.Grace = max(v.Settle, m.Settle), max(v.Grace, m.Grace)
		if m.Settle != c.cfg.Settle || m.Grace != c.cfg.Grace {
			c.warn("agree "+m.Name, "cluster: settle or grace differs between nodes, the longest counts",
				"node", m.Name, "settle", m.Settle, "grace", m.Grace, "settle_here", c.cfg.Settle, "grace_here", c.cfg.Grace)
		}
	}
	for name, l := range c.lost {
		if name != c.cfg.Name {
			v.Lost = append(v.Lost, Lost{Name: name, Addr: l.addr.String(), Incarnation: l.inc, Since: l.since, Left: l.left})
		}
	}
	slices.SortFunc(v.Lost, func(a, b Lost) int { return cmp.Compare(a.Name, b.Name) })
}

func sameView(a, b *View) bool {
	return a.Expect == b.Expect && a.Unsure == b.Unsure && a.Settle == b.Settle && a.Grace == b.Grace &&
		slices.Equal(a.Members, b.Members) && slices.Equal(a.Lost, b.Lost)
}
