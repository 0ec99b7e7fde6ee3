package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/budget"
)

// recount counts anew what an engine has stored, and says where the budget has another number.
func recount(e *Engine) (wrong []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	is := func(what string, counted, want int64) {
		if counted != want {
			wrong = append(wrong, fmt.Sprintf("%s: %d are counted and %d there", what, counted, want))
		}
	}
	keys := int64(e.accounts.n + e.nsolo)
	var accounts, ledgers, copies, permits, sum int64
	solo := 0
	for _, l := range e.all {
		keys += int64(l.buckets.Len())
		if t := l.meters.Load(); t != nil {
			keys += int64(t.Len())
		}
		l.keys.All(func(p *purse) {
			if p.credit.has(creditSolo) {
				solo++
			}
		})
	}
	is("solo keys", int64(e.nsolo), int64(solo))
	is("keys", e.budget.Keys(), keys)
	e.accounts.sweep(1<<30, func(a *account) { accounts += a.size() })
	is("accounts", e.budget.Part(budget.Accounts), accounts)
	n := 0
	for _, p := range e.parts {
		n += len(p.ledgers)
		var bytes int64
		for _, x := range p.ledgers {
			bytes += x.size
		}
		is(fmt.Sprint("partition ", p.id), p.bytes, bytes)
		ledgers += bytes
	}
	is("number of ledgers", int64(e.nledgers), int64(n))
	is("ledgers", e.budget.Part(budget.Ledgers), ledgers)
	for _, s := range e.standby {
		var bytes int64
		for k, r := range s.records {
			bytes += k.size(r)
		}
		is("copies of a partition", s.bytes, bytes)
		copies += bytes
	}
	is("copies", e.budget.Part(budget.Standby), copies)
	for _, p := range e.permits.byID {
		permits += p.bytes()
	}
	is("permits", e.budget.Part(budget.Permits), permits)
	for p := range budget.Part(budget.Parts) {
		if sum += e.budget.Part(p); e.budget.Part(p) < 0 {
			wrong = append(wrong, fmt.Sprintf("%v: %d bytes", p, e.budget.Part(p)))
		}
	}
	is("bytes", e.budget.Bytes(), sum)
	return wrong
}

// flooder takes keys of a crowded world, each decision charged to the exact twin of the key that it was decided on.
type flooder struct {
	*world
	policy  Overflow
	waiting []*flooded
	over    int // requests of keys without room
	refused int
}

type flooded struct {
	n    *simNode
	life int
	key  string
	real string
	p    *Pending
}

func (f *flooder) twin(key string) *meter {
	if f.meter[key] == nil {
		f.meter[key] = &meter{perNs: float64(f.spec.Rate.Count) / float64(f.spec.Rate.Per), burst: float64(f.spec.Burst)}
	}
	return f.meter[key]
}

func (f *flooder) take(n *simNode, key string) {
	if !n.alive || n.paused {
		return
	}
	before := n.e.stats.overflowed[f.policy].Load()
	d, p := n.limit.start(n.limit.def.Load(), key, 1)
	f.on(n, key, key, d, p, before)
	n.settle()
}

// on takes in what an engine said of a request, real what it was for and key where it is decided unless the engine chose another one.
func (f *flooder) on(n *simNode, real, key string, d Decision, p *Pending, before uint64) {
	over := n.e.stats.overflowed[f.policy].Load() != before
	if over {
		f.over++
		if f.policy == OverflowShared {
			key = n.limit.sharedKey(real)
		}
	}
	if p != nil {
		f.waiting = append(f.waiting, &flooded{n, n.life, key, real, p})
		return
	}
	switch {
	case d.Source == SourceAllow && (f.policy != OverflowAllow || !over):
		f.t.Errorf("%v: %q is allowed uncounted: %+v", f.policy, real, d)
	case d.Err == ErrOverflow && f.policy == OverflowAllow, d.Err != nil && d.Err != ErrOverflow:
		f.t.Errorf("%v: %q: %v", f.policy, real, d.Err)
	case d.Err == nil && d.OK && d.Source != SourceAllow:
		f.twin(key).admit(f.now, 1)
	case !d.OK && d.Err == nil:
		f.refused++
	}
}

// collect goes on with those whose owner has decided, as Limit.Finish does.
func (f *flooder) collect() {
	all := f.waiting
	f.waiting = nil
	for _, x := range all {
		switch {
		case x.n.life != x.life || !x.n.alive:
			continue
		case x.n.paused:
			f.waiting = append(f.waiting, x)
			continue
		}
		select {
		case d := <-x.p.done:
			if d.Err != ErrOverflow {
				f.on(x.n, x.real, x.key, d, nil, x.n.e.stats.overflowed[f.policy].Load()-b2u(d.Source == SourceAllow))
				continue
			}
			before := x.n.e.stats.overflowed[f.policy].Load()
			l := x.n.limit
			d, p := l.overflow(l.def.Load(), x.p.key, x.p.cost, d)
			f.on(x.n, x.real, x.key, d, p, before)
			x.n.settle()
		default:
			f.waiting = append(f.waiting, x)
		}
	}
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// TestCrowdedWorlds: more keys than there is room for on three nodes, with faults. Under each policy no key has more than its limit, nor has any shared key; debts are
// kept; the budget is what is stored at every moment; and when the flood has gone all of it comes back.
func TestCrowdedWorlds(t *testing.T) {
	for policy := range Overflow(numOverflows) {
		for _, faults := range []string{"", "l", "s", "pascrjlR"} {
			for i := range max(1, *schedules/2) {
				seed := *firstSeed + uint64(i)
				t.Run(fmt.Sprintf("%v/%s/%d", policy, faults, seed), func(t *testing.T) { crowdedWorld(t, policy, faults, seed) })
			}
		}
	}
}

// lookEvery is how often decisions that waited are looked for: the twins hear of them so much too late.
const lookEvery = 2 * ms

func crowdedWorld(t *testing.T, policy Overflow, faults string, seed uint64) {
	s := Spec{Name: "api", Rate: bucket.Per(1, time.Second), Burst: 5, Fallback: FallbackWait}
	w := newWorld(t, seed, 3, 2, s, 0)
	for i := range 150 {
		w.keys = append(w.keys, fmt.Sprint("key-", i))
	}
	f := &flooder{world: w, policy: policy}
	room := int64(8 + w.rng.IntN(11)) // so little that the ten keys of every second request and what was just used of the others take all of it
	w.hook = func(e *Engine) { e.cfg.Overflow = policy; e.budget.SetMaxKeys(room) }
	w.loss = 0.02
	w.start(3)
	end := 60 * sec
	flood := true
	for _, n := range w.nodes {
		var next func()
		next = func() {
			key := w.keys[w.rng.IntN(len(w.keys))]
			if w.rng.IntN(2) == 0 {
				key = w.keys[w.rng.IntN(10)]
			}
			if flood {
				f.take(n, key)
			}
			w.after(int64(w.rng.ExpFloat64()*float64(8*ms)), next)
		}
		w.after(3*sec+w.uniform(sec), next)
	}
	var look func()
	look = func() {
		f.collect()
		w.after(lookEvery, look)
	}
	w.after(0, look)
	w.after(2*sec, func() {
		if d := w.nodes[0].charge("debt", 120); d.Err != nil {
			t.Errorf("charge: %v", d.Err)
		}
		f.twin("debt").level, f.twin("debt").last = 120, w.now
	})
	for at := 4 * sec; at < end; at += 500 * ms {
		w.after(at, func() { f.take(w.nodes[w.rng.IntN(3)], "debt") })
	}
	if kinds := []rune(faults); len(kinds) > 0 {
		for i := range int64(3) {
			kind := kinds[w.rng.IntN(len(kinds))]
			w.after(6*sec+i*15*sec+w.uniform(2*sec), func() { w.strike(kind, 3) })
		}
	}
	check := func(when string) {
		for _, n := range w.nodes {
			if n.alive {
				for _, x := range recount(n.e) {
					t.Errorf("seed %d, %s, at %.3f s: %s: %s", seed, when, float64(w.now)/float64(sec), n.name, x)
				}
			}
		}
	}
	for w.now < end && !t.Failed() {
		w.sleep(170 * ms)
		check("in the flood")
	}
	unsure := 1e-6 + float64(lookEvery)*float64(s.Rate.Count)/float64(s.Rate.Per)
	if x := w.worst(); x > unsure {
		for k, m := range w.meter {
			if m.worst > unsure {
				t.Errorf("seed %d: excess %g of %q", seed, m.worst, k)
			}
		}
	}
	if f.over < 100 || f.refused == 0 {
		t.Errorf("seed %d: %d requests found no room, and %d were refused", seed, f.over, f.refused)
	}
	flood = false
	w.meter = map[string]*meter{}
	w.sleep(400 * sec) // the debt is repaid, also by what is left of the shares after crashes
	check("after it")
	if len(f.waiting) > 0 {
		t.Errorf("seed %d: %d requests were never decided", seed, len(f.waiting))
	}
	var alive []*simNode
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		alive = append(alive, n)
		copies := 0
		for _, s := range n.e.standby {
			for k := range s.records {
				if !k.base {
					copies++
				}
			}
		}
		if m := n.e.Memory(); m.Keys != 0 || n.e.nledgers != 0 || m.Parts["accounts"] != 0 || m.Full || faults == "" && copies > 0 {
			t.Errorf("seed %d: after the flood %s has %d ledgers, %d copies and %+v", seed, n.name, n.e.nledgers, copies, m)
		}
	}
	for _, n := range alive {
		over := f.over
		f.take(n, "new to "+n.name)
		w.sleep(sec)
		if f.over != over {
			t.Errorf("seed %d: there is no room at %s after the flood", seed, n.name)
		}
	}
}
