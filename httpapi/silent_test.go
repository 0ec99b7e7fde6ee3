package httpapi

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// With fallback deny a silent owner means that nothing passes. That is no limit that was reached, so it is 503, with the decision.
func TestADenialByFallbackIsNot429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(5)
		defer time.Sleep(10 * time.Second) // what a probe of a node that is gone waits for
		var nodes []*jatah.Node
		var seeds []string
		for i := range 2 {
			addr := fmt.Sprintf("10.0.0.%d:7946", i+1)
			tr, err := net.Transport(addr)
			if err != nil {
				t.Fatal(err)
			}
			node, err := jatah.Open(t.Context(), jatah.Config{Node: addr, Transport: tr, Join: seeds, Expect: 2, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			for _, l := range []jatah.Limit{
				{Name: "api", Rate: jatah.PerMinute(100), Mode: jatah.Strict, Fallback: jatah.FallbackDeny},
				{Name: "none", Rate: jatah.PerMinute(0)},
				{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1, Fallback: jatah.FallbackDeny},
			} {
				if _, err := node.Limit(l); err != nil {
					t.Fatal(err)
				}
			}
			nodes, seeds = append(nodes, node), append(seeds, addr)
		}
		for _, n := range nodes {
			if err := n.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// keys that the second node owns, of each limit
		keyOf := func(limit string) string {
			l, _ := nodes[0].Lookup(limit)
			for i := 0; ; i++ {
				key := fmt.Sprint("k", i)
				if st, err := l.Peek(t.Context(), key); err == nil && st.Owner == seeds[1] {
					return key
				}
			}
		}
		api, jobs := keyOf("api"), keyOf("jobs")
		net.Pause(seeds[1])
		time.Sleep(time.Second)
		h := New(nodes[0], Config{})
		for _, c := range []struct {
			path, body string
			status     int
		}{
			{"/v1/take", fmt.Sprintf(`{"limit":"api","key":%q}`, api), 503},
			{"/v1/take?deny_status=403", fmt.Sprintf(`{"limit":"api","key":%q}`, api), 403},
			{"/v1/take-all", fmt.Sprintf(`{"takes":[{"limit":"api","key":%q}]}`, api), 503},
			{"/v1/take-all", fmt.Sprintf(`{"takes":[{"limit":"api","key":%q},{"limit":"none","key":"k"}]}`, api), 429},
			{"/v1/acquire", fmt.Sprintf(`{"limit":"jobs","key":%q}`, jobs), 503},
		} {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), "POST", c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(w, r)
			decided := strings.Contains(w.Body.String(), `"allowed":false`) && w.Header().Get("Content-Type") == "application/json"
			if w.Code != c.status || !decided || c.status == 503 && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"source":"deny"`)) {
				t.Errorf("%s %s: %d %v %s, want %d with the decision", c.path, c.body, w.Code, w.Header(), w.Body, c.status)
			}
		}
	})
}
