package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// cluster starts three nodes in the bubble, which know the limits.
func cluster(t *testing.T, net *simnet.Network, limits ...jatah.Limit) (nodes []*jatah.Node) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(10 * time.Second) }) // what a probe of a node that is gone waits for
	var seeds []string
	for i := range 3 {
		addr := fmt.Sprintf("10.0.0.%d:7946", i+1)
		tr, err := net.Transport(addr)
		if err != nil {
			t.Fatal(err)
		}
		node, err := jatah.Open(t.Context(), jatah.Config{Node: addr, Transport: tr, Join: seeds, Expect: 3, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		seeds = append(seeds, addr)
		for _, l := range limits {
			if _, err := node.Limit(l); err != nil {
				t.Fatal(err)
			}
		}
		nodes = append(nodes, node)
	}
	for _, n := range nodes {
		if err := n.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// The owner of a key hangs for ten seconds, in which the other two nodes get 200 requests each. With shares they admit at most their thirds and answer
// 429; who has said that nothing passes then gets 503, which is nobody's fault but ours and pauses or drops no client; nobody is kept waiting.
func TestASilentOwnerIsNoReachedLimit(t *testing.T) {
	for _, c := range []struct {
		fallback       jatah.Fallback
		least, most    int // that pass at each node
		status         int // of what does not
		slug           string
		source         jatah.Source
		undecided, hit bool
	}{
		{jatah.FallbackShare, 20, 34, 429, "rate-limited", jatah.SourceAhead, false, true},
		{jatah.FallbackAllow, 200, 200, 0, "", jatah.SourceAllow, false, false},
		{jatah.FallbackDeny, 0, 0, 503, "undecided", jatah.SourceDeny, true, false},
	} {
		t.Run(c.fallback.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := simnet.New(3)
				nodes := cluster(t, net, jatah.Limit{Name: "api", Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(100), Mode: jatah.Strict, Fallback: c.fallback})
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // all have their shares of a window that begins now
				api, _ := nodes[0].Lookup("api")
				st, err := api.Peek(t.Context(), "all")
				if err != nil {
					t.Fatal(err)
				}
				net.Pause(st.Owner)
				time.Sleep(time.Second)
				passed := 0
				for _, node := range nodes {
					if node.Name() == st.Owner {
						continue
					}
					e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{
						Uses: []edge.Use{forAll("api")}, Pause: &edge.Pause{After: 1000}, Answer: &edge.Answer{Drop: &edge.Drop{After: 1000, Within: time.Minute}},
					}}})
					h, here := e.Middleware(hello), 0
					for range 200 {
						w, begin := httptest.NewRecorder(), time.Now()
						h.ServeHTTP(w, request("GET", "/", someone))
						if took := time.Since(begin); took > 60*time.Millisecond {
							t.Errorf("a decision took %v, and the owner may take 50 ms", took)
						}
						if w.Code == 200 {
							here++
							continue
						}
						var p refusalBody
						wait, _ := strconv.Atoi(w.Header().Get("Retry-After"))
						if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Type != "urn:jatah:problem:"+c.slug || wait < 1 {
							t.Fatalf("%d, Retry-After %d, %s, want %d %s", w.Code, wait, w.Body, c.status, c.slug)
						}
					}
					passed += here
					if here < c.least || here > c.most {
						t.Errorf("%s admits %d, want %d to %d", node.Name(), here, c.least, c.most)
					}
					s := e.Stats()[0]
					if c.undecided && (s.Undecided != 200 || s.Refused != 0) || !c.undecided && (s.Undecided != 0 || s.Admitted+s.Refused != 200) {
						t.Errorf("counted as %+v", s)
					}
					if got := len(e.Penalties("", 0)) > 0; got != c.hit {
						t.Errorf("a client has refusals on its account: %v, want %v", got, c.hit)
					}
					counted := uint64(0)
					for _, d := range node.Stats().Limits[0].Decisions {
						if d.Source == c.source {
							counted += d.Count
						}
					}
					if counted == 0 {
						t.Errorf("the node counts no decision by %v: %+v", c.source, node.Stats().Limits[0].Decisions)
					}
				}
				if c.fallback == jatah.FallbackShare && passed > 67 { // whole shares of 100: 34, 33 and 33
					t.Errorf("%d pass in all, which is more than two shares", passed)
				}
				time.Sleep(8 * time.Second)
				net.Resume(st.Owner)
				time.Sleep(4 * time.Second)
				if st, err := api.Peek(t.Context(), "all"); err != nil || c.fallback != jatah.FallbackAllow && st.Remaining > int64(100-passed) {
					t.Errorf("%d were admitted while the owner hung, and %+v is left, %v", passed, st, err)
				}
			})
		})
	}
}
