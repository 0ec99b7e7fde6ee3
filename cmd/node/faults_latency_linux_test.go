package main

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// times are how long answers took, under one condition.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *times) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, took)
}

// quantile is the smallest time that a part of all answers did not exceed.
func (d *times) quantile(part float64) time.Duration {
	slices.Sort(d.all)
	return d.all[min(int(part*float64(len(d.all))), len(d.all)-1)].Round(10 * time.Microsecond)
}

// Nothing here is asserted but that there were answers: times are for who reads them, which is why it runs beside no other test of
// this package.
func TestReportTimesOfDecisionsUnderFaults(t *testing.T) {
	// Far more than is asked for, so that nothing waits because of the limit.
	rules := []rule{{"hybrid", 10000, 10000, "hybrid", "share"}, {"strict", 10000, 10000, "strict", "share"}}
	r := newRig(t, 3, rules)
	owner := r.rng.IntN(3)
	others := r.except(owner)
	keys := map[string]string{}
	for _, l := range rules {
		keys[l.name] = r.keyOf(l, owner)
	}
	// Each worker asks in turn for a hybrid decision, a strict one and nothing at all,
	// from a node that is not the owner: 3 workers each 5 ms are 600 requests a second for
	// each node, far below half of what it can do.
	measure := func(name string) {
		result := map[string]*times{"hybrid": {}, "strict": {}, "null handler": {}}
		var workers sync.WaitGroup
		start := time.Now()
		for _, i := range others {
			for range 3 {
				workers.Go(func() { r.timeAnswers(r.nodes[i].server(), keys, result, lasting(2*time.Second)) })
			}
		}
		workers.Wait()
		n := len(result["hybrid"].all) + len(result["strict"].all) + len(result["null handler"].all)
		t.Logf("%s: %.0f requests a second in all; load of the machine %s", name, float64(n)/time.Since(start).Seconds(), machineLoad())
		for _, what := range []string{"hybrid", "strict", "null handler"} {
			d := result[what]
			if len(d.all) == 0 {
				t.Errorf("%s, %s: no answers", name, what)
				continue
			}
			t.Logf("| %s | %s | p50 %v | p99 %v | p99.9 %v | of %d", name, what, d.quantile(0.5), d.quantile(0.99), d.quantile(0.999), len(d.all))
		}
	}
	measure("no fault")
	r.lab.apply(r.lab.everywhere(0.3)...)
	measure("loss of 30 %")
	r.lab.apply(between(labNumbers(owner), labNumbers(others...), 1)...)
	measure("owner cut off")
	r.lab.apply()
	r.waitWhole()
	r.nodes[owner].server().signal(syscall.SIGSTOP)
	measure("owner halted")
	r.nodes[owner].server().signal(syscall.SIGCONT)
}

func (r *rig) timeAnswers(s *server, keys map[string]string, result map[string]*times, done func() bool) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for !done() {
		for _, limit := range []string{"hybrid", "strict"} {
			begin := time.Now()
			if _, err := s.ask(r.web, limit, keys[limit]); err != nil {
				r.t.Errorf("no decision: %v", err)
				return
			}
			result[limit].add(time.Since(begin))
			<-pace.C
		}
		begin := time.Now()
		resp, err := r.web.Get("http://" + s.http + "/healthz")
		if err != nil {
			r.t.Errorf("no answer: %v", err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			r.t.Errorf("/healthz: %s", resp.Status)
		}
		result["null handler"].add(time.Since(begin))
		<-pace.C
	}
}

// machineLoad is what the system says of how busy it is.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
