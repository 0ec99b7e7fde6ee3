package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// How a register spreads. A write goes to every member at once and again until it is acknowledged, or the member is gone. Besides, a node
// compares sums with each member that is new to it, and with one at random every second; where they differ the two tell each other what
// the other has not, so that late joiners, healed partitions, and nodes that cannot reach each other but through a third agree. A node whose
// register is empty asks until one member has told it what there is, which may be before that one has it for a member, and then says nothing by itself.
//
// It all goes as control messages, and only to processes whose metadata say that they have a register: older ones never see any of it.

// registerFormat is told in the metadata; 0: no register.
const registerFormat = 1

const (
	// spreadEvery is the least time between two comparisons with members at random; half as much again of jitter.
	spreadEvery = time.Second
	// spreadChunk is how many bytes of records go in one message, or one record.
	spreadChunk = 512 << 10
	// syncTimeout bounds one exchange with one member; what is missing then comes with the next.
	syncTimeout = 10 * time.Second
	// syncSpread keeps the members of a cluster from all telling a newcomer the same at the same moment.
	syncSpread = 200 * time.Millisecond
	// maxRounds of one exchange: all that a register can hold, a chunk each, fits.
	maxRounds = 2*mergeValues/spreadChunk + 16
)

// spreader is the state of the spread.
type spreader struct {
	mu      sync.Mutex
	backlog map[*peer]*backlog // while a goroutine tells that member
	members chan struct{}      // room for one: the members may have changed
	asked   atomic.Bool        // one comparison has come to its end
	turn    lock               // one exchange at a time: the next may then have nothing left to say
}

// backlog is what a member has to be told.
type backlog struct {
	names map[string]bool
	told  chan struct{} // closed when it was, or the member is gone
}

// Announce tells all members of the register's entry of a name and returns when all that are still members have it, or with ctx's error; the telling goes
// on then. Call it after Put and Delete, with Config.Register set.
func (c *Cluster) Announce(ctx context.Context, name string) error {
	var wait []chan struct{}
	c.spread.mu.Lock()
	for _, p := range c.registrars() {
		b := c.spread.backlog[p]
		if b == nil {
			b = &backlog{}
			if !c.spawn(func() { c.tellBacklog(p) }) {
				continue
			}
			c.spread.backlog[p] = b
		}
		if b.told == nil {
			b.names, b.told = map[string]bool{}, make(chan struct{})
		}
		b.names[name] = true
		wait = append(wait, b.told)
	}
	c.spread.mu.Unlock()
	for _, told := range wait {
		select {
		case <-told:
		case <-ctx.Done():
			return fmt.Errorf("cluster: not all members have %q yet: %w", name, ctx.Err())
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
	return nil
}

// registrars are the members that have a register.
func (c *Cluster) registrars() (ps []*peer) {
	s := c.snap.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range s.byName {
		if p.meta.extra.Register != 0 && !p.left {
			ps = append(ps, p)
		}
	}
	return ps
}

// tellBacklog tells one member until nothing is left to tell. It tries for as long as the member is there.
func (c *Cluster) tellBacklog(p *peer) {
	for {
		c.spread.mu.Lock()
		b := c.spread.backlog[p]
		names, told := b.names, b.told
		if told == nil {
			delete(c.spread.backlog, p)
			c.spread.mu.Unlock()
			return
		}
		b.names, b.told = nil, nil
		c.spread.mu.Unlock()
		c.tellNames(p, names)
		close(told)
	}
}

// tellNames tells a member the records of some names until it has answered or is gone.
func (c *Cluster) tellNames(p *peer, names map[string]bool) {
	for {
		// A member answers what comes again for as long as it remembers what it answered, and not at all later: see seen. So what was not
		// answered in time, as when a link is cut one way, is asked anew. Being told twice does a register no harm.
		ctx, cancel := context.WithTimeout(c.ctx, syncTimeout)
		err := c.tellRecords(ctx, p, maps.Keys(names))
		late := ctx.Err() != nil
		cancel()
		switch {
		case err == nil || c.ctx.Err() != nil:
			return
		case !late: // gone, or it has answered with an error, which it would again
			c.log.Debug("cluster: register", "node", p.name, "error", err)
			return
		}
	}
}

// tellRecords sends the records of some names to a member, in as few messages as their size allows.
func (c *Cluster) tellRecords(ctx context.Context, p *peer, names func(func(string) bool)) error {
	var chunk []wireRecord
	size := 0
	flush := func() error {
		if len(chunk) == 0 {
			return nil
		}
		b, err := marshal(&chunk)
		if err == nil {
			_, err = c.tell(ctx, p, control{Op: opRecords, Data: b})
		}
		chunk, size = chunk[:0], 0
		return err
	}
	now := time.Now()
	for name := range names {
		w, ok := c.cfg.Register.record(name, now)
		if !ok {
			continue
		}
		if size += w.size(); size > spreadChunk {
			if err := flush(); err != nil {
				return err
			}
			size = w.size()
		}
		chunk = append(chunk, w)
	}
	return flush()
}

// spreadLoop compares registers.
func (c *Cluster) spreadLoop() {
	met := map[*peer]bool{}
	timer := time.NewTimer(spreadEvery + rand.N(spreadEvery/2))
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.spread.members:
			now := map[*peer]bool{}
			for _, p := range c.registrars() {
				if now[p] = true; !met[p] {
					c.spawn(func() { c.meet(p) })
				}
			}
			met = now
		case <-timer.C:
			timer.Reset(spreadEvery + rand.N(spreadEvery/2))
			c.cfg.Register.sweep(time.Now())
			if ps := c.registrars(); len(ps) > 0 && !c.quiet() {
				p := ps[rand.IntN(len(ps))]
				c.spawn(func() { _ = c.syncWith(p) })
			}
		}
	}
}

// membersChanged makes the loop look.
func (c *Cluster) membersChanged() {
	select {
	case c.spread.members <- struct{}{}:
	default:
	}
}

// meet compares registers with a new member.
func (c *Cluster) meet(p *peer) {
	if c.quiet() {
		return // it will, if it has something to say
	}
	timer := time.NewTimer(rand.N(syncSpread))
	defer timer.Stop()
	select {
	case <-timer.C:
		if !c.quiet() { // another may have told it all meanwhile
			_ = c.syncWith(p)
		}
	case <-c.ctx.Done():
	}
}

// quiet says that there is nothing to compare.
func (c *Cluster) quiet() bool { return c.spread.asked.Load() && c.cfg.Register.digest() == 0 }

// syncWith makes two registers the same, as far as one exchange can.
func (c *Cluster) syncWith(p *peer) (err error) {
	defer func() {
		if err == nil {
			c.spread.asked.Store(true)
		}
	}()
	ctx, cancel := context.WithTimeout(c.ctx, syncTimeout)
	defer cancel()
	for i := range 2 {
		theirs, err := c.tell(ctx, p, control{Op: opSum})
		if err != nil || len(theirs) != 8 || binary.BigEndian.Uint64(theirs) == c.cfg.Register.digest() {
			return err
		}
		if i == 0 { // and again, when it is our turn
			c.spread.turn.lock()
			defer c.spread.turn.unlock()
		}
	}
	for range maxRounds {
		stamps := c.cfg.Register.stamps()
		b, err := marshal(&stamps)
		if err != nil {
			return err
		}
		if b, err = c.tell(ctx, p, control{Op: opStamps, Data: b}); err != nil {
			return err
		}
		d, err := readDifference(b)
		if err != nil {
			return err
		}
		if err := c.tellRecords(ctx, p, slices.Values(d.Wants)); err != nil {
			return err
		}
		if took := c.takeRecords(p, d.Records); !d.More || !took {
			return nil
		}
	}
	return nil
}

// takeRecords merges what a member has sent, and says whether any of it was new.
func (c *Cluster) takeRecords(from *peer, ws []wireRecord) bool {
	before := c.cfg.Register.digest()
	names, refused := c.cfg.Register.merge(ws, time.Now())
	if refused > 0 {
		c.n.dropMalformed.Add(int64(refused))
		c.mu.Lock()
		c.warn("register "+from.name, "cluster: entries of the register are not taken, for want of room or because they are malformed; remove what is not needed",
			"from", from.name, "entries", refused)
		c.mu.Unlock()
	}
	if len(names) > 0 {
		c.cfg.Register.changed(names)
	}
	return c.cfg.Register.digest() != before
}

var errNoRegister = errors.New("no register here")

// registerControl acts on a control message about the register. Any process that memberlist has let in may say something: a
// newcomer does so before this node sees it as a member.
func (c *Cluster) registerControl(from *peer, m control) ([]byte, error) {
	r := c.cfg.Register
	if r == nil {
		return nil, errNoRegister
	}
	switch m.Op {
	case opSum:
		return binary.BigEndian.AppendUint64(nil, r.digest()), nil
	case opRecords:
		ws, err := readRecords(m.Data)
		if err != nil {
			return nil, err
		}
		c.takeRecords(from, ws)
		return nil, nil
	}
	theirs, err := readStamps(m.Data)
	if err != nil {
		return nil, err
	}
	return marshal(r.difference(theirs, time.Now()))
}

func (r *Register) digest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum
}

func (r *Register) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone > 0 {
		r.expire(now)
	}
}

func (r *Register) record(name string, now time.Time) (wireRecord, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.records[name]
	return rec.wire(name, now), ok
}

func (r *Register) stamps() []stamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]stamp, 0, len(r.records))
	for name, rec := range r.records {
		list = append(list, stamp{name, rec.version, rec.origin})
	}
	return list
}

// difference is what to say to one who has these.
func (r *Register) difference(theirs []stamp, now time.Time) *difference {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &difference{}
	has := make(map[string]record, len(theirs))
	for _, s := range theirs {
		has[s.Name] = record{version: s.Version, origin: s.Origin}
		ours := r.records[s.Name]
		if ours = (record{version: ours.version, origin: ours.origin}); has[s.Name].beats(ours) && len(d.Wants) < mergeNames+maxGone {
			d.Wants = append(d.Wants, s.Name)
		}
	}
	size := 0
	for name, rec := range r.records {
		if bare := (record{version: rec.version, origin: rec.origin}); !bare.beats(has[name]) {
			continue
		}
		w := rec.wire(name, now)
		if size += w.size(); size > spreadChunk && len(d.Records) > 0 {
			d.More = true
			break
		}
		d.Records = append(d.Records, w)
	}
	return d
}
