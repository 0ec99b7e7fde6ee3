package hybrid

import (
	"strconv"
	"strings"

	"github.com/jatah-io/jatah/bucket"
)

// Overflow says what a new key gets when there is no room for it: when all room is taken by keys that are not full. The zero value is OverflowDeny.
type Overflow uint8

// What a new key may get.
const (
	OverflowDeny   Overflow = iota // refused, with ErrOverflow
	OverflowAllow                  // admitted, and not counted on any key
	OverflowShared                 // decided on one of 1024 keys that new keys share, chosen by a seeded hash of the key
	numOverflows
)

// Overflows is the number of different policies, for tables indexed by Overflow.
const Overflows = int(numOverflows)

var overflowNames = [...]string{OverflowDeny: "deny", OverflowAllow: "allow", OverflowShared: "shared"}

func (o Overflow) String() string { return name(overflowNames[:], int(o)) }

// ParseOverflow reads "deny", "allow" or "shared".
func ParseOverflow(s string) (Overflow, error) {
	i, err := parse("overflow", overflowNames[:], s)
	return Overflow(i), err
}

// MarshalText writes the policy's name.
func (o Overflow) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what ParseOverflow reads.
func (o *Overflow) UnmarshalText(b []byte) (err error) {
	*o, err = ParseOverflow(string(b))
	return err
}

// Where a new key finds no room it may be decided on a shared key: an ordinary key of the limit, with an account, a ledger, and an owner of its own, so that
// all that is promised of a key holds for it, in the whole cluster. No list of parts makes such a key, see Key in the root. It may use
// the part of the memory that is kept back, and all nodes choose the same one for a key.

// sharedKeys is how many there are for a limit and plan.
const sharedKeys = 1024

const sharedPrefix = "\x00overflow:"

// sharedNames are the shared keys of limits without plans.
func sharedNames() []string {
	names := make([]string, sharedKeys)
	for i := range names {
		names[i] = sharedPrefix + strconv.Itoa(i)
	}
	return names
}

func (e *Engine) sharedName(i int, plan string) string {
	if plan == "" {
		return e.sharedNames[i]
	}
	return e.sharedNames[i] + ":" + plan
}

// sharedKey is the shared key that a key is decided on.
func (l *Limit) sharedKey(key string) string {
	h := l.e.hash(l, key) ^ l.e.overflowSeed
	return l.e.sharedName(int((h^h>>29)*0x9e3779b97f4a7c15>>54), l.plan) // 10 bits; others than choose the partition
}

// isShared says that a key is a shared one. Only so many are, since they may use what is kept back.
func (e *Engine) isShared(key, plan string) bool {
	rest, ok := strings.CutPrefix(key, sharedPrefix)
	if !ok {
		return false
	}
	digits, _, _ := strings.Cut(rest, ":")
	i, err := strconv.Atoi(digits)
	return err == nil && i >= 0 && i < sharedKeys && key == e.sharedName(i, plan)
}

// policy is what a key gets that found no room. Permits are held by key, and a shared key is the last resort.
func (l *Limit) policy(s *Spec, key string) Overflow {
	if o := l.e.cfg.Overflow; o == OverflowAllow && !s.permits() || o == OverflowShared && !s.permits() && !l.e.isShared(key, l.plan) {
		return o
	}
	return OverflowDeny
}

// overflow decides a request whose key found no room; d is the refusal.
func (l *Limit) overflow(s *Spec, key string, cost int64, d Decision) (Decision, *Pending) {
	policy := l.policy(s, key)
	l.e.overflowed(policy)
	switch policy {
	case OverflowAllow:
		return l.count(s, key, s.uncounted()), nil
	case OverflowShared:
		key = l.sharedKey(key)
		var shared Decision
		if l.OnCredit(&shared, key, cost) {
			return shared, nil
		}
		return l.start(s, key, cost)
	}
	return d, nil
}

// noRoom is the refusal.
func (e *Engine) noRoom(s *Spec) Decision {
	return Decision{Mode: s.Mode, RetryAfter: e.cfg.Tick, Err: ErrOverflow}
}

// uncounted admits what nothing is known of.
func (s *Spec) uncounted() Decision {
	return Decision{OK: true, Mode: s.Mode, Source: SourceAllow, MaxExcess: int64(s.Overshoot * float64(s.Burst))}
}

// ownerFull says that the owner of the key has no room for it, by a denial that stands.
func (a *account) ownerFull() bool {
	r := a.refusal.Load()
	return r != nil && r.overflow
}

// makeRoomInTables forgets full keys in the tables of some limits, once in a while; it says whether it did.
func (e *Engine) makeRoomInTables() bool {
	now := e.now()
	if last := e.roomAt.Load(); now-last < crowdedFor || !e.roomAt.CompareAndSwap(last, now) {
		return false
	}
	e.mu.Lock()
	var some []*Limit
	for range min(len(e.all), roomLimits) {
		e.roomFrom = (e.roomFrom + 1) % len(e.all)
		some = append(some, e.all[e.roomFrom])
	}
	e.mu.Unlock()
	n := 0
	for _, l := range some {
		if t := l.meters.Load(); t != nil {
			n += t.Sweep(e.wall(now), looks)
		} else {
			n += l.buckets.Sweep(now, looks)
		}
		if n >= looks {
			break
		}
	}
	return n > 0
}

// hasKey says that this node's tables have something of a key.
func (l *Limit) hasKey(key string) bool {
	if t := l.meters.Load(); t != nil {
		return t.Has(key)
	}
	return l.buckets.Has(key)
}

func reservedOnBuckets(t *bucket.Table, o op, key string, p *bucket.Params, now, n int64) bucket.Result {
	switch o {
	case opTake:
		return t.TakeReserved(key, p, now, n)
	case opCharge:
		return t.ChargeReserved(key, p, now, n)
	}
	return onBuckets(t, o, key, p, now, n)
}

func reservedOnMeters(t *bucket.MeterTable, o op, key string, a *bucket.Algorithm, now, n int64) bucket.Result {
	switch o {
	case opTake:
		return t.TakeReserved(key, a, now, n)
	case opCharge:
		return t.ChargeReserved(key, a, now, n)
	}
	return onMeters(t, o, key, a, now, n)
}
