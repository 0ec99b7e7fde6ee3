package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// asked is how a request that takes of several limits was answered.
type asked struct {
	ok       bool
	status   int
	violated string
	left     map[string]int64 // by limit; not there where the answer does not tell
}

// takeAll asks the API for one token of each limit, or as costs say.
func (a *api) takeAll(costs map[string]int64, limits ...string) (got asked) {
	a.t.Helper()
	var takes []string
	for _, l := range limits {
		takes = append(takes, fmt.Sprintf(`{"limit":%q,"key":"u","cost":%d}`, l, max(1, costs[l])))
	}
	w := a.call("POST", "/v1/take-all", `{"takes":[`+strings.Join(takes, ",")+`]}`)
	var body struct {
		Allowed  bool
		Violated []string
		Results  []struct {
			Limit     string
			Remaining int64
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		a.t.Fatal(err)
	}
	got = asked{body.Allowed, w.Code, strings.Join(body.Violated, " "), map[string]int64{}}
	for _, r := range body.Results {
		got.left[r.Limit] = r.Remaining
	}
	return got
}

// throughEdge asks the same of a middleware with one rule.
func throughEdge(t *testing.T, node *jatah.Node, costs map[string]int64, limits ...string) func() asked {
	t.Helper()
	var rule edge.Rule
	for _, l := range limits {
		rule.Uses = append(rule.Uses, edge.Use{Limit: l, Key: []edge.Part{edge.Text("u")}, Cost: edge.Fixed(max(1, costs[l]))})
	}
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{rule}})
	if err != nil {
		t.Fatal(err)
	}
	h := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return func() (got asked) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		got = asked{w.Code == 200, w.Code, "", map[string]int64{}}
		if !got.ok {
			var body struct{ Violated []string }
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Error(err)
			}
			got.violated = strings.Join(body.Violated, " ")
		}
		for item := range strings.SplitSeq(w.Header().Get("RateLimit"), ", ") {
			name, rest, _ := strings.Cut(strings.TrimPrefix(item, `"`), `";r=`)
			var r int64
			if _, err := fmt.Sscan(strings.Split(rest, ";")[0], &r); err == nil {
				got.left[name] = r
			}
		}
		return got
	}
}

// Two limits that must both agree, asked for over HTTP and at the edge: what one refuses costs the other nothing, in either order, one after the
// other and from 64 goroutines at once.
func TestLimitsTogetherAreChargedWholeOrNotAtAll(t *testing.T) {
	minute := jatah.Limit{Name: "minute", Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(10)}
	half := jatah.Limit{Name: "half-hour", Algorithm: jatah.FixedWindow, Rate: jatah.Per(30, 30*time.Minute)}
	together := func(t *testing.T, atEdge bool, limits []string, f func(a *api, ask func() asked)) {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, Config{}, minute, half)
			ask := func() asked { return a.takeAll(nil, limits...) }
			if atEdge {
				ask = throughEdge(t, a.node, nil, limits...)
			}
			f(a, ask)
		})
	}
	for _, atEdge := range []bool{false, true} {
		for _, limits := range [][]string{{"minute", "half-hour"}, {"half-hour", "minute"}} {
			t.Run(fmt.Sprintf("edge %v, %s first", atEdge, limits[0]), func(t *testing.T) {
				together(t, atEdge, limits, func(a *api, ask func() asked) {
					passed := 0
					for i := range 31 {
						got := ask()
						if got.ok {
							passed++
						} else if got.status != 429 || got.violated != "minute" {
							t.Errorf("after %d s: %+v, want it refused by minute alone", i, got)
						}
						if got.ok != (i < 10) || got.left["half-hour"] != max(20, 29-int64(i)) {
							t.Errorf("after %d s: %+v", i, got)
						}
						time.Sleep(time.Second)
					}
					if left := a.remaining("half-hour", "u"); passed != 10 || left != 20 {
						t.Errorf("%d pass and %d of the half hour are left, want 10 and 20", passed, left)
					}
					time.Sleep(29 * time.Second)
					if got := ask(); !got.ok || got.left["minute"] != 9 || got.left["half-hour"] != 19 {
						t.Errorf("in the next minute: %+v, want 9 and 19 left", got)
					}
				})
				together(t, atEdge, limits, func(a *api, ask func() asked) {
					var passed atomic.Int64
					var all sync.WaitGroup
					for range 64 {
						all.Go(func() {
							for range 31 {
								if got := ask(); got.ok {
									passed.Add(1)
								} else if got.violated != "minute" {
									t.Errorf("%+v", got)
								}
							}
						})
					}
					all.Wait()
					if left := a.remaining("half-hour", "u"); passed.Load() != 10 || left != 20 {
						t.Errorf("64 at once: %d pass and %d of the half hour are left, want 10 and 20", passed.Load(), left)
					}
				})
			})
		}
	}
}

// A cost that one limit never allows is refused for good, and the other has all that it had.
func TestACostThatIsNeverPossibleTakesNothingElsewhere(t *testing.T) {
	requests, bytes := jatah.Limit{Name: "requests", Rate: jatah.PerSecond(100)}, jatah.Limit{Name: "bytes", Rate: jatah.PerSecond(4000)}
	costs := map[string]int64{"requests": 1, "bytes": 5000}
	for _, limits := range [][]string{{"requests", "bytes"}, {"bytes", "requests"}} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, Config{}, requests, bytes)
			for i, got := range []asked{a.takeAll(costs, limits...), throughEdge(t, a.node, costs, limits...)()} {
				if got.ok || got.status != 429 || got.violated != "bytes" || got.left["requests"] != 100 || got.left["bytes"] != 4000 {
					t.Errorf("%d: %+v, want it refused by bytes, and all left", i, got)
				}
			}
		})
	}
}

// Waits of less than a millisecond are a second in the header, and what no wait helps has none: over HTTP and at the edge.
func TestShortWaitsAreASecondAndEndlessOnesAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, jatah.Limit{Name: "fast", Rate: jatah.PerSecond(2000), Burst: 1}, jatah.Limit{Name: "slow", Rate: jatah.Per(5, 300*time.Second)},
			jatah.Limit{Name: "turn", Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(1)})
		for _, c := range []struct {
			limit string
			first int64 // what it costs to use the limit up
			pause time.Duration
			cost  int64
			retry string
			ms    string
		}{
			{"fast", 1, 400 * time.Microsecond, 1, "1", "1"},
			{"slow", 5, 59999 * time.Millisecond, 1, "1", "1"},
			{"slow", 0, time.Millisecond, 2, "60", "60000"},
			{"slow", 0, 0, 6, "", "null"},
			{"turn", 1, 59900*time.Millisecond - 400*time.Microsecond, 1, "1", "100"},
		} {
			if c.first > 0 {
				if w := a.take(fmt.Sprintf(`{"limit":%q,"key":"u","cost":%d}`, c.limit, c.first)); w.Code != 200 {
					t.Fatalf("%+v: %d", c, w.Code)
				}
			}
			time.Sleep(c.pause)
			rule := edge.Rule{Uses: []edge.Use{{Limit: c.limit, Key: []edge.Part{edge.Text("u")}, Cost: edge.Fixed(c.cost)}}}
			e, err := edge.New(a.node, edge.Config{Rules: []edge.Rule{rule}})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			e.Middleware(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			for i, w := range []*httptest.ResponseRecorder{a.take(fmt.Sprintf(`{"limit":%q,"key":"u","cost":%d}`, c.limit, c.cost)), w} {
				_, after, _ := strings.Cut(w.Body.String(), `"retry_after_ms":`)
				ms := after[:max(0, strings.IndexAny(after, ",}"))]
				if got := w.Header().Values("Retry-After"); w.Code != 429 || strings.Join(got, " ") != c.retry || ms != c.ms {
					t.Errorf("%d, %+v: %d, Retry-After %q, %s", i, c, w.Code, got, w.Body)
				}
				if c.ms == "null" && i == 0 && !strings.Contains(w.Body.String(), "exceeds the burst") {
					t.Errorf("the reason is not told: %s", w.Body)
				}
			}
		}
	})
}
