package bucket

import (
	"math/bits"
	"sync/atomic"
)

// record is a bucket in a table: three words without pointers, which lie beside the key.
//
// Takers hold no lock, so between any two of their steps the record may be converted, or forgotten and given to another key. Then it begins a
// new life, with another number in its state. What they do in the end is to compare the word of TAT with the one that they began with, and
// that must fail if the record began a new life since, though TAT of the new life, in units of other Params perhaps, may well be the same number. So a salt is
// added to TAT in the word, which is different in each life: the word of one life is that of another by a chance of 1 in 2^64, in each such race.
//
// Who loads the word, then state and newest, and then finds the same word again has those of one life. For a life ends and begins in this order,
// under the table's lock:
//
//	word = busy;  state, newest, key;  word = TAT + salt
//
// By that chance TAT + salt is busy too. Takers then wait for the lock, and give the record another salt: see Table.await.
type record struct {
	state atomic.Uint64 // whether the Params are its own, their number, and the life
	cell                // its last word, which keytable loads before it compares the key, is that of TAT
}

// busy is the word of a record between two lives, and of one that was never used.
const busy = 0

const (
	ownBit     = 1 << 63 // made with Params of its own: SetParams leaves it alone
	numberBits = 31      // below it; more numbers than there is room for keys
)

func numberOf(state uint64) uint32 { return uint32(state>>32) & (1<<numberBits - 1) }

// salt is what is added to TAT in this state.
func (t *Table) salt(state uint64) uint64 {
	hi, lo := bits.Mul64(state^t.seed, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// born is the state of a new life. Called under the lock.
func (t *Table) born(number uint32, own bool) uint64 {
	t.life++
	state := uint64(number)<<32 | uint64(t.life)
	if own {
		state |= ownBit
	}
	return state
}

// numbered has the Params that are in use in a table, by small numbers. It grows and changes under the table's lock.
type numbered struct {
	list atomic.Pointer[[]atomic.Pointer[Params]] // once set, no place is empty again
	of   map[Params]uint32
	refs []int32 // how many keys have them, and the limit
	free []uint32
}

// at returns the Params of a number. To those who have the number from a state that is over since it may be others'.
func (x *numbered) at(number uint32) *Params { return (*x.list.Load())[number].Load() }

// use returns the number of Params, for one more key. The same numbers mean the same Params.
func (x *numbered) use(p *Params) uint32 {
	n, ok := x.of[*p]
	if !ok {
		n = x.vacant()
		x.of[*p] = n
	}
	x.refs[n]++
	(*x.list.Load())[n].Store(p) // the newest pointer is the one that is compared with
	return n
}

func (x *numbered) vacant() uint32 {
	if f := len(x.free); f > 0 {
		n := x.free[f-1]
		x.free = x.free[:f-1]
		return n
	}
	n := len(x.refs)
	x.refs = append(x.refs, 0)
	if old := x.list.Load(); old == nil || n == len(*old) {
		list := make([]atomic.Pointer[Params], max(4, 2*n))
		for i := range n {
			list[i].Store((*old)[i].Load())
		}
		x.list.Store(&list)
	}
	return uint32(n)
}

// leave says that one key less has them.
func (x *numbered) leave(number uint32) {
	if x.refs[number]--; x.refs[number] == 0 {
		delete(x.of, *x.at(number))
		x.free = append(x.free, number)
	}
}
