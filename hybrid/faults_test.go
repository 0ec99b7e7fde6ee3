package hybrid

import (
	"fmt"
	"strings"

	"github.com/jatah-io/jatah/bucket"
)

// fault kinds, one letter each, so that a schedule can be named.
const (
	faultPartition = 'p' // the members fall into two groups that do not hear each other
	faultOneWay    = 'a' // some links are cut in one direction; gossip finds a way round, views stay
	faultPause     = 's' // a process is stopped, perhaps for so long that it is declared dead
	faultCrash     = 'c'
	faultRestart   = 'r' // under its old name, at once or a little later
	faultLeave     = 'l' // in good order
	faultJoin      = 'j'
	faultLong      = 'L' // a partition that outlasts grace
	faultRolling   = 'R' // every member in turn leaves and comes back
)

// gossip changes what the nodes believe, each at its own moment within d, if it can hear of it.
func (w *world) gossip(about int, d int64, change func(*simNode)) {
	for _, n := range w.nodes {
		w.after(w.uniform(d), func() {
			if n.alive && !n.paused && (n.id == about || !w.cut[[2]int{about, n.id}]) {
				change(n)
				n.push()
			}
		})
	}
}

// detect lets every node declare dead, after 4 to 6 s, who is unreachable by then.
func (w *world) detect() {
	for _, n := range w.nodes {
		w.after(4*sec+w.uniform(2*sec), func() {
			if !n.alive || n.paused {
				return
			}
			for i := range n.view {
				o := w.nodes[i]
				if i != n.id && (!o.alive || o.paused || w.cut[[2]int{i, n.id}] && w.cut[[2]int{n.id, i}]) {
					delete(n.view, i)
					n.failed[i] = n.clock()
				}
			}
			n.push()
		})
	}
}

// meet spreads the word that a node is alive.
func (w *world) meet(id int) {
	w.gossip(id, sec/2, func(n *simNode) {
		if w.nodes[id].alive {
			n.view[id] = true
			delete(n.failed, id)
		}
		if n.id == id {
			for _, o := range w.nodes {
				if o.alive && !o.paused {
					n.view[o.id] = true
					delete(n.failed, o.id)
				}
			}
		}
	})
}

// ownerNode is the node that most nodes think owns the first key.
func (w *world) ownerNode() *simNode {
	for _, n := range w.nodes {
		if !n.alive || n.paused {
			continue
		}
		if o := n.e.ownerOf(n.e.partOf(n.e.hash(n.limit, w.keys[0]))); o != nil {
			for _, x := range w.nodes {
				if x.name == o.name {
					return x
				}
			}
		}
	}
	return w.nodes[0]
}

// victim is the owner half of the time, else anybody of the first n nodes.
func (w *world) victim(n int) *simNode {
	if w.rng.IntN(2) == 0 {
		if o := w.ownerNode(); o.id < n {
			return o
		}
	}
	return w.nodes[w.rng.IntN(n)]
}

// strike lets one fault happen now, among the first n nodes; node n is a spare that may join.
func (w *world) strike(kind rune, n int) {
	x := w.victim(n)
	switch kind {
	case faultPartition:
		w.split(n, 8*sec)
	case faultLong:
		w.split(n, w.grace+15*sec)
	case faultOneWay:
		for i := range n {
			for j := range n {
				if i != j && w.rng.Float64() < 0.3 {
					w.cut[[2]int{i, j}] = true
				}
			}
		}
		w.after(8*sec, func() { clear(w.cut) })
	case faultPause:
		if !x.alive {
			return
		}
		x.paused = true
		w.detect()
		w.after(200*ms+w.uniform(9*sec), func() {
			x.paused = false
			w.after(100*ms, func() { w.meet(x.id) })
		})
	case faultCrash:
		x.kill()
		w.detect()
	case faultRestart:
		x.kill()
		w.after(sec/2+w.uniform(2*sec), func() { w.revive(x) })
	case faultLeave:
		w.leave(x, nil)
	case faultJoin:
		if s := w.nodes[n]; !s.alive {
			w.revive(s)
		}
	case faultRolling:
		w.roll(0, n)
	}
}

func (w *world) split(n int, d int64) {
	in := map[int]bool{}
	for _, i := range w.rng.Perm(n)[:1+w.rng.IntN(n-1)] {
		in[i] = true
	}
	for i := range w.nodes {
		for j := range w.nodes {
			if in[i] != in[j] {
				w.cut[[2]int{i, j}] = true
			}
		}
	}
	w.detect()
	w.after(d, func() {
		clear(w.cut)
		for i, o := range w.nodes {
			if o.alive {
				w.meet(i)
			}
		}
	})
}

func (n *simNode) kill() {
	n.alive = false
	n.life++
	n.pending = nil
}

// revive starts a process that knows who is alive, and lets the others hear of it.
func (w *world) revive(x *simNode) {
	if x.alive {
		return
	}
	x.boot()
	for _, o := range w.nodes {
		if !o.alive || o == x || w.cut[[2]int{o.id, x.id}] || w.cut[[2]int{x.id, o.id}] {
			continue
		}
		x.view[o.id] = true // and what it knows of others, as members tell each other
		for i := range o.view {
			x.view[i] = true
		}
		for i, at := range o.failed {
			if i != x.id {
				x.failed[i] = x.clock() - (o.clock() - at)
			}
		}
	}
	w.detect()
	x.push()
	w.meet(x.id)
}

// leave hands over, tells the others and ends the process; then is called after that.
func (w *world) leave(x *simNode, then func()) {
	if !x.alive || x.paused || len(x.view) < 3 {
		return
	}
	if err := x.e.Leave(x.clock()); err != nil {
		w.t.Errorf("leave: %v", err)
	}
	x.settle()
	life := x.life
	var wait func(tries int)
	wait = func(tries int) {
		if x.life != life || !x.alive {
			return
		}
		if x.e.Handing() > 0 && tries > 0 {
			w.after(10*ms, func() { wait(tries - 1) })
			return
		}
		w.gossip(x.id, 400*ms, func(n *simNode) {
			if n.id != x.id {
				delete(n.view, x.id)
				delete(n.failed, x.id)
			}
		})
		w.after(600*ms, func() {
			if x.life == life {
				x.kill()
				if then != nil {
					then()
				}
			}
		})
	}
	wait(100)
}

// roll restarts one member after the other, each when the one before has settled.
func (w *world) roll(i, n int) {
	if i == n {
		return
	}
	w.leave(w.nodes[i], func() {
		w.after(300*ms, func() {
			w.revive(w.nodes[i])
			w.after(3*sec, func() { w.roll(i+1, n) })
		})
	})
}

// schedule is one random run, named by all it follows from.
type schedule struct {
	seed        uint64
	rate, burst int64
	mode        Mode
	fallback    Fallback
	overshoot   float64
	loss        float64
	faults      string // kinds to draw from
	flash       bool   // quiet with full buckets, and a flash just after each fault; else saturating load
	hook        func(*Engine)
	rule        *bucket.Spec // another rule than a token bucket of rate and burst
}

func (s schedule) String() string {
	load := "saturated"
	if s.flash {
		load = "flash"
	}
	if s.rule != nil {
		return fmt.Sprintf("seed %d %v %v %s %v loss %v faults %q %s", s.seed, s.mode, s.fallback, s.rule.Algorithm, s.rule.Rates, s.loss, s.faults, load)
	}
	return fmt.Sprintf("seed %d %v %v %d/s burst %d phi %v loss %v faults %q %s", s.seed, s.mode, s.fallback, s.rate, s.burst, s.overshoot, s.loss, s.faults, load)
}

// run plays the schedule: three faults, about 15 s apart. check, if not nil, is called now and then.
func (s schedule) run(w *world, n int, check func()) {
	w.loss = s.loss
	w.hook = s.hook
	w.start(n)
	flashUntil := int64(0)
	w.load(4*float64(s.rate)*float64(len(w.keys)), n, func() bool { return !s.flash || w.now < flashUntil })
	kinds := []rune(s.faults)
	last := 5 * sec
	if len(kinds) > 0 {
		gap := 15 * sec
		if strings.ContainsRune(s.faults, faultLong) {
			gap = w.grace + 25*sec
		}
		for i := range int64(3) {
			at := 3*sec + i*gap + w.uniform(2*sec)
			kind := kinds[w.rng.IntN(len(kinds))]
			w.after(at+w.uniform(50*ms), func() { flashUntil = w.now + sec + w.uniform(7*sec) })
			w.after(at, func() { w.strike(kind, n) })
		}
		last = 3*sec + 3*gap
	}
	if check != nil {
		for at := int64(0); at < last; at += 37 * ms {
			w.after(at, check)
		}
	}
	w.run(last)
}
