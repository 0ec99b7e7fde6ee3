package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah/cmd/node/internal/envelope"
)

// faultSeed chooses the keys and who is hit. Real processes do not replay, but
// who owns what does.
var faultSeed = flag.Uint64("fault-seed", 0, "seed of the tests with faults; 0: a new one each time")

// rule is a limit under test.
type rule struct {
	name           string
	rate, burst    int
	mode, fallback string
}

func (r rule) flag() string {
	return fmt.Sprintf("%s=%d/s,burst=%d,mode=%s,fallback=%s", r.name, r.rate, r.burst, r.mode, r.fallback)
}

// kinds are the limits that most faults are tried on.
func kinds() []rule {
	return []rule{
		{"strict-wait", 30, 60, "strict", "wait"},
		{"hybrid-wait", 30, 60, "hybrid", "wait"},
		{"hybrid-share", 30, 60, "hybrid", "share"},
	}
}

// rig is a cluster of processes in a lab, encrypted, with limits.
type rig struct {
	t     *testing.T
	lab   *lab
	rng   *mathrand.Rand
	web   *http.Client // from the hub
	rules []rule
	seeds []string
	args  []string
	nodes []*member
	begin time.Time // all times of streams count from here
	meant int       // pauses that the test made
	keys  int
}

// member is a node by its name, whichever process it is.
type member struct {
	name string
	mu   sync.Mutex
	s    *server
	all  []*server
	down bool // requests may fail
}

func (m *member) server() *server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.s
}

func (m *member) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

func (m *member) isDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

// newRig starts n nodes that know how many they are meant to be.
func newRig(t *testing.T, n int, rules []rule, args ...string) *rig {
	t.Helper()
	return startRig(t, n, n, rules, append(args, "--expect", fmt.Sprint(n))...)
}

// startRig starts n nodes, of which the first few are the seeds of all, and
// waits until they are one cluster.
func startRig(t *testing.T, n, seeds int, rules []rule, args ...string) *rig {
	t.Helper()
	r := &rig{t: t, lab: newLab(t, n), rules: rules, begin: time.Now()}
	seed := *faultSeed
	if seed == 0 {
		seed = mathrand.Uint64()
	}
	t.Logf("seed %d (repeat its choices with -fault-seed)", seed)
	r.rng = mathrand.New(mathrand.NewPCG(seed, 0))
	transport := &http.Transport{DialContext: r.lab.dial, MaxIdleConnsPerHost: 128}
	r.web = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)

	for i := range n {
		if i < seeds {
			r.seeds = append(r.seeds, r.lab.address(i+1, 1)+":7946")
		}
		r.nodes = append(r.nodes, &member{name: nodeLabel(i + 1)})
	}
	r.args = append([]string{"--secret-file", secretFile(t)}, args...)
	for _, l := range rules {
		r.args = append(r.args, "--limit", l.flag())
	}
	for i := range n {
		r.launch(i, 1)
	}
	for i := range n {
		r.nodes[i].server().waitReady()
	}
	r.waitWhole()
	return r
}

func secretFile(t *testing.T) string {
	t.Helper()
	secret := make([]byte, 32)
	rand.Read(secret)
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(secret)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// launch starts the process of node i at one of its two addresses.
func (r *rig) launch(i, which int) {
	r.t.Helper()
	m, seeds := r.nodes[i], slices.Clone(r.seeds)
	if which != 1 {
		// A seed where nobody lives is counted as a member that is missing; who moves a
		// node has to take its old address off its list.
		seeds = slices.DeleteFunc(seeds, func(seed string) bool { return seed == r.lab.address(i+1, 1)+":7946" })
	}
	s := r.run(i, which, append([]string{"--node", m.name, "--join", strings.Join(seeds, ",")}, r.args...)...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.s, m.all = s, append(m.all, s)
}

// run starts a process in the namespace of node i.
func (r *rig) run(i, which int, args ...string) *server {
	r.t.Helper()
	address := r.lab.address(i+1, which)
	var s *server
	err := r.lab.in(nodeLabel(i+1), func() {
		s = launch(r.t, append([]string{"--http", address + ":8080", "--bind", address + ":7946"}, args...)...)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	s.http, s.bind, s.web = address+":8080", address+":7946", r.web
	return s
}

// waitWhole waits until every node sees every other.
func (r *rig) waitWhole() {
	r.t.Helper()
	for _, m := range r.nodes {
		r.waitAlive(m, len(r.nodes))
	}
}

func (r *rig) waitAlive(m *member, n int) {
	r.t.Helper()
	wait(r.t, fmt.Sprintf("%s seeing %d members", m.name, n), func() bool { return len(m.server().members("alive")) == n })
}

// parts is among how many members the node divides each limit; 0 if it does not say.
func (s *server) parts() int {
	var view struct{ K int }
	if s.read("/v1/cluster", &view) != nil {
		return 0
	}
	return view.K
}

// read gets what the node answers to a question.
func (s *server) read(path string, into any) error {
	resp, err := s.web.Get("http://" + s.http + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// except are the nodes other than i.
func (r *rig) except(i int) (others []int) {
	for j := range r.nodes {
		if j != i {
			others = append(others, j)
		}
	}
	return others
}

// labNumbers are nodes as the lab counts them, from 1.
func labNumbers(nodes ...int) (out []int) {
	for _, i := range nodes {
		out = append(out, i+1)
	}
	return out
}

// keyOf finds an unused key that a node owns.
func (r *rig) keyOf(limit rule, node int) string {
	r.t.Helper()
	for range 1000 {
		r.keys++
		key := fmt.Sprintf("key-%d-%x", r.keys, r.rng.Uint32())
		if r.nodes[0].server().owner(r.t, limit.name, key) == r.nodes[node].name {
			return key
		}
	}
	r.t.Fatalf("no key of 1000 is owned by %s", r.nodes[node].name)
	return ""
}

// unmeant is how often the machine did not run a node for so long that it took
// it for a pause, besides the pauses that the test made.
func (r *rig) unmeant() int {
	n := -r.meant
	for _, m := range r.nodes {
		m.mu.Lock()
		n += paused(m.all)
		m.mu.Unlock()
	}
	return max(n, 0)
}

// stream is a load on one key, through some nodes, until it is stopped.
type stream struct {
	flood
	rule    rule
	key     string
	rig     *rig
	ended   atomic.Bool
	workers sync.WaitGroup
	excused atomic.Int64 // requests that failed at nodes that were down
}

// pressure is how hard a stream presses on each node.
type pressure struct {
	workers int // each sends one request at a time
	pace    time.Duration
}

var (
	// steady offers 80/s at each node, nearly three times the limit of kinds.
	steady = pressure{2, 25 * time.Millisecond}
	// sudden empties a bucket of kinds within about 100 ms.
	sudden = pressure{2, 8 * time.Millisecond}
	// salvo puts more than a node's part of the burst of kinds into its queue at once.
	salvo = pressure{30, 250 * time.Millisecond}
)

// load begins a stream to some nodes.
func (r *rig) load(limit rule, key string, p pressure, nodes ...int) *stream {
	s := &stream{rule: limit, key: key, rig: r}
	s.first, s.sources = time.Since(r.begin), map[string]int{}
	s.last = s.first
	for _, i := range nodes {
		for range p.workers {
			s.workers.Go(func() { s.ask(r.nodes[i], p.pace) })
		}
	}
	r.t.Cleanup(func() { s.ended.Store(true) })
	return s
}

// everyKind begins a steady stream of each limit through all nodes, on keys that one node owns.
func (r *rig) everyKind(owner int) (all []*stream) {
	r.t.Helper()
	for _, l := range r.rules {
		all = append(all, r.load(l, r.keyOf(l, owner), steady, r.every()...))
	}
	return all
}

func (r *rig) every() []int { return r.except(-1) }

func (s *stream) ask(m *member, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ; !s.ended.Load(); <-tick.C {
		down, sent := m.isDown(), time.Since(s.rig.begin)
		d, err := m.server().ask(s.rig.web, s.rule.name, s.key)
		if err != nil && (down || m.isDown()) {
			s.excused.Add(1)
			continue
		}
		s.add(envelope.Admission{Sent: sent, Done: time.Since(s.rig.begin)}, d, err)
	}
}

// stop ends the stream and waits for its last answers.
func (s *stream) stop() {
	s.ended.Store(true)
	s.workers.Wait()
}

// waitUsed waits until the limit has been used, but for a tenth, for two seconds.
func (s *stream) waitUsed() {
	s.rig.t.Helper()
	const window = 2
	wait(s.rig.t, "nine tenths of "+s.rule.name+" being used", func() bool {
		return s.admittedInLast(window*time.Second) >= window*s.rule.rate*9/10
	})
}

// judge stops the stream and compares it with what is promised: nothing beyond
// b + r*t with wait; with share once b for each event.
func (s *stream) judge(fault string, events int) {
	t := s.rig.t
	t.Helper()
	s.stop()
	for _, err := range s.errors[:min(len(s.errors), 3)] {
		t.Errorf("%s: no decision: %v (%d such)", s.rule.name, err, len(s.errors))
	}
	worst := excess(t, fault, s.rule, s.admitted, (s.last - s.first).Seconds(), fmt.Sprintf(
		"refused %d, failed at nodes that were down %d, slowest %v, decided by %v", s.refused, s.excused.Load(), s.slowest.Round(time.Millisecond), s.sources))
	if s.refused == 0 {
		t.Errorf("%s: nothing was refused: the load was too small to show anything", s.rule.name)
	}
	bound := 1.0
	if s.rule.fallback == "share" {
		n := s.rig.unmeant()
		if n > 0 {
			t.Logf("%s: each of %d pauses that the machine made allows %d more", s.rule.name, n, s.rule.burst)
		}
		bound += float64((events + n) * s.rule.burst)
	}
	if worst.Tokens > bound {
		t.Errorf("%s, %s: excess of %.2f tokens from %v to %v, more than %.0f", fault, s.rule.name, worst.Tokens, worst.From, worst.To, bound)
	}
}

// excess logs one line of a table, and returns the worst excess.
func excess(t *testing.T, fault string, l rule, admitted []envelope.Admission, seconds float64, more string) envelope.Excess {
	t.Helper()
	worst := envelope.WorstExcess(admitted, float64(l.rate), float64(l.burst))
	allowed := float64(l.burst) + float64(l.rate)*seconds
	t.Logf("| %s | %s | %s | admitted %d | allowed %.1f | used %.1f %% | worst excess %.2f | %s", fault, l.mode, l.fallback,
		len(admitted), allowed, 100*float64(len(admitted))/allowed, worst.Tokens, more)
	return worst
}

// admittedFrom are the admissions that were sent after a moment.
func admittedFrom(streams []*stream, from time.Duration) (all []envelope.Admission) {
	for _, s := range streams {
		s.mu.Lock()
		all = append(all, s.admitted...)
		s.mu.Unlock()
	}
	return slices.DeleteFunc(all, func(a envelope.Admission) bool { return a.Sent < from })
}

// flash is a load that begins with a full bucket, at the moment of a fault: the
// worst there is for nodes that cannot ask. Begin it with an idle key.
func (r *rig) flash(keys []flashKey, p pressure, nodes ...int) (all []*stream) {
	for _, k := range keys {
		all = append(all, r.load(k.rule, k.key, p, nodes...))
	}
	return all
}

type flashKey struct {
	rule rule
	key  string
}

// idleKeys are keys of all hybrid limits that a node owns and nobody has used,
// with all of their burst.
func (r *rig) idleKeys(owner int) (keys []flashKey) {
	r.t.Helper()
	for _, l := range r.rules {
		if l.mode == "hybrid" {
			keys = append(keys, flashKey{l, r.fullKey(l, owner)})
		}
	}
	return keys
}

// fullKey is an unused key of a node that has all of its burst. With wait that
// takes burst/rate from when the node became the owner.
func (r *rig) fullKey(l rule, owner int) string {
	r.t.Helper()
	key := r.keyOf(l, owner)
	wait(r.t, l.name+" being full", func() bool {
		var state struct{ Remaining int }
		return r.nodes[owner].server().read("/v1/peek?limit="+l.name+"&key="+key, &state) == nil && state.Remaining == l.burst
	})
	return key
}

// sleep lets real time pass: how long a fault lasts, not how fast something is.
func sleep(d time.Duration) { <-time.After(d) }
