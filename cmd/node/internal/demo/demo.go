package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
)

// nodes is how many nodes the demo has: the fewest of which a majority stays.
const nodes = 3

// Options says what to show. Every field is needed.
type Options struct {
	Limit      jatah.Limit
	Duration   time.Duration // of the load, or longer until the killed node is back; starting takes some seconds more
	Executable string        // is run with `serve` and its flags
	Environ    []string      // of the nodes
	Out        io.Writer
	Terminal   bool // Out can move its cursor
}

// The fault: one node is killed after this part of the time, and started again
// after that part.
const (
	killAfter    = 0.40
	restartAfter = 0.60
	afterReturn  = 0.10 // of the time is left at least when the node is back
)

// readyWithin is how long a node may take to become ready: some 3 s, and more on a busy machine.
const readyWithin = 30 * time.Second

// show is one run of the demo.
type show struct {
	Options
	processes []*process
	services  []*service
	journal   *journal
	load      *load
	screen    screen
	busy      int // gets most of the requests
	victim    int // owner of the hot key, which is killed

	length time.Duration // of the load, as it came

	mu     sync.Mutex
	states [nodes]string
	fault  fault
}

// fault is when things happened to the victim, and how often a node was paused because the machine was busy with something else.
type fault struct {
	killed, back         time.Duration
	pausesBefore, pauses int
}

// countPauses adds up the pauses of all nodes.
func (s *show) countPauses() int {
	n := 0
	for _, p := range s.processes {
		n += p.pauses()
	}
	return n
}

// users of the load: the first sends more than the limit lets through, the
// others stay below it.
var users = []string{"ada", "ben", "cleo", "dan", "eva", "finn"}

const hotShare = 0.7 // of all requests

// offeredPerSecond is five times the limit: with hotShare 3.5 times for the hot
// key. It is bounded below, so that there is something to see with a limit of
// 100 a minute, and above by what two cores can send and answer.
func offeredPerSecond(rate float64) float64 { return min(max(5*rate, 200), 2000) }

func perSecond(r jatah.Rate) float64 { return float64(r.Count) / r.Per.Seconds() }

// burst of a limit whose definition may leave it out.
func burst(l jatah.Limit) int64 {
	if l.Burst == 0 {
		return l.Rate.Count
	}
	return l.Burst
}

// Run shows the demo and reports whether the limit was kept. It returns early,
// with an error, when ctx ends or a node does not start; all processes are gone
// when it returns.
func Run(ctx context.Context, o Options) (kept bool, err error) {
	s := &show{Options: o, screen: newScreen(o.Out, o.Terminal)}
	defer s.screen.close()
	defer s.cleanUp()
	s.screen.note(fmt.Sprintf("three nodes on this machine, limit %s: %s per user, burst %d, %s",
		o.Limit.Name, o.Limit.Rate, burst(o.Limit), o.Limit.Mode))
	s.screen.note("starting them; they are ready when each is sure of its share, about 3 s")
	if err := s.startAll(ctx); err != nil {
		return false, err
	}
	if err := s.perform(ctx); err != nil {
		return false, err
	}
	s.fault.pauses += s.countPauses()
	v := judge(s)
	for _, line := range v.lines {
		s.screen.note(line)
	}
	return v.kept, nil
}

// startAll starts a service for each node, and the nodes.
func (s *show) startAll(ctx context.Context) error {
	s.journal = newJournal(users)
	// Services choose their ports first: the addresses that are found free after that must stay so.
	for i := range nodes {
		service, err := startService(i, s.Limit.Name, s.journal)
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		s.services = append(s.services, service)
	}
	addresses, err := freeAddresses(2 * nodes)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for i := range nodes {
		s.states[i] = "starting"
		p := &process{
			name: fmt.Sprintf("n%d", i+1), http: addresses[i], bind: addresses[nodes+i],
			executable: s.Executable, environ: s.Environ,
		}
		p.args = []string{"serve", "--node", p.name, "--http", p.http, "--bind", p.bind,
			"--expect", fmt.Sprint(nodes), "--limit", compact(s.Limit)}
		for j := range nodes {
			if j != i {
				p.args = append(p.args, "--join", addresses[nodes+j])
			}
		}
		s.processes, s.services[i].api = append(s.processes, p), "http://"+p.http
		if err := p.start(); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	patience, cancel := patiently(ctx)
	defer cancel()
	for i, p := range s.processes {
		if err := p.ready(patience); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		s.setState(i, "up")
	}
	return s.choose(patience)
}

func patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("waited %v", readyWithin))
}

// compact is a limit in the form of the flag --limit.
func compact(l jatah.Limit) string {
	return fmt.Sprintf("%s=%s,burst=%d,mode=%s,fallback=%s,overshoot=%g", l.Name, l.Rate, burst(l), l.Mode, l.Fallback, l.Overshoot)
}

// choose makes the owner of the hot key the victim, the fault that hurts most,
// and another node the busy one.
func (s *show) choose(ctx context.Context) error {
	owner, err := s.services[0].owner(ctx, users[0])
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for i, p := range s.processes {
		if p.name == owner {
			s.victim = i
		}
	}
	s.busy = (s.victim + 1) % nodes
	return nil
}

// perform offers the load and stages the fault.
func (s *show) perform(ctx context.Context) error {
	s.load = &load{services: s.services, perSec: offeredPerSecond(perSecond(s.Limit.Rate)), names: users}
	for i := range nodes {
		p := 0.05
		if i == s.busy {
			p = 0.9
		}
		s.load.nodes = append(s.load.nodes, p)
	}
	for i := range users {
		p := (1 - hotShare) / float64(len(users)-1)
		if i == 0 {
			p = hotShare
		}
		s.load.keys = append(s.load.keys, p)
	}
	s.screen.note(fmt.Sprintf("%.0f requests/s, 90 %% of them to %s; %s alone sends %.0f/s; %s owns %s's tokens",
		s.load.perSec, s.name(s.busy), users[0], hotShare*s.load.perSec, s.name(s.victim), users[0]))
	s.screen.note(fmt.Sprintf("try a service yourself: curl 'http://%s/hello?user=you'", s.services[s.busy].addr))

	s.journal.start = time.Now() // no request is under way yet
	run, end := context.WithCancel(ctx)
	defer end()
	var parts sync.WaitGroup
	parts.Go(func() { s.load.run(run, rand.New(rand.NewPCG(1, 2))) })
	parts.Go(func() { s.draw(run) })
	staged := s.stage(run)
	s.length = s.journal.now()
	end()
	parts.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("demo: stopped before its end")
	}
	return staged
}

func (s *show) name(i int) string { return s.processes[i].name }

// stage kills the victim and brings it back. It returns at the end of the run, or when ctx ends.
func (s *show) stage(ctx context.Context) error {
	if !sleep(ctx, time.Duration(killAfter*float64(s.Duration))) {
		return nil
	}
	p := s.processes[s.victim]
	before, ofVictim := s.countPauses(), p.pauses()
	killed := s.journal.now()
	p.kill()
	s.mu.Lock()
	// What the victim counted dies with it, so it is kept apart.
	s.fault.killed, s.fault.pausesBefore, s.fault.pauses = killed, before, ofVictim
	s.mu.Unlock()
	s.setState(s.victim, "killed")
	s.load.down[s.victim].Store(true)
	s.screen.note(fmt.Sprintf("%5.1f s  kill -9 %s; its requests go to the others", killed.Seconds(), p.name))

	if !sleep(ctx, time.Duration(restartAfter*float64(s.Duration))-s.journal.now()) {
		return nil
	}
	restarted := s.journal.now()
	if err := p.start(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	s.setState(s.victim, "starting")
	s.screen.note(fmt.Sprintf("%5.1f s  %s is started again", restarted.Seconds(), p.name))
	patience, cancel := patiently(ctx)
	defer cancel()
	if err := p.ready(patience); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	back := s.journal.now()
	s.mu.Lock()
	s.fault.back = back
	s.mu.Unlock()
	s.load.down[s.victim].Store(false)
	s.setState(s.victim, "up")
	s.screen.note(fmt.Sprintf("%5.1f s  %s is ready and gets requests again", back.Seconds(), p.name))
	sleep(ctx, max(s.Duration-back, time.Duration(afterReturn*float64(s.Duration))))
	return nil
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *show) setState(node int, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[node] = state
}

// cleanUp ends everything that was started, the processes together.
func (s *show) cleanUp() {
	for _, service := range s.services {
		service.close()
	}
	var ended sync.WaitGroup
	for _, p := range s.processes {
		ended.Go(func() { p.stop(5 * time.Second) })
	}
	ended.Wait()
}
