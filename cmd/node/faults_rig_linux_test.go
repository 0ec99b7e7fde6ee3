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
	"testing"
	"time"
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

// sleep lets real time pass: how long a fault lasts, not how fast something is.
func sleep(d time.Duration) { <-time.After(d) }
