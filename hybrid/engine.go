package hybrid

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/jatah-io/jatah/internal/budget"
	"github.com/jatah-io/jatah/ring"
)

// Network carries an engine's messages to other members.
type Network interface {
	// Send is one way and may lose, double, delay and reorder. It must not block for long
	// and must not keep msg, which the engine writes to again. Messages are at most Config.MaxMessage bytes.
	Send(to string, msg []byte) error
	// Transfer delivers a message of any size or fails. It may block.
	Transfer(to string, msg []byte) error
}

// Config is an engine's configuration. Zero fields mean the defaults named beside them.
type Config struct {
	Node       string  // this member's name
	Network    Network // nil: one node alone, which decides on the bare bucket
	Ring       ring.Config
	Tick       time.Duration // sync interval; 100 ms. TTL is five of it
	AskTimeout time.Duration // longest wait for an owner; 50 ms
	Settle     time.Duration // how long a change of membership needs to reach everybody; 2 s
	Grace      time.Duration // how long a failed member's share stays reserved; 60 s; negative: for ever
	Expect     int           // members that the cluster is meant to have, if known
	MaxMessage int           // bytes; 1200
	MaxKeys    int           // keys used at this node, and apart from them keys that it owns; 1 << 20, without a bound where MaxMemory is set
	MaxMemory  int64         // bytes of keys and what is stored of them; 0: no bound
	Overflow   Overflow      // what a new key gets when there is no room
	Logger     *slog.Logger  // nil: discards

	// Incarnation gives the bits that name this engine among those of its node, of which the lower 40 are used; nil: crypto/rand.
	Incarnation func() uint64
}

// An incarnation is the engine's own 40 bits and a count of the lives it has begun: of two lives of one engine the higher is the later.
const livesBits = 24

func firstLife(engine uint64) uint64 { return max(engine<<livesBits, 1<<livesBits) }

// nextLife is the incarnation after one; once they are used up, half a year of a life each second, it is that of another engine.
func nextLife(inc uint64, engine func() uint64) uint64 {
	if inc+1 == 0 || (inc+1)>>livesBits != inc>>livesBits {
		return firstLife(engine())
	}
	return inc + 1
}

// outlived says that a peer which has begun a life has ended the other one: both are of one engine, and it is the earlier.
func outlived(inc, by uint64) bool { return inc>>livesBits == by>>livesBits && inc < by }

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Tick, 100*time.Millisecond)
	def(&c.AskTimeout, 50*time.Millisecond)
	def(&c.Settle, 2*time.Second)
	def(&c.Grace, time.Minute)
	if c.MaxMessage == 0 {
		c.MaxMessage = 1200
	}
	if c.MaxKeys == 0 {
		if c.MaxKeys = 1 << 20; c.MaxMemory > 0 {
			c.MaxKeys = math.MaxInt
		}
	}
	if c.Ring.Partitions == 0 {
		c.Ring.Partitions = ring.DefaultPartitions
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Incarnation == nil {
		c.Incarnation = func() uint64 {
			var b [8]byte
			_, _ = rand.Read(b[:]) // never fails, see crypto/rand
			return binary.LittleEndian.Uint64(b[:])
		}
	}
	return c
}

// Engine decides for one node: it is the lender of its share, the holder of credit, and the owner of
// the partitions that the ring gives it.
//
// Its core is a state machine without I/O: time comes in as an argument, messages go out over a list that is
// sent once the lock is released. Safe for any number of goroutines; must not be copied.
type Engine struct {
	cfg       Config
	epoch     time.Time    // of the engine's clock
	zero      int64        // the same in Unix time, ns
	anchor    atomic.Int64 // Unix time of the clock's zero, in nanoseconds
	wallClock func() int64 // Unix time; nil: the anchor stays
	tick      int64        // ns
	ttl       int64
	log       *slog.Logger

	clock        func() int64 // own monotonic clock
	spawn        func(func()) // runs what may block
	limits       *xsync.Map[string, *Limit]
	stats        counts
	closed       atomic.Bool
	bareMu       sync.Mutex  // take-alls on bare buckets, one at a time
	permits      permitTable // has a lock of its own
	forwards     forwards    // as well
	parallel     int         // goroutines that run at once
	processors   processors
	hots         hotTable
	splitK       atomic.Int64 // K that shares of split mode are made for
	budget       *budget.Budget
	crowdedUntil atomic.Int64 // own clock: until then a new key would find no room
	full         atomic.Bool  // a new key found none lately
	overflowSeed uint64
	sharedNames  []string
	roomLog      roomLog
	roomAt       atomic.Int64  // own clock: when room was looked for in all tables
	kick         chan struct{} // wakes the loop that resends asks
	done         chan struct{}
	loops        sync.WaitGroup

	mu          sync.Mutex
	inc         uint64 // this life's incarnation
	ownEpoch    uint64 // how often the set of owned partitions changed
	born        int64
	lastTick    int64
	ticks       uint64
	leaving     bool
	welcome     uint64 // the incarnation that every member counts
	retired     bool   // the others are being told that this node is gone: it has no share any more
	established bool   // others were settled when this process came
	started     bool   // settled, and ticked since: the node's share is in use

	view    View
	peers   []*peer // sorted by name; includes this node
	byName  map[string]*peer
	self    *peer
	k       int
	ownK    int // as this node counts, without what others say
	counted countedSet
	kHist   []kMoment

	lend  []lending // by partition
	parts []*partition

	gen          uint64
	byGen        map[uint64]*account
	accounts     accountTable
	hot          []*account     // whose credit is divided
	solo         bool           // nobody else is there: see solo.go
	lone         bool           // nobody else was there, or counted, in the last tick
	nsolo        int            // keys that are solo
	scratch      []byte         // for a key
	gone         [3][]gonePurse // dropped in this tick, and in the two before
	active       []*account
	asks         []*account // with an ask in flight
	pollAt       int64      // when Poll is to be called next; 0: not before there is a new ask
	pcursor      int        // of the sweep of ledgers
	scursor      int        // of the sweep of copies
	nledgers     int
	ledgersFull  int64    // until then a new ledger would find no room
	all          []*Limit // of limits
	spentAt      int      // of all, where settleSpent goes on
	roomFrom     int      // of all, where makeRoom goes on
	telling      []*tell
	recalling    []*lateRecall
	unlent       bits // partitions whose owner does not know yet what permits this node holds
	permitLimits int  // how many limits count permits
	handing      []*handing
	pendings     bool             // some partition has a hand-off that came too early
	standby      map[int]*standby // by partition: what this node keeps as heir
	removed      []removedLimit
	handSeq      uint64
	standbySeq   uint64
	unconfirmed  []*sentStandby
	heirTurn     int      // the partition whose heir is served first in this tick
	kept         kept     // from before the cluster stopped
	undelivered  [][]byte // hand-offs of a node that leaves that were given up

	out      *outbox   // what is to be sent once the lock is released; nil: nothing
	outboxes sync.Pool // of *outbox
	decoders sync.Pool // of *decoder
	grants   []grant   // answers to the reports of a message, while it is taken in
	off      rules
}

// rules are safety rules that a test can switch off, to show that its schedules would notice their absence.
type rules uint8

const (
	ruleFormer     rules = 1 << iota // a share is not counted before its former owner has stopped using it
	ruleSettle                       // a change of K counts only when everybody had time to hear of it
	ruleWait                         // a lender does not use its share before its loan has run out
	ruleGeneration                   // credit of another owner, or of another life of the owner, is void
)

type outgoing struct {
	to   string
	msg  []byte
	bulk bool
}

// outbox is what was queued in one visit to the lock. The messages that are not bulk lie in w, and w is used again once they were sent.
type outbox struct {
	list []outgoing
	w    writer
}

// New makes an engine. Run starts its loops; until SetView is called it has no members.
func New(cfg Config) *Engine {
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, epoch: time.Now(), tick: int64(cfg.Tick), ttl: 5 * int64(cfg.Tick), log: cfg.Logger,
		limits: xsync.NewMap[string, *Limit](),
		kick:   make(chan struct{}, 1), done: make(chan struct{}),
		byName: map[string]*peer{}, byGen: map[uint64]*account{}, standby: map[int]*standby{},
		parallel: runtime.GOMAXPROCS(0),
	}
	e.stats.init()
	e.budget = budget.New(int64(cfg.MaxKeys), cfg.MaxMemory, reserveOf(cfg.MaxMemory, cfg.Overflow))
	e.permits.budget = e.budget
	if cfg.MaxKeys == math.MaxInt {
		e.budget.SetMaxKeys(0)
	}
	if e.sharedNames = sharedNames(); e.alone() {
		e.overflowSeed = cfg.Incarnation()
	}
	e.zero = e.epoch.UnixNano() - 1
	e.anchor.Store(e.zero)
	e.wallClock = func() int64 { return time.Now().UnixNano() }
	e.clock = func() int64 { return int64(time.Since(e.epoch)) + 1 }
	e.spawn = func(f func()) { e.loops.Go(f) }
	e.inc = firstLife(cfg.Incarnation())
	e.lend = make([]lending, cfg.Ring.Partitions)
	e.parts = make([]*partition, cfg.Ring.Partitions)
	for i := range e.parts {
		e.parts[i] = &partition{id: i}
	}
	return e
}

// now is the engine's clock: monotonic nanoseconds since it was made, starting at 1 so that 0 can mean never.
func (e *Engine) now() int64 { return e.clock() }

// unix is a moment of the engine's clock as a time of day, in nanoseconds since 1970.
func (e *Engine) unix(at int64) int64 { return e.zero + at }

// alone says that there is no network: this node has the whole of every limit.
func (e *Engine) alone() bool { return e.cfg.Network == nil }

// Run starts the loops that keep the engine going; Close ends them.
func (e *Engine) Run() {
	e.mu.Lock()
	e.born, e.lastTick = e.now(), e.now()
	e.mu.Unlock()
	e.loops.Add(2)
	go e.tickLoop()
	go e.askLoop()
}

func (e *Engine) tickLoop() {
	defer e.loops.Done()
	t := time.NewTicker(e.cfg.Tick)
	defer t.Stop()
	boot := newBootClock()
	for {
		select {
		case <-e.done:
			return
		case <-t.C:
			e.Tick(e.now(), boot.suspended())
		}
	}
}

// askLoop resends asks and ends those that waited too long. It sleeps while there is none.
func (e *Engine) askLoop() {
	defer e.loops.Done()
	t := time.NewTimer(time.Duration(pollEvery)) // there is no ask yet
	defer t.Stop()
	for {
		select {
		case <-e.done:
			return
		case <-e.kick:
		case <-t.C:
		}
		if next := e.Poll(e.now()); next > 0 {
			t.Reset(time.Duration(next))
		}
	}
}

// Tick does what is due every sync interval. late is how long the machine was suspended since the last
// tick, which the monotonic clock does not show.
func (e *Engine) Tick(now int64, late time.Duration) {
	start := time.Now()
	defer func() {
		took := int64(time.Since(start))
		e.stats.tick.Store(took)
		e.stats.ticking.note(took)
	}()
	e.tickTop(now)
	e.expirePermits(now, late)
	e.tickRoom(now)
	if e.alone() {
		if late > 0 {
			e.reanchor(now)
		}
		e.sweepBuckets(now)
		return
	}
	e.mu.Lock()
	now = max(now, e.now()) // it may have waited for the lock
	e.doTick(now, int64(late))
	e.unlock()
	e.tickKeys(now)
}

// Receive takes in a message from a member. It keeps nothing of msg, which must not change before it returns.
func (e *Engine) Receive(now int64, from string, msg []byte) {
	d, _ := e.decoders.Get().(*decoder)
	if d == nil {
		d = &decoder{}
	}
	defer e.decoders.Put(d)
	defer d.release()
	m, err := d.decode(msg)
	if err != nil {
		e.stats.malformed.Add(1)
		e.log.Debug("message dropped", "from", from, "err", err)
		return
	}
	e.mu.Lock()
	e.receive(now, from, m)
	e.unlock()
}

// Now is the engine's clock, for callers of Tick, Receive and Poll.
func (e *Engine) Now() int64 { return e.now() }

// unlock releases the lock and sends what was collected under it.
func (e *Engine) unlock() {
	box := e.out
	e.out = nil
	e.mu.Unlock()
	if box == nil {
		return
	}
	for i := range box.list {
		o := &box.list[i]
		if o.bulk {
			e.carry(*o)
		} else if err := e.cfg.Network.Send(o.to, o.msg); err != nil {
			e.stats.unsent.Add(1)
		}
	}
	clear(box.list)
	box.list, box.w.buf = box.list[:0], box.w.buf[:0]
	e.outboxes.Put(box)
}

func (e *Engine) carry(o outgoing) { e.spawn(func() { e.transfer(o) }) }

func (e *Engine) transfer(o outgoing) {
	if err := e.cfg.Network.Transfer(o.to, o.msg); err != nil {
		e.log.Debug("transfer failed, will be tried again", "to", o.to, "err", err)
	}
}

// outbox is where what is queued now goes.
func (e *Engine) outbox() *outbox {
	if e.out == nil {
		if e.out, _ = e.outboxes.Get().(*outbox); e.out == nil {
			e.out = &outbox{}
		}
	}
	return e.out
}

// post queues bytes for Network.Transfer, which may hold them for as long as it takes.
func (e *Engine) post(to string, msg []byte) {
	box := e.outbox()
	box.list = append(box.list, outgoing{to, msg, true})
}

// send queues a message for a member; it carries the stamps that every message carries. It keeps nothing of m: the lists in it may be
// used again at once.
func (e *Engine) send(to *peer, m *message, now int64, bulk bool) {
	m.stamp = stamp{e.inc, e.ownEpoch, now}
	m.echo = to.stamp
	box := e.outbox()
	start := len(box.w.buf)
	box.w.message(m)
	msg := box.w.buf[start:len(box.w.buf):len(box.w.buf)] // stays what it is where the buffer grows and moves
	if bulk {
		msg = bytes.Clone(msg) // it is sent when the buffer is in use again
	}
	box.list = append(box.list, outgoing{to.name, msg, bulk})
	e.stats.sent.Add(1)
	to.spokenAt = now
}

// Close ends the loops. What waits for an owner is decided by fallback. Leave comes first where a hand-off is wanted.
func (e *Engine) Close() {
	if !e.closed.CompareAndSwap(false, true) {
		return
	}
	e.mu.Lock()
	for _, a := range e.asks {
		for _, w := range a.ask.waiters {
			w.done <- Decision{Err: ErrClosed, Mode: a.limit.spec.Mode, RetryAfter: e.cfg.Tick}
		}
		a.ask = nil
	}
	e.asks = nil
	e.permits.removeAll(nil)
	e.limits.Range(func(_ string, l *Limit) bool {
		l.setQuick() // a take on credit does not look whether the engine is closed
		return true
	})
	for _, a := range e.active {
		a.r += a.drain()
	}
	e.mu.Unlock()
	close(e.done)
	e.loops.Wait()
}

func (e *Engine) newRing(members []string) (*ring.Ring, error) { return ring.New(e.cfg.Ring, members) }

func (e *Engine) ringHash(limit, key string) uint64 { return ring.Hash(e.cfg.Ring.Seed, limit, key) }

// partOf is the partition of a hash: the same on every node, whatever its view.
func (e *Engine) partOf(hash uint64) int { return int(hash % uint64(len(e.parts))) }

// Fit sets the largest message that the network takes, in bytes.
func (e *Engine) Fit(maxMessage int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cfg.MaxMessage = maxMessage
}
