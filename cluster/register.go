package cluster

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Bounds of a [Register].
const (
	MaxValue = 64 << 10 // bytes of one value
	MaxNames = 10_000   // names that have a value
	maxName  = 128      // bytes
	// maxValues bounds all values together, in bytes.
	maxValues = 32 << 20
	// The sides of a partition may have filled their registers apart from each other; what comes from others is taken up to twice
	// the bounds for what is written here.
	mergeNames, mergeValues = 2 * MaxNames, 2 * maxValues
	// maxGone is how many removals are remembered. Beyond that the oldest versions are forgotten, everywhere the same.
	maxGone = 10_000
	// goneFor is how long a removal is remembered: a node that was away for longer, cut off or stopped with its state on disk, brings back
	// what it still has. A removal takes about a hundred bytes, so a week costs nothing.
	goneFor = 7 * 24 * time.Hour
	// maxVersion is far above what anybody writes; more is not taken, so that no counter runs over.
	maxVersion = 1 << 56
)

// ErrFull: the register has no room for another name or that large a value.
var ErrFull = errors.New("cluster: the register is full")

// Register is a small map from names to values that all members of a cluster share: what is written on one node reaches the others,
// also those that join later, and those that were cut off. Give it to Config.Register; alone it is a map. Make it with
// NewRegister. Safe for concurrent use; values that it returns must not be changed.
//
// Each write has a version, one above all that the writer has seen (Lamport, 1978), so that no clocks are compared; the higher version wins, of
// two equal ones that of the higher origin, a number drawn by each process. Of two writes that did not know of each other one wins, the same on
// all nodes. A removal is a write too. Every node takes what it is told by this order alone, so what is lost, doubled or late does no harm.
type Register struct {
	changed func(names []string)
	origin  uint64

	mu      sync.Mutex
	clock   uint64 // the highest version seen
	records map[string]record
	gone    int    // of these
	bytes   int    // of all values
	sum     uint64 // of all records: equal on nodes that have the same
}

// record is the last write of a name.
type record struct {
	version, origin uint64
	gone            bool
	since           time.Time // of a removal
	value           []byte
}

// NewRegister makes an empty one. changed is called with the names whose values others have changed, before they are told that
// it has arrived, on a goroutine that may take its time; it may read the register. It is not called for what Put and Delete do.
func NewRegister(changed func(names []string)) *Register {
	if changed == nil {
		changed = func([]string) {}
	}
	return &Register{changed: changed, origin: rand.Uint64(), records: map[string]record{}}
}

// beats says which of two writes of one name counts: a total order.
func (r record) beats(o record) bool {
	gone := func(r record) int {
		if r.gone {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(r.version, o.version), cmp.Compare(r.origin, o.origin), gone(r)-gone(o), bytes.Compare(r.value, o.value)) > 0
}

// hash of what makes a write different from others.
func (r record) hash(name string) uint64 {
	h := fnv.New64a()
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], r.version)
	binary.BigEndian.PutUint64(b[8:], r.origin)
	h.Write(b[:])
	h.Write([]byte(name))
	return mix(h.Sum64())
}

// set replaces the record of a name. Called with mu held.
func (r *Register) set(name string, next record) {
	r.drop(name)
	r.records[name] = next
	r.clock = max(r.clock, next.version)
	r.bytes += len(next.value)
	r.sum += next.hash(name)
	if next.gone {
		r.gone++
	}
}

func (r *Register) drop(name string) {
	was, ok := r.records[name]
	if !ok {
		return
	}
	delete(r.records, name)
	r.bytes -= len(was.value)
	r.sum -= was.hash(name)
	if was.gone {
		r.gone--
	}
}

// Put gives a name a value, which is kept and must not be changed; putting the value that it has is no write. The name has 1 to 128 bytes. Errors:
// ErrFull, or what is wrong with the name.
func (r *Register) Put(name string, value []byte) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("cluster: a name in the register has 1 to %d bytes, not %d", maxName, len(name))
	}
	if len(value) > MaxValue {
		return fmt.Errorf("%w: a value of %d bytes, at most %d", ErrFull, len(value), MaxValue)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.records[name]
	live := ok && !was.gone
	switch {
	case live && bytes.Equal(was.value, value):
		return nil
	case !live && len(r.records)-r.gone >= MaxNames:
		return fmt.Errorf("%w: %d names; remove some", ErrFull, MaxNames)
	case r.bytes-len(was.value)+len(value) > maxValues:
		return fmt.Errorf("%w: %d bytes in all; remove some", ErrFull, maxValues)
	}
	next, ok := r.next(was)
	if !ok {
		return fmt.Errorf("%w: the versions of %q are used up; give it another name", ErrFull, name)
	}
	next.value = value
	r.set(name, next)
	return nil
}

// next is a write that beats the last one of a name. When a member has told of the highest version, which nobody reaches by counting, the
// origin has to do it: by a random step, so that two who do not know of each other differ. Called with mu held.
func (r *Register) next(was record) (next record, ok bool) {
	switch step := 1 + rand.Uint64N(1<<32); {
	case r.clock < maxVersion:
		return record{version: r.clock + 1, origin: r.origin}, true
	case was.version < maxVersion:
		return record{version: maxVersion, origin: r.origin}, true
	default:
		return record{version: maxVersion, origin: was.origin + step}, was.origin+step > was.origin
	}
}

// Delete removes a name; it says whether it had a value.
func (r *Register) Delete(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.records[name]
	if !ok || was.gone {
		return false
	}
	next, ok := r.next(was)
	if !ok {
		return false
	}
	next.gone, next.since = true, time.Now()
	r.set(name, next)
	r.trim()
	return true
}

// Get is the value of a name.
func (r *Register) Get(name string) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.records[name]
	return rec.value, ok && !rec.gone
}

// Names lists those that have a value, sorted.
func (r *Register) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.records)-r.gone)
	for name, rec := range r.records {
		if !rec.gone {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// trim forgets the removals with the lowest versions while there are too many. Called with mu held.
func (r *Register) trim() {
	if r.gone <= maxGone {
		return
	}
	var names []string
	for name, rec := range r.records {
		if rec.gone {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if r.records[a].beats(r.records[b]) {
			return 1
		}
		return -1
	})
	for _, name := range names[:len(names)-maxGone] {
		r.drop(name)
	}
}

// expire forgets removals that are old enough. Called with mu held.
func (r *Register) expire(now time.Time) {
	for name, rec := range r.records {
		if rec.gone && now.Sub(rec.since) >= goneFor {
			r.drop(name)
		}
	}
}

// merge takes what is newer than what is here. It returns the names whose values are others now, and how many records were refused
// for being malformed or for want of room.
func (r *Register) merge(ws []wireRecord, now time.Time) (names []string, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range ws {
		w := &ws[i]
		if !w.valid() {
			refused++
			continue
		}
		if w.Gone && w.Age >= goneFor {
			continue
		}
		next := record{version: w.Version, origin: w.Origin, gone: w.Gone, value: w.Value}
		if w.Gone {
			next.since = now.Add(-w.Age)
		}
		was, known := r.records[w.Name]
		if known && !next.beats(was) {
			// The same removal grows no younger by being told on.
			if was.gone && next.gone && was.version == next.version && was.origin == next.origin && next.since.Before(was.since) {
				was.since = next.since
				r.records[w.Name] = was
			}
			continue
		}
		if !known && !next.gone && len(r.records)-r.gone >= mergeNames || r.bytes-len(was.value)+len(next.value) > mergeValues {
			refused++
			continue
		}
		r.set(w.Name, next)
		if !next.gone || known && !was.gone {
			names = append(names, w.Name)
		}
	}
	r.trim()
	return names, refused
}

// Encode is all of it, to be kept.
func (r *Register) Encode() []byte {
	now := time.Now()
	r.mu.Lock()
	r.expire(now)
	k := keptRegister{Clock: r.clock, Written: now.UnixMilli(), Records: make([]wireRecord, 0, len(r.records))}
	for name, rec := range r.records {
		k.Records = append(k.Records, rec.wire(name, now))
	}
	r.mu.Unlock()
	b, _ := marshal(&k) // of plain fields into memory: cannot fail
	return b
}

// Restore takes what Encode returned, as if another node had said it; changed is not called. Use it before the cluster starts. An
// error says that it cannot be read; the register is then as it was.
func (r *Register) Restore(b []byte) error {
	k, err := readKept(b)
	if err != nil {
		return err
	}
	now := time.Now()
	away := max(0, now.Sub(time.UnixMilli(k.Written)))
	for i := range k.Records {
		w := &k.Records[i]
		if !w.valid() {
			return fmt.Errorf("%w: register: record %d", errPacket, i)
		}
		if w.Gone {
			w.Age += min(away, goneFor)
		}
	}
	r.merge(k.Records, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.Clock <= maxVersion {
		r.clock = max(r.clock, k.Clock)
	}
	return nil
}
