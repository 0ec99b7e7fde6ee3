package hybrid

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// tap keeps what a node transfers, and lets it through unless told to hold it.
type tap struct {
	Network
	hold bool
	sent []parcel
}

type parcel struct {
	to  string
	msg []byte
}

func (t *tap) Transfer(to string, msg []byte) error {
	t.sent = append(t.sent, parcel{to, msg})
	if t.hold {
		return nil
	}
	return t.Network.Transfer(to, msg)
}

// tapped is a quiet world in which all transfers are seen.
func tapped(t *testing.T, nodes, spare int, s Spec, keys int) (*world, map[*Engine]*tap) {
	w := newWorld(t, *firstSeed, nodes, spare, s, keys)
	taps := map[*Engine]*tap{}
	w.hook = func(e *Engine) {
		taps[e] = &tap{Network: e.cfg.Network}
		e.cfg.Network = taps[e]
	}
	w.start(nodes)
	w.sleep(sec)
	return w, taps
}

// fill makes every key full: with fallback wait they start empty.
func (w *world) fill() {
	slow, fast := w.spec, w.spec
	fast.Rate = bucket.Per(1000, time.Second)
	w.define(fast)
	for _, k := range w.keys {
		w.owner(k).ask(k, 1)
	}
	w.rest()
	w.define(slow)
}

// use takes a different number of tokens of each key, and waits until no credit is out.
func (w *world) use() map[string]float64 {
	used := map[string]float64{}
	for i, k := range w.keys {
		n := w.nodes[i%3]
		if d := n.ask(k, int64(1+3*i)); !d.OK {
			w.t.Fatalf("%s: %+v", k, d)
		}
		used[k] = float64(1 + 3*i)
		if i%4 == 3 {
			n.charge(k, 100)
			used[k] += 100
		}
	}
	w.rest()
	return used
}

// left checks that every key has its burst less what was used, to the token.
func (w *world) left(used map[string]float64, when string) {
	w.t.Helper()
	for _, k := range w.keys {
		if pool, out := w.balance(k); !near(pool+out, float64(w.spec.Burst)-used[k]) {
			w.t.Errorf("%s: %.0f of %d were used of %s, %s has %.3f, and %.0f are out", when, used[k], w.spec.Burst, k, w.owner(k).name, pool, out)
		}
	}
}

// TestPlannedChangesKeepEveryBalance: nodes join and leave, keys move, debts and balances come along to the token.
func TestPlannedChangesKeepEveryBalance(t *testing.T) {
	for _, m := range []Mode{Hybrid, Strict} {
		for _, f := range []Fallback{FallbackShare, FallbackWait} {
			t.Run(m.String()+"/"+f.String(), func(t *testing.T) {
				s := slow(90)
				s.Mode, s.Fallback = m, f
				w, _ := tapped(t, 3, 1, s, 12)
				w.fill()
				used := w.use()
				w.left(used, "before")
				owners := map[string]*simNode{}
				for _, k := range w.keys {
					owners[k] = w.owner(k)
				}
				w.revive(w.nodes[3])
				w.sleep(5 * sec)
				moved := 0
				for _, k := range w.keys {
					if w.owner(k) != owners[k] {
						moved++
					}
				}
				if moved == 0 {
					t.Error("no key moved to the fourth node")
				}
				w.left(used, "after a join")
				w.leave(w.nodes[0], nil)
				w.sleep(5 * sec)
				w.left(used, "after a leave")
				for i := range w.keys {
					w.nodes[1].ask(w.keys[i], 1)
					if i%4 != 3 {
						used[w.keys[i]]++
					}
				}
				w.rest()
				w.left(used, "after more use")
			})
		}
	}
}

// TestRollingRestartKeepsEveryBalance: every member in turn leaves and comes back.
func TestRollingRestartKeepsEveryBalance(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := slow(90)
		s.Mode = m
		w, _ := tapped(t, 3, 0, s, 12)
		used := w.use()
		w.roll(0, 3)
		w.sleep(25 * sec)
		for _, n := range w.nodes {
			if !n.alive || n.life != 3 { // killed and born again
				t.Fatalf("%s lives its life %d", n.name, n.life)
			}
		}
		w.left(used, "after a rolling restart")
	})
}

// TestStaleAndDoubledHandOffsChangeNothing: each is applied once, and not at all by who has let the partition go since.
func TestStaleAndDoubledHandOffsChangeNothing(t *testing.T) {
	s := slow(90)
	w, taps := tapped(t, 3, 1, s, 12)
	used := w.use()
	w.revive(w.nodes[3])
	w.sleep(5 * sec)
	again := func(when string) {
		for _, n := range w.nodes {
			for _, p := range taps[n.e].sent {
				to := w.named(p.to)
				if to.alive {
					to.e.ReceiveTransfer(to.clock(), n.name, p.msg)
					to.settle()
				}
			}
		}
		w.sleep(sec)
		w.left(used, when)
	}
	n := 0
	for _, tp := range taps {
		n += len(tp.sent)
	}
	if n == 0 {
		t.Fatal("nothing was handed over")
	}
	again("said again")
	w.leave(w.nodes[3], nil)
	w.sleep(5 * sec)
	w.left(used, "handed back")
	again("said again after it was handed back")
}

// TestHandOffBeforeTheView: what arrives before the new owner has heard that it is one is kept for it.
func TestHandOffBeforeTheView(t *testing.T) {
	w, taps := tapped(t, 3, 0, slow(90), 12)
	used := w.use()
	x := w.nodes[1]
	for _, n := range w.nodes {
		taps[n.e].hold = true
	}
	// x hands everything to its heirs. They are told first, and hear of the change half a second later.
	if err := x.e.Leave(x.clock()); err != nil {
		t.Fatal(err)
	}
	x.settle()
	if len(taps[x.e].sent) == 0 {
		t.Fatal("nothing was handed over")
	}
	for _, p := range taps[x.e].sent {
		to := w.named(p.to)
		to.e.ReceiveTransfer(to.clock(), x.name, p.msg)
		to.settle()
	}
	w.sleep(sec / 2)
	if x.e.Handing() != 0 {
		t.Errorf("%d hand-offs were not acknowledged", x.e.Handing())
	}
	for _, n := range w.nodes {
		if n != x {
			delete(n.view, x.id)
			n.push()
		}
	}
	w.sleep(sec)
	x.kill()
	w.sleep(3 * sec)
	w.left(used, "after a hand-off that came early")
}

// TestCrashOfTheOwner: the heir goes on from its records with exactly the rest, as far as shares are there: two thirds while
// the dead node's share is reserved.
func TestCrashOfTheOwner(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := slow(90)
		s.Mode = m
		w, _ := tapped(t, 3, 0, s, 12)
		used := w.use()
		dead := w.owner(w.keys[0])
		dead.kill()
		w.sleep(5 * sec)
		for _, n := range w.nodes { // at once: a share that comes a second later than another one brings nothing along
			if n.alive {
				delete(n.view, dead.id)
				n.failed[dead.id] = n.clock()
				n.push()
			}
		}
		w.sleep(4 * sec)
		for _, k := range w.keys {
			rest := 90 - used[k]
			want := rest
			if rest > 0 {
				want = rest * 2 / 3
			}
			n := w.owner(k)
			if pool, out := n.balance(k); pool+out > want+1e-3 || pool+out < want-1 {
				if !near(pool+out, rest) { // a key that did not move keeps its balance: its cap falls as fast as it would refill
					t.Errorf("%s: %.0f of 90 were used, %s has %.3f, not %.3f or %.0f, and %.0f are out", k, used[k], n.name, pool, want, rest, out)
				}
			}
			if rest > 2 {
				if passed := n.takes(k, 100); float64(passed) > rest {
					t.Errorf("%s: %d more passed, %.0f were left", k, passed, rest)
				}
			}
		}
	})
}

// TestCrashWithWaitStartsEmpty: with fallback wait nothing is known of what was granted last, so nothing is given.
func TestCrashWithWaitStartsEmpty(t *testing.T) {
	s := slow(90)
	s.Fallback = FallbackWait
	w, _ := tapped(t, 3, 0, s, 6)
	dead := w.owner(w.keys[0])
	dead.kill()
	w.detect()
	w.sleep(9 * sec)
	n := w.owner(w.keys[0])
	if pool, out := n.balance(w.keys[0]); !near(pool, 0) || out != 0 {
		t.Errorf("the heir has %.3f, and %.0f out", pool, out)
	}
}

// TestRestartOfTheOwner under its name: its heir gives the balances back. What its own share brings comes when it has settled.
func TestRestartOfTheOwner(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := slow(90)
		s.Mode = m
		w, _ := tapped(t, 3, 0, s, 12)
		used := w.use()
		x := w.owner(w.keys[0])
		x.kill()
		w.sleep(sec / 2)
		w.revive(x)
		w.sleep(8 * sec)
		for _, k := range w.keys {
			if w.owner(k) != x {
				continue
			}
			rest := 90 - used[k]
			pool, out := x.balance(k)
			t.Logf("%s: of the %.0f left %s has %.3f again", k, rest, x.name, pool)
			if pool+out > rest+1e-3 || rest > 0 && pool+out < rest*2/3-1 {
				t.Errorf("%s: %.0f were left, %s has %.3f after its restart, and %.0f are out", k, rest, x.name, pool, out)
			}
		}
	})
}

// TestPauseOfALender: it wakes up with credit that has been written off meanwhile. At its first tick it is void; what it spent
// before that was consumed already, as far as the owner is concerned.
func TestPauseOfALender(t *testing.T) {
	w := quiet(t, 3, 0, slow(90))
	k := w.keys[0]
	n, o := w.others(k)[0], w.owner(k)
	n.ask(k, 1)
	held := n.credit(k)
	if held < 2 {
		t.Fatalf("it holds only %d", held)
	}
	inc := n.e.inc
	n.paused = true
	w.sleep(2 * sec)
	pool, out := w.balance(k)
	if out != 0 || !near(pool, 89-float64(held)) {
		t.Errorf("the credit of %d is not written off: the pool has %.3f, %.0f are out", held, pool, out)
	}
	n.paused = false
	d := n.ask(k, 1)
	w.sleep(2 * tick)
	if d.Source != SourceLocal || !d.OK {
		t.Errorf("before its first tick it does not know: %+v", d)
	}
	if n.e.inc == inc || n.credit(k) != 0 {
		t.Errorf("after its first tick it lives its life %d and holds %d", n.e.inc, n.credit(k))
	}
	w.sleep(3 * sec)
	pool, out = o.balance(k)
	if pool+out > 89-float64(held)+1e-3 {
		t.Errorf("1 and %d were given out: the pool has %.3f, %.0f are out", held, pool, out)
	}
	if d := n.ask(k, 5); !d.OK {
		t.Errorf("it is a lender like any other again: %+v", d)
	}
}

// TestPauseOfTheOwner: it is sure of nothing when it wakes up, and its heir gives the balances back.
func TestPauseOfTheOwner(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 90, Mode: m}
		w, _ := tapped(t, 3, 0, s, 4)
		used := w.use()
		k := w.keys[0]
		o, n := w.owner(k), w.others(k)[0]
		inc := o.e.inc
		o.paused = true
		w.sleep(sec)
		ahead := n.takes(k, 10)
		o.paused = false
		w.sleep(2 * tick)
		if o.e.inc == inc {
			t.Error("it woke up as if nothing had happened")
		}
		w.sleep(6 * sec)
		rest := 90 - used[k] - float64(ahead)
		if pool, out := o.balance(k); pool+out > rest+1e-2 || pool+out < rest*2/3-1 {
			t.Errorf("%.0f were used and %d spent ahead: the pool has %.3f, %.0f are out", used[k], ahead, pool, out)
		}
		if x := w.worst(); x > 1e-6 {
			t.Errorf("excess %.3f", x)
		}
	})
}

// TestOwedOnceThroughARestart: a report that reaches the next life of an owner is not charged there and then once more when its
// sender has heard of that life.
func TestOwedOnceThroughARestart(t *testing.T) {
	for seed := range uint64(8) {
		w := newWorld(t, seed, 3, 0, slow(90), 1)
		w.start(3)
		w.sleep(sec)
		k := w.keys[0]
		o := w.owner(k)
		w.sleep(w.uniform(tick))
		o.kill()
		w.sleep(5 * tick)
		ahead := 0
		for _, n := range w.others(k) {
			if n != o {
				ahead += n.takes(k, 10)
			}
		}
		if ahead == 0 {
			t.Fatal("nothing was spent ahead")
		}
		w.revive(o)
		w.sleep(8 * sec)
		if debt := o.e.stats.debt.Load(); debt != uint64(ahead) {
			t.Errorf("seed %d: %d were spent ahead, %d were charged", seed, ahead, debt)
		}
	}
}

// TestGrantToAnEarlierLifeIsVoid: generations are numbered from 1 in every life of a process, so an answer to the life before
// names one that this life has as well.
func TestGrantToAnEarlierLifeIsVoid(t *testing.T) {
	w := quiet(t, 3, 0, slow(90))
	n, o := w.others("k")[0], w.owner("k")
	n.ask("k", 1)
	a, _ := n.limit.lookup("k")
	held := n.credit("k")
	for _, to := range []uint64{n.e.inc + 1000, n.e.inc} {
		m := &message{stamp: stamp{o.e.inc, o.e.ownEpoch, o.clock()}, echo: stamp{to, 1, 1}, re: n.clock(), grants: []grant{{gen: a.gen, g: a.g + 48}}}
		n.e.Receive(n.clock(), o.name, encode(newWriter(), m))
		if got := n.credit("k"); to != n.e.inc && got != held || to == n.e.inc && got != held+48 {
			t.Errorf("a grant to %d taken in by %d: credit was %d and is %d", to, n.e.inc, held, got)
		}
	}
}
