package hybrid

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/jatah-io/jatah/ring"
)

// View is the membership as this node sees it.
type View struct {
	Alive  []string   // names, sorted, with this node's own
	Lost   []Lost     // members that went away
	Ring   *ring.Ring // over Alive
	Expect int        // distinct addresses that the seeds resolve to; 0: unknown
	Unsure bool       // there may be a cluster that this node has not found: it has no share
	Settle time.Duration
	Grace  time.Duration // both 0: as configured; otherwise what the cluster agrees on
}

// Lost is a member that is no longer alive.
type Lost struct {
	Name  string
	Since int64 // engine clock
	Left  bool  // in good order: nothing is kept for it
}

// countedSet is the members among whom a limit is divided, and how many they are at least.
type countedSet struct {
	k     int
	names []string
	print uint64 // 0: some member counts more than these, so that nobody's rank among them is known
}

type kMoment struct {
	at  int64
	set countedSet
}

// peer is another member, or this node itself.
type peer struct {
	name        string
	present     bool   // in the view
	inc         uint64 // its incarnation, 0 while unknown
	retired     []uint64
	stamp       stamp // the newest heard of it
	echoed      int64 // the newest own time it has echoed
	heardAt     int64 // when it last echoed something new: proof that both directions work
	spokenAt    int64
	k           int // how many members it counts, when it last said so
	kAt         int64
	counts      uint64 // the incarnation of this node that it is known to have in its view
	counted     uint64 // the incarnation that it counts though it may not know of it: it counted the one before a pause that was shorter than grace
	loanAt      int64  // its own time of the newest loan taken in
	reports     []report
	flights     flights    // asks on their way to it
	asking      []*account // whose asks, or news, wait for one of those to be answered
	acks        []uint64   // standby messages to confirm
	copies      []copyOf   // standby records to send
	items       []standbyItem
	standbyRoom int
	standbySent int     // packets of them in this tick
	due         []grant // news for the next tick
	probedAt    int64
}

func (e *Engine) peer(name string) *peer {
	if p := e.byName[name]; p != nil {
		return p
	}
	p := &peer{name: name}
	e.byName[name] = p
	i, _ := slices.BinarySearchFunc(e.peers, name, func(p *peer, n string) int { return strings.Compare(p.name, n) })
	e.peers = slices.Insert(e.peers, i, p)
	return p
}

// ownerOf is the member that owns a partition in this node's view, nil if there is none.
func (e *Engine) ownerOf(part int) *peer { return e.lend[part].owner }

// SetView takes in a change of membership. The ring must be the same on every node with the same members.
func (e *Engine) SetView(now int64, v View) {
	e.endSolo(now)
	e.mu.Lock()
	e.setView(now, v)
	e.unlock()
}

func (e *Engine) setView(now int64, v View) {
	if e.self == nil {
		e.self = e.peer(e.cfg.Node)
		e.self.inc = e.inc
	}
	e.solo = false
	e.dissolve(nil, now)
	e.view = v
	was := map[*peer]bool{}
	for _, p := range e.peers {
		was[p], p.present = p.present, false
	}
	for _, n := range v.Alive {
		p := e.peer(n)
		if !was[p] && p != e.self {
			e.awaitNew(n, now)
		}
		if !p.present && p != e.self && p.heardAt == 0 {
			p.heardAt = now // give it three ticks to answer
		}
		p.present = true
	}
	e.countMembers(now)
	var gained []gain
	var lost []int
	for i := range e.lend {
		name, ok := "", false
		if v.Ring != nil {
			name, ok = v.Ring.Owner(i)
		}
		var owner *peer
		if ok {
			owner = e.peer(name)
		}
		if owner == e.lend[i].owner {
			continue
		}
		prev := e.lend[i].owner
		e.endLoan(i, now)
		e.lend[i].owner = owner
		if e.parts[i].owned && owner != e.self {
			lost = append(lost, i)
		}
		if owner == e.self && !e.leaving {
			gained = append(gained, gain{i, prev})
		}
	}
	for p := range was {
		if was[p] && !p.present {
			e.membersGone(now)
			break
		}
	}
	if len(lost) > 0 {
		e.letGo(lost, now)
	}
	if len(gained) > 0 {
		e.takeOver(gained, now)
	}
	// Credit of another owner is void now, not when its key is asked for next: a take does not look at the ring.
	for _, a := range slices.Clone(e.active) {
		was := a.owner
		if e.bind(a); a.owner != was && a.ask != nil {
			e.sendAsk(a, now)
		}
	}
	e.sayHeld(now)
	e.forgetPeers(now)
}

// gain is a partition that came to this node, and who had it before.
type gain struct {
	part int
	from *peer
}

// takeOver makes this node the owner of partitions that its ring gives it.
func (e *Engine) takeOver(gained []gain, now int64) {
	e.ownEpoch++
	for _, g := range gained {
		p := e.parts[g.part]
		e.unstoreAll(p)
		p.take(e.ownEpoch, now)
		e.awaitLoans(p)
		e.ownShare(p, now)
		switch s := e.standby[g.part]; {
		case s != nil && g.from != nil && s.owner == g.from.name:
			e.adopt(p, s, now)
		case !e.settled(now):
			p.fresh = true
		default:
			p.told = true // by nobody: its keys start empty
		}
		e.dropStandby(g.part)
		for _, h := range p.pending {
			if now < h.until {
				e.applyHandOff(p, h.h, now)
			}
		}
		p.pending = nil
		e.settleShares(p, now)
	}
}

// startFull ends the wait of a partition that was taken over while the process started: nobody told anything of it, so
// with fallback share its keys start full, each share bringing its part.
//
// Where others were settled already when this process came, the cluster is not a new one: then somebody knew the balances, and
// if they got lost on the way the keys start empty. A former owner that was new itself says so.
func (e *Engine) startFull(p *partition, now int64) {
	switch {
	case !p.fresh || p.told || !e.settled(now):
	case e.established && !p.handedFresh:
		p.fresh, p.told = false, true
	default:
		e.settleShares(p, now) // what comes first brings its part after the records are in place
		e.startFrom(p, nil, true, now)
		p.lineage = e.inc
		e.useKept(p, now, true)
	}
}

// ownShare renews the loan that a node makes to itself.
func (e *Engine) ownShare(p *partition, now int64) {
	s := p.shareOf(e.cfg.Node)
	s.inc, s.k, s.counted, s.until = e.inc, e.weight(now), e.counted.print, now+e.ttl
	s.formers = s.formers[:0]
	for _, f := range e.lend[p.id].formers {
		if f.inc != e.inc {
			s.formers = append(s.formers, formerShare{f.inc, f.epoch, f.until})
		}
	}
}

// countMembers keeps the history of K: the members seen alive, plus those that failed less than grace ago.
func (e *Engine) countMembers(now int64) {
	grace := int64(e.cfg.Grace)
	settle := e.settle()
	if e.view.Grace != 0 {
		grace = int64(e.view.Grace)
	}
	names := slices.Clone(e.view.Alive)
	for _, l := range e.view.Lost {
		if !l.Left && (grace < 0 || now < l.Since+grace) && !slices.Contains(names, l.Name) {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	e.ownK = max(len(names), e.cfg.Expect, e.view.Expect, 1)
	set := countedSet{k: max(e.ownK, e.toldK(now)), names: names}
	if n := len(e.kHist); n == 0 || e.kHist[n-1].set.k != set.k || !slices.Equal(e.kHist[n-1].set.names, names) {
		var d xxhash.Digest
		d.Reset()
		for _, n := range names {
			var l [8]byte
			binary.LittleEndian.PutUint64(l[:], uint64(len(n)))
			_, _ = d.Write(l[:])
			_, _ = d.WriteString(n)
		}
		if set.print = max(1, d.Sum64()); set.k > e.ownK {
			set.print = 0
		}
		e.kHist = append(e.kHist, kMoment{now, set})
	}
	// A moment counts until settle after the next one began.
	for len(e.kHist) > 1 && e.kHist[1].at < now-settle {
		e.kHist = e.kHist[1:]
	}
	most := e.kHist[0].set
	for _, h := range e.kHist[1:] {
		if h.set.k >= most.k || e.off&ruleSettle != 0 {
			most = h.set
		}
	}
	if e.k != most.k {
		e.splitK.Store(0) // shares of split mode are made anew
	}
	e.counted, e.k = most, most.k
	e.welcomed()
}

// toldK is the most members that another one counts. Who joins may be told of some members late, and whoever counts too few takes
// too much; the one who is missing is known to somebody.
func (e *Engine) toldK(now int64) (k int) {
	for _, p := range e.peers {
		if p.present && p != e.self && now-p.kAt < e.settle() {
			k = max(k, p.k)
		}
	}
	return k
}

// rank is this node's place among the members counted, for a key's odd tokens.
func (e *Engine) rank(hash uint64) int {
	return rankOf(e.counted.names, e.cfg.Node, hash, e.counted.print != 0)
}

func (e *Engine) settle() int64 {
	if e.view.Settle != 0 {
		return int64(e.view.Settle)
	}
	return int64(e.cfg.Settle)
}

// settled says whether this node has been up for settle: until then its share may still be another's.
func (e *Engine) settled(now int64) bool {
	return now >= e.born+e.settle() || e.off&ruleSettle != 0
}

// weight is K, so that the node's share of every limit is 1/K; 0 while it has no share.
func (e *Engine) weight(now int64) int {
	if !e.settled(now) || e.retired || e.view.Unsure || e.welcome != e.inc && e.off&ruleSettle == 0 {
		return 0
	}
	return e.k
}

// welcomed notes whether every member that counts is known to count this node. Until then some may have divided among
// themselves what would be this node's share: settle is enough for the word to spread, but not across a partition. A member that cannot be
// reached is waited for as long as it counts: for grace. Not so where it counted this node before a short pause: it has done so ever since, as
// a member that lives or that failed.
func (e *Engine) welcomed() {
	if e.welcome == e.inc {
		return
	}
	for _, n := range e.counted.names {
		if n == e.cfg.Node {
			continue
		}
		if p := e.byName[n]; p == nil || p.counts != e.inc && (p.present || p.counted != e.inc) {
			return
		}
	}
	e.welcome = e.inc
}

// forgetPeers drops what is kept of members that nobody speaks of any more.
func (e *Engine) forgetPeers(now int64) {
	if len(e.peers) < 2*len(e.view.Alive)+len(e.view.Lost)+16 {
		return
	}
	e.peers = slices.DeleteFunc(e.peers, func(p *peer) bool {
		drop := !p.present && p.heardAt < now-int64(time.Hour) && p != e.self
		if drop {
			delete(e.byName, p.name)
		}
		return drop
	})
}

// silent says that a peer has not answered for three ticks.
func (e *Engine) silent(p *peer, now int64) bool {
	return p != e.self && (p == nil || now-p.heardAt >= 3*e.tick)
}
