package hybrid

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestAFullOwnerRecovers: a node that has no room as owner only says so, says that there is room again, and says both anew the next time.
func TestAFullOwnerRecovers(t *testing.T) {
	logs := map[string]*strings.Builder{}
	s := slow(5)
	s.Rate.Count, s.Rate.Per = 1, 1e9
	w := newWorld(t, *firstSeed, 3, 0, s, 0)
	w.hook = func(e *Engine) {
		logs[e.cfg.Node] = &strings.Builder{}
		e.log = slog.New(slog.NewTextHandler(logs[e.cfg.Node], nil))
		e.budget.SetMaxKeys(20)
	}
	w.start(3)
	w.sleep(sec)
	owner := w.nodes[0]
	own := func(round int) (keys []string) {
		for i := 0; len(keys) < 60; i++ {
			if k := fmt.Sprint(round, "-", i); w.owner(k) == owner {
				keys = append(keys, k)
			}
		}
		return keys
	}
	for round := 1; round <= 2; round++ {
		for i, k := range own(round) {
			w.nodes[1+i%2].ask(k, 5)
		}
		if owner.e.stats.ownerFull.Load() == 0 || !owner.e.Memory().Full {
			t.Fatalf("round %d: the owner is not full: %+v", round, owner.e.Memory())
		}
		w.sleep(100 * sec)
		text := logs[owner.name].String()
		if full, free := strings.Count(text, "no room for new keys"), strings.Count(text, "there is room"); full != round || free != round || owner.e.Memory().Full {
			t.Errorf("round %d: %d times full and %d times free is said:\n%s", round, full, free, text)
		}
	}
}

// lasting gains a token in 86 seconds.
var lasting = Spec{Name: "api", Rate: bucket.Per(1000, 24*time.Hour), Burst: 1000}

// fullOwner is a world whose first node owns all that it has room for, and keys of it that it has none for.
func fullOwner(t *testing.T, policy Overflow, s Spec) (w *world, owner *simNode, keys []string) {
	w = newWorld(t, *firstSeed, 3, 0, s, 0)
	w.hook = func(e *Engine) {
		if e.cfg.Overflow = policy; e.cfg.Node == "n0" {
			e.budget.SetMaxKeys(20)
		}
	}
	w.start(3)
	w.sleep(sec)
	owner = w.nodes[0]
	for i := 0; len(keys) < 60; i++ {
		if k := fmt.Sprint("key-", i); w.owner(k) == owner {
			keys = append(keys, k)
		}
	}
	for _, k := range keys[:20] {
		if d := w.nodes[1].ask(k, 1); !d.OK {
			t.Fatalf("%s: %+v", k, d)
		}
	}
	return w, owner, keys[20:]
}

// TestAFullOwnerIsToldFromADenial: a key that its owner has no room for is refused as one that this node has none for is, when the owner says so and while that
// stands: for a tick, whatever the cost.
func TestAFullOwnerIsToldFromADenial(t *testing.T) {
	w, owner, keys := fullOwner(t, OverflowDeny, lasting)
	n := w.nodes[1]
	for i, k := range keys[:10] {
		for _, when := range []string{"by the owner", "in memory"} {
			if d := n.ask(k, int64(1+100*i)); d.Err != ErrOverflow || d.OK || d.RetryAfter != n.e.cfg.Tick {
				t.Errorf("%s: %s is refused with %+v", when, k, d)
			}
		}
	}
	asks := n.asks()
	for range 100 {
		n.ask(keys[0], 1)
	}
	if n.asks() != asks {
		t.Errorf("%d asks while a denial stands", n.asks()-asks)
	}
	w.sleep(3 * sec) // nothing is known of such a key, so there is nothing to keep
	if n.e.accounts.n > 20 {
		t.Errorf("%d accounts, of which 20 are of keys that the owner knows", n.e.accounts.n)
	}
	for i, k := range keys[10:20] {
		n.ask(k, int64(1+100*i))
	}
	owner.e.budget.SetMaxKeys(100)
	w.sleep(2 * tick)
	for i, k := range keys[10:20] {
		if d := n.ask(k, int64(1+100*i)); !d.OK {
			t.Errorf("%s with a cost of %d, when there is room: %+v", k, 1+100*i, d)
		}
	}
}

// TestTakeAllAtAFullOwner gets what the policy says, with the first request and while what the owner said stands.
func TestTakeAllAtAFullOwner(t *testing.T) {
	for policy := range Overflow(numOverflows) {
		w, _, keys := fullOwner(t, policy, lasting)
		n := w.nodes[1]
		for _, when := range []string{"by the owner", "in memory"} {
			before := n.e.stats.overflowed[OverflowDeny].Load() + n.e.stats.overflowed[OverflowAllow].Load()
			d := n.askAll(want{"api", keys[0], 1})
			if ok := policy == OverflowAllow; d.OK != ok || !ok && d.Err != ErrOverflow {
				t.Errorf("%v, %s: %+v", policy, when, d)
			}
			if after := n.e.stats.overflowed[OverflowDeny].Load() + n.e.stats.overflowed[OverflowAllow].Load(); after != before+1 {
				t.Errorf("%v, %s: %d overflows are counted", policy, when, after-before)
			}
		}
	}
}

// TestAFullOwnerHearsOfPermits that are held: nobody would tell it again before it gives more of them.
func TestAFullOwnerHearsOfPermits(t *testing.T) {
	w := newWorld(t, *firstSeed, 3, 0, permitSpec(5, time.Minute), 0)
	w.start(3)
	w.sleep(sec)
	for i := 0; ; i++ {
		k := fmt.Sprint("job-", i)
		owner := w.owner(k)
		if owner != w.nodes[0] {
			continue
		}
		owner.e.budget.SetMaxKeys(1)
		owner.e.nledgers++ // of another key
		n := w.nodes[1]
		owner.e.mu.Lock()
		g, ok := owner.e.handle(owner.e.byName[n.name], n.e.inc, &report{limit: "api", key: k, gen: 1 << 40, c: 4}, owner.clock())
		owner.e.nledgers--
		owner.e.unlock()
		if !ok || g.c != 4 || g.flags&grantOverflow != 0 {
			t.Fatalf("a report of four permits is answered with %+v", g)
		}
		d := w.nodes[2].askPermits(k, 2)
		if d.OK {
			t.Errorf("two more of five are given: %+v", d)
		}
		return
	}
}

// askPermits is ask for permits.
func (n *simNode) askPermits(key string, cost int64) Decision {
	d, p := n.limit.start(n.limit.def.Load(), key, cost)
	if n.settle(); p != nil {
		d = n.w.await(p)
	}
	return d
}
