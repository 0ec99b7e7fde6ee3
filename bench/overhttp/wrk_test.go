package overhttp

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bench/report"
)

const wrkSays = `Running 4s test @ http://127.0.0.1:41235
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   571.00us    1.02ms  21.13ms   93.43%
    Req/Sec    62.51k     4.77k   71.89k    65.00%
  Latency Distribution
     50%  399.00us
     75%  590.00us
     90%    1.13ms
     99%    5.21ms
  248848 requests in 4.01s, 88.51MB read
Requests/sec:  62110.02
Transfer/sec:     22.09MB
`

func TestParseWrk(t *testing.T) {
	got, requests, err := parseWrk(wrkSays)
	want := measurement{62110.02, 399 * time.Microsecond, 5210 * time.Microsecond, 0}
	if err != nil || got != want || requests != 248848 {
		t.Errorf("got %v, %d requests, %v; want %v, 248848", got, requests, err, want)
	}
}

func TestParseWrkRefusesARunWithFailures(t *testing.T) {
	for _, line := range []string{"  Non-2xx or 3xx responses: 12", "  Socket errors: connect 0, read 3, write 0, timeout 0"} {
		_, _, err := parseWrk(strings.Replace(wrkSays, "Requests/sec", line+"\nRequests/sec", 1))
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(line)) {
			t.Errorf("%q: error %v", line, err)
		}
	}
	none := strings.Replace(wrkSays, "248848 requests", "0 requests", 1)
	if m, _, err := parseWrk(none); err == nil {
		t.Errorf("no requests, but %v", m)
	}
	if m, _, err := parseWrk("wrk: usage"); err == nil {
		t.Errorf("no numbers, but %v", m)
	}
}

func TestSuiteRunsInShortForm(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers; leave out -short to run it")
	}
	for _, program := range []string{wrkProgram, "go"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s in PATH: %v", program, err)
		}
	}
	o := report.Options{Short: true, Rounds: 1, Dir: t.TempDir(), Log: t.Logf}
	samples, err := report.RunSuites(t.Context(), []report.Suite{Suite()}, o)
	if err != nil {
		t.Fatal(err)
	}
	set := report.Collect(samples)
	for _, kase := range []string{takeCase, batchCase} {
		for _, peer := range []string{bareName, oursName, "gubernator HTTP", "gubernator gRPC"} {
			if !withGubernator && strings.HasPrefix(peer, "gubernator") {
				continue
			}
			perSecond, ok := set.Median("http", kase, "decisions/s", peer)
			cpu, _ := set.Median("http", kase+timeCase, "µs", peer)
			p99, _ := set.Median("http", kase+", p99", "µs", peer)
			if !ok || perSecond <= 0 || p99 <= 0 || cpu < 0 {
				t.Errorf("%s of %s: %v/s, p99 %v µs, processor time %v µs", kase, peer, perSecond, p99, cpu)
			}
			t.Logf("%-14s %-16s %10.0f decisions/s, p99 %8.0f µs, %6.1f µs of processor time per request", kase, peer, perSecond, p99, cpu)
		}
	}
}

func TestCheck(t *testing.T) {
	of := func(ours, bare float64) report.Set {
		return report.Collect([]report.Sample{
			{Suite: "http", Case: takeCase + timeCase, Peer: oursName, Unit: "µs", Values: []float64{ours}},
			{Suite: "http", Case: takeCase + timeCase, Peer: bareName, Unit: "µs", Values: []float64{bare}},
		})
	}
	if errs := check(of(39, 10)); len(errs) != 0 {
		t.Errorf("3.9 times the bare handler: %v", errs)
	}
	if errs := check(of(41, 10)); len(errs) != 1 {
		t.Errorf("4.1 times the bare handler: %v, want one error", errs)
	}
	if errs := check(report.Collect(nil)); len(errs) != 1 {
		t.Errorf("nothing measured: %v, want one error", errs)
	}
}

func TestRequestsAskForEachKeyOnce(t *testing.T) {
	for _, size := range []int{1, 100} {
		for _, a := range []asking{questions(size, 1000), gubernatorQuestions(size, 1000)} {
			if len(a.bodies) != 1000/size {
				t.Errorf("%s: %d bodies of %d items", a.path, len(a.bodies), size)
			}
			all := strings.Join(a.bodies, "")
			for i := range 1000 {
				if n := strings.Count(all, `"`+keyName(i)+`"`); n != 1 {
					t.Fatalf("%s with %d items: %s is asked for %d times", a.path, size, keyName(i), n)
				}
			}
		}
	}
}
