package distributed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jatah-io/jatah/bench/internal/proc"
)

// rule is the limit that a target enforces, per key.
type rule struct {
	name  string // of the limit, where the peer names them
	rate  int64  // tokens per second
	burst int64
}

// ample never denies, so that all peers do the same work.
var ample = rule{"ample", 1_000_000_000, 1_000_000_000}

// tight is what a flood meets.
var tight = rule{"tight", 1000, 1000}

// answer is what one call decided.
type answer struct {
	allowed int
	denied  int
	// by a fallback, because whoever decides was silent; they are in neither of the above
	oddAllowed int
	oddDenied  int
}

// oddly is the answer of a fallback.
func (a answer) oddly() answer { return answer{oddAllowed: a.allowed, oddDenied: a.denied} }

func (a answer) plus(b answer) answer {
	return answer{a.allowed + b.allowed, a.denied + b.denied, a.oddAllowed + b.oddAllowed, a.oddDenied + b.oddDenied}
}

func one(allowed bool) answer {
	if allowed {
		return answer{allowed: 1}
	}
	return answer{denied: 1}
}

// target is one way to ask one peer.
type target struct {
	name    string
	note    string
	clients int // that take knows
	batch   int // keys of one call
	// keys are those that a caller uses: where a peer has owners of keys, keys of which the first client's node is no owner.
	keys []string
	// take decides one token for each of the keys, asked by a client.
	take func(ctx context.Context, client int, keys []string) (answer, error)
	// procs are the processes that work for it, besides this one.
	procs []*proc.Process
}

const keysInUse = 1000

// keyName: all targets draw from the same names in the same order.
func keyName(i int) string { return fmt.Sprintf("user:%d", 10_000+i) }

// firstKeys returns the first names that are wanted; nil wants all. Where want fails, it is asked again for a while: on a busy machine
// an owner may be late.
func firstKeys(ctx context.Context, want func(key string) (bool, error)) ([]string, error) {
	keys := make([]string, 0, keysInUse)
	for i := 0; len(keys) < keysInUse; i++ {
		if i == 100*keysInUse {
			return nil, fmt.Errorf("distributed: among %d keys only %d are owned by another node", i, len(keys))
		}
		key := keyName(i)
		if want != nil {
			ok, err := want(key)
			for tries := 0; err != nil && tries < 50 && ctx.Err() == nil; tries++ {
				sleep(ctx, 20*time.Millisecond)
				ok, err = want(key)
			}
			if err != nil {
				return nil, fmt.Errorf("distributed: who owns %s: %w", key, err)
			}
			if !ok {
				continue
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// drawn is the order in which a caller asks for its keys: long enough for any batch to be cut out of it at any place, and starting anew.
// The same for all targets.
func (t *target) drawn() []string {
	const length = 8192
	r := rand.New(rand.NewPCG(1, 2))
	order := make([]string, length+t.batch)
	for i := range length {
		order[i] = t.keys[r.IntN(len(t.keys))]
	}
	copy(order[length:], order)
	return order
}

// caller asks for keys in turn.
type caller struct {
	t     *target
	order []string
	at    int
}

// callersOf makes n callers of the first client, which begin at different places.
func callersOf(t *target, n int) []*caller {
	order := t.drawn()
	cs := make([]*caller, n)
	for i := range cs {
		cs[i] = &caller{t, order, i * 997 % (len(order) - t.batch)}
	}
	return cs
}

func (c *caller) call(ctx context.Context) (answer, error) {
	if c.at >= len(c.order)-c.t.batch {
		c.at = 0
	}
	keys := c.order[c.at : c.at+c.t.batch]
	c.at += c.t.batch
	return c.t.take(ctx, 0, keys)
}

// cpu is the processor time used so far by this process and those of the target.
func (t *target) cpu() (time.Duration, error) {
	sum, err := ownCPU()
	if err != nil {
		return 0, err
	}
	for _, p := range t.procs {
		used, err := p.CPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}
