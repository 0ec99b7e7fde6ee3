package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/bench/report"
)

// done is a step as it went.
type done struct {
	Step
	event    event
	quiet    time.Duration // when the quiet period began that followed
	until    time.Duration // and when it ended
	recovery time.Duration
	notes    []string
}

// run is one run.
type run struct {
	o       Options
	c       *cluster
	load    *load
	watch   *watch
	rules   []rule
	left    []string // what is not done, and why
	steps   []done
	broken  []string
	stops   []time.Duration
	started time.Duration // when the load had been on for a while
	ended   time.Duration
	mu      sync.Mutex
	// Of a soak.
	walk     *walk
	plateaus []plateau
	lost     memory
}

// brokenf records a broken promise with its moment.
func (r *run) brokenf(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%.1f s: ", r.load.now().Seconds()) + fmt.Sprintf(format, a...)
	r.broken = append(r.broken, line)
	r.o.Log("BROKEN %s", line)
}

// ErrBroken is wrapped by the error of a run in which a promise was broken.
var ErrBroken = errors.New("chaos: a promise was broken")

// Run runs and writes the page, whose name it returns. The error is ErrBroken, or what kept it from running.
func Run(ctx context.Context, o Options) (page string, err error) {
	if err := o.check(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "jatah-chaos-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	meta := report.Look(ctx, nil, report.Options{})
	meta.Command = o.command()
	var flags []string
	if o.Race {
		flags = append(flags, "-race")
	}
	program := o.Program
	if program == "" {
		o.Log("building the node")
		if program, err = proc.BuildNode(ctx, dir, flags...); err != nil {
			return "", err
		}
	}
	r := &run{o: o}
	if err := r.prepare(dir, program); err != nil {
		return "", err
	}
	begin := r.whole
	if o.Soak > 0 {
		begin, r.load.pace = r.soak, soakPace
	}
	ended := begin(ctx)
	meta.Took, meta.LoadAfter = time.Since(meta.Start), report.Load()
	page, failed := r.write(meta)
	err = errors.Join(ended, failed, r.c.close())
	if len(r.broken) > 0 {
		err = errors.Join(fmt.Errorf("%w, with seed %d; see %s", ErrBroken, o.Seed, page), err)
	}
	return page, err
}

// prepare makes the cluster, the load and the watch; nothing runs yet.
func (r *run) prepare(dir, program string) error {
	r.rules = ruleSet(r.o.Rate)
	lines := []string{
		fmt.Sprintf("{name: %s, algorithm: concurrency, max: %d, ttl: %v, fallback: wait}", permits, maxPermits, permitTTL),
		fmt.Sprintf("{name: %s, rate: 10/s, burst: 5}", floodLimit),
		fmt.Sprintf("{name: %s, rate: 20/d, burst: %d}", keptLimit, keptBurst),
	}
	for _, l := range r.rules {
		lines = append(lines, l.definition())
	}
	c, err := newCluster(dir, program, r.o.Nodes, lines, r.o.Soak == 0) // a soak fills no disk, and has too many keys for a small one
	if err != nil {
		return err
	}
	r.c = c
	r.load = newLoad(c.nodes, r.rules)
	r.watch = newWatch(r.load, c.web)
	return nil
}

// possible are the kinds that can be done here; why others cannot is kept.
func (r *run) possible() (all []Kind) {
	wanted := r.o.Faults
	if wanted == nil {
		wanted = Kinds()
	}
	for _, k := range wanted {
		t := traitOf(k)
		switch {
		case t.network && r.c.lab == nil:
			r.left = append(r.left, fmt.Sprintf("%s: needs root and network namespaces", k))
		case k == Disk && !r.c.disks:
			r.left = append(r.left, fmt.Sprintf("%s: needs root and the right to mount", k))
		case k == Clock && (!canStep || r.c.lab == nil):
			r.left = append(r.left, fmt.Sprintf("%s: needs root, on Linux and amd64", k))
		default:
			all = append(all, k)
		}
	}
	return all
}

// whole starts the cluster, loads it, breaks it until the time is over, and ends it.
func (r *run) whole(ctx context.Context) error {
	if r.c.lab == nil {
		r.o.Log("not root, or no network namespaces: all nodes are on the loopback interface, and nothing is cut off")
	}
	if err := r.c.start(ctx); err != nil {
		return err
	}
	loading, end := context.WithCancel(ctx)
	defer end()
	var running sync.WaitGroup
	running.Go(func() { r.load.run(loading) })
	running.Go(func() { r.watch.run(loading, time.Second) })
	running.Go(func() { r.lookOut(loading) })
	pause(ctx, 3*time.Second)
	r.started = r.load.now()
	failed := r.faults(ctx)
	r.ended = r.load.now()
	end()
	running.Wait()
	r.endAll()
	if errors.Is(failed, context.Canceled) {
		return failed
	}
	if failed != nil {
		r.brokenf("%v", failed)
	}
	return nil
}

// lookOut tells of nodes that end by themselves, each process once.
func (r *run) lookOut(ctx context.Context) {
	told := make(map[[2]int]bool)
	for ctx.Err() == nil {
		for _, n := range r.c.nodes {
			this := [2]int{n.index, n.started()}
			if err := n.died(); err != nil && !told[this] {
				told[this] = true
				r.brokenf("%v", err)
			}
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// faults does steps until the time is over. The error is why it could not go on.
func (r *run) faults(ctx context.Context) error {
	kinds := r.possible()
	if len(kinds) == 0 {
		return fmt.Errorf("%w: none of the faults can be done here: %v", ErrOptions, r.left)
	}
	for _, l := range r.left {
		r.o.Log("left out: %s", l)
	}
	draw := newSchedule(r.o.Seed, kinds, r.o.Nodes, r.o.Longest)
	for end := r.started + r.o.Duration; r.load.now() < end; {
		pause(ctx, r.o.Quiet)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if last := len(r.steps) - 1; last >= 0 {
			r.steps[last].until = r.load.now()
		}
		step := draw.next()
		if r.load.now()+step.For > end && len(r.steps) > 0 {
			break
		}
		if err := r.step(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// step does one and lets the cluster recover.
func (r *run) step(ctx context.Context, s Step) error {
	r.watch.all(ctx) // what it counts until now is not of this step
	d := done{Step: s, event: event{from: r.load.now(), kind: s.Kind, step: s.Number, times: 1, nodes: s.Nodes}}
	switch s.Kind {
	case Rolling, Blackout:
		d.event.times = r.o.Nodes
	case Join, Gone:
		d.event.times = 2
	}
	r.o.Log("%7.1f s  %v", d.event.from.Seconds(), s)
	b := &breaker{c: r.c, load: r.load, watch: r.watch, note: func(format string, a ...any) {
		d.notes = append(d.notes, fmt.Sprintf(format, a...))
	}}
	r.load.faulty.Store(true)
	var flashes sync.WaitGroup
	flash := func(when string) {
		flashes.Go(func() {
			r.load.flash(ctx, fmt.Sprintf("flash-%d-%s", s.Number, when), min(2*time.Second, r.o.Quiet/2), r.flashRules())
		})
	}
	flash("begin")
	if err := b.do(ctx, s); err != nil && ctx.Err() == nil {
		r.brokenf("step %d, %s: %v", s.Number, s.Kind, err)
	}
	r.stops = append(r.stops, b.stops...)
	over := r.load.now()
	flash("end")
	err := r.c.await(ctx, recoverTime, func() error {
		if err := r.c.whole(ctx); err != nil {
			return err
		}
		if since := r.load.now() - time.Duration(r.load.elsewhere.Load()); since < 300*time.Millisecond {
			return fmt.Errorf("a decision was made without the owner %v ago", since)
		}
		return nil
	})
	now := r.load.now()
	d.recovery = now - over
	flashes.Wait()
	r.load.faulty.Store(false)
	// What was sent before may be answered after.
	d.event.to, d.quiet, d.until = now+time.Second, r.load.now()+time.Second, r.load.now()
	r.steps = append(r.steps, d)
	for _, n := range d.notes {
		r.o.Log("           %s", n)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("the cluster did not recover from step %d, %s: %w", s.Number, s.Kind, err)
	}
	r.o.Log("           recovered after %v", d.recovery.Round(10*time.Millisecond))
	return ctx.Err()
}

// flashRules are the limits whose new keys are asked for at the beginning and the end of faults.
func (r *run) flashRules() (all []rule) {
	for _, l := range r.rules {
		if slices.Contains([]string{"hybrid-wait", "hybrid-share", "strict-wait"}, l.name) {
			all = append(all, l)
		}
	}
	return all
}

// endAll ends all nodes in good order, at once.
func (r *run) endAll() {
	var ending sync.WaitGroup
	for _, n := range r.c.nodes {
		if n.running() == nil {
			continue
		}
		ending.Go(func() {
			took, err := n.stop()
			if err != nil {
				r.brokenf("%v", err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stops = append(r.stops, took)
		})
	}
	ending.Wait()
}
