package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/client"
)

// everyAlgorithm is one file with a limit of each kind, so slow that nothing comes back during a test. A year's windows do not end in one either,
// except on New Year's Eve.
const everyAlgorithm = `
node: n1
limits:
  - {name: bucket, rate: 1/d, burst: 3}
  - {name: rates, rates: [5/d, 3/week]}
  - {name: fixed, rate: 3/year, algorithm: fixed_window}
  - {name: calendar, rate: 3/year, algorithm: fixed_window, calendar: year, timezone: Europe/Berlin}
  - {name: sliding, rate: 3/year, algorithm: sliding_window}
  - {name: log, rate: 3/week, algorithm: sliding_log, max_log: 8}
  - {name: leaky, rate: 1/d, algorithm: leaky_bucket, burst: 3}
  - {name: queue, rate: 1/d, algorithm: leaky_bucket, queue: 2}
  - {name: patient, rate: 1/d, algorithm: leaky_bucket, max_wait: 48h}
  - {name: average, rate: 1/d, algorithm: burst_average, burst: 3, burst_rate: 2/d, burst_threshold: 1/2d, burst_time: 96h}
  - name: jobs
    algorithm: concurrency
    max: 3
    ttl: 30s
`

// expected is what the documentation says of each: the definition as check prints it, and the policy.
var expected = map[string]struct{ definition, policy string }{
	"bucket":   {"1/d, burst 3, token_bucket, hybrid, fallback share", `"bucket";q=3;w=259200`},
	"rates":    {"5/d and 3/week, burst 5, token_bucket, hybrid, fallback share", `"rates";q=5;w=86400, "rates-2";q=3;w=604800`},
	"fixed":    {"3/year, fixed_window, hybrid, fallback share", `"fixed";q=3;w=31536000`},
	"calendar": {"3/year, fixed_window, calendar year in Europe/Berlin, hybrid, fallback share", `"calendar";q=3;w=31536000`},
	"sliding":  {"3/year, sliding_window, hybrid, fallback share", `"sliding";q=3;w=31536000`},
	"log":      {"3/week, sliding_log, log 8, hybrid, fallback share", `"log";q=3;w=604800`},
	"leaky":    {"1/d, burst 3, leaky_bucket, hybrid, fallback share", `"leaky";q=3;w=259200`},
	"queue":    {"1/d, leaky_bucket, queue 2, strict, fallback share", `"queue";q=3;w=259200`},
	"patient":  {"1/d, leaky_bucket, longest wait 48h0m0s, strict, fallback share", `"patient";q=3;w=259200`},
	"average":  {"1/d, burst 3, burst_average, 2/d while the average of 96h0m0s is below 1/2d, hybrid, fallback share", `"average";q=3;w=259200`},
}

func algorithmsFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jatah.yaml")
	if err := os.WriteFile(path, []byte(everyAlgorithm), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckDescribesEveryAlgorithm(t *testing.T) {
	code, out, errs := runCommand(nil, "check", algorithmsFile(t))
	if code != 0 {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	if line := "\nlimit jobs: at most 3 at once, concurrency, each for at most 30s unless renewed, hybrid, fallback share\n"; !strings.Contains(out, line) {
		t.Errorf("no line %q in\n%s", line, out)
	}
	for name, e := range expected {
		if line := "\nlimit " + name + ": " + e.definition + "\n"; !strings.Contains(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
	for _, name := range jatah.Algorithms() {
		if !strings.Contains(out, name) {
			t.Errorf("%s is not in the file of this test", name)
		}
	}
}

// A node with a limit of each kind in its file lets three requests of each pass, and refuses the fourth.
func TestServeDecidesByEveryAlgorithm(t *testing.T) {
	besideOthers(t)
	s := startServer(t, "--config", algorithmsFile(t))
	s.waitReady()
	for name, e := range expected {
		t.Run(name, func(t *testing.T) {
			for i := range 3 {
				d, err := s.ask(s.web, name, "u1")
				if err != nil || !d.Allowed || d.Remaining != int64(2-i) {
					t.Fatalf("request %d: %+v, %v", i+1, d, err)
				}
				// A queue gives each request its day, counted from the first one, whenever that was.
				days := time.Duration(i) * 24 * time.Hour
				if queued := name == "queue" || name == "patient"; queued != (d.Delay > 0) && i > 0 || d.Delay > days || queued && d.Delay < days-patience {
					t.Errorf("request %d: a delay of %v", i+1, d.Delay)
				}
			}
			d, err := s.ask(s.web, name, "u1")
			if err != nil || d.Allowed || d.Remaining != 0 || d.RetryAfter == client.Never || d.RetryAfter <= 0 || d.Delay != 0 {
				t.Errorf("request 4: %+v, %v", d, err)
			}
			if other, err := s.ask(s.web, name, "u2"); err != nil || !other.Allowed {
				t.Errorf("another key: %+v, %v", other, err)
			}
			resp, err := s.web.Post("http://"+s.http+"/v1/take", "application/json", strings.NewReader(fmt.Sprintf(`{"limit":%q,"key":"u1"}`, name)))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header.Get("RateLimit-Policy"); resp.StatusCode != http.StatusTooManyRequests || got != e.policy || resp.Header.Get("X-RateLimit-Limit") != "3" {
				t.Errorf("status %d, policy %s of %s, want %s", resp.StatusCode, got, resp.Header.Get("X-RateLimit-Limit"), e.policy)
			}
		})
	}
	if code, out, errs := program(t, "take", "--addr", s.http, "queue", "u3"); code != 0 || strings.Contains(out, "go on in") {
		t.Errorf("the first in a queue: code %d, %q %q", code, out, errs)
	}
	if code, out, errs := program(t, "take", "--addr", s.http, "queue", "u3"); code != 0 || !strings.Contains(out, "; 1 left, go on in 2") {
		t.Errorf("the second in a queue: code %d, %q %q", code, out, errs)
	}
	var view struct{ Limits []map[string]any }
	resp, err := s.web.Get("http://" + s.http + "/v1/limits")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&view); err != nil || len(view.Limits) != len(expected)+1 { // and jobs
		t.Errorf("%v, %d limits", err, len(view.Limits))
	}
	for _, l := range view.Limits {
		if l["name"] == "calendar" && (l["calendar"] != "year" || l["timezone"] != "Europe/Berlin" || l["rate"] != "3/year" || l["burst"] != nil) {
			t.Errorf("the definition of %v", l)
		}
	}
	terminate(t, s)
}
