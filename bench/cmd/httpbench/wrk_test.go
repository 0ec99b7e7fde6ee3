package main

import (
	"strings"
	"testing"
	"time"
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

func TestMedian(t *testing.T) {
	ms := []measurement{{3, 30, 1, 5}, {1, 20, 2, 7}, {2, 10, 9, 6}}
	if got, want := median(ms), (measurement{2, 20, 2, 6}); got != want {
		t.Errorf("odd: %v, want %v", got, want)
	}
	if got, want := median(ms[:2]), (measurement{2, 25, 1, 6}); got != want {
		t.Errorf("even: %v, want %v", got, want)
	}
}
