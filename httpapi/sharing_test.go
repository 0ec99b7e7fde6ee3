package httpapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jatah-io/jatah"
)

// told is what an answer says of one take.
type told struct {
	Allowed   bool
	Limit     string
	Key       string
	Plan      string
	Cost      int64
	Remaining int64
	Error     *struct{ Detail string }
}

// client asks with keys and costs that nobody else has, and checks that the answers are about nothing else.
type client struct {
	t     *testing.T
	h     http.Handler
	id    int
	rng   *rand.Rand
	heads []http.Header // of answered requests, with what they must still say
	says  []string
}

func (c *client) body() (body string, want told) {
	want = told{Allowed: true, Limit: "api", Key: fmt.Sprintf("client %d key %d", c.id, c.rng.IntN(4)), Cost: int64(1000*(c.id+1) + c.rng.IntN(1000))}
	switch c.rng.IntN(5) {
	case 0:
		want.Plan = "big"
		return fmt.Sprintf(`{"limit":"api","plan":"big","key":%q,"cost":%d}`, want.Key, want.Cost), want
	case 1: // not plain
		return fmt.Sprintf(`{"limit":"\u0061pi","key":%q,"cost":%d}`, want.Key, want.Cost), want
	case 2:
		want.Limit = "other"
	}
	return fmt.Sprintf(`{"key":%q,"limit":%q,"cost":%d}`, want.Key, want.Limit, want.Cost), want
}

func (c *client) ask(path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
	if w.Header().Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
		c.t.Errorf("%s: %v of %d bytes", body, w.Header(), w.Body.Len())
	}
	c.heads = append(c.heads, w.Header())
	c.says = append(c.says, fmt.Sprint(w.Header()))
	return w
}

func (c *client) check(sent string, got, want told) {
	rest := got.Remaining
	if got.Remaining = 0; got != want || rest <= 0 {
		c.t.Errorf("%s\ngot  %+v\nwant %+v", sent, got, want)
	}
}

func (c *client) take() {
	body, want := c.body()
	w := c.ask("/v1/take", body)
	var got told
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		c.t.Errorf("%v: %s", err, w.Body)
	}
	c.check(body, got, want)
	if h := w.Header(); h.Get("X-RateLimit-Remaining") != strconv.FormatInt(got.Remaining, 10) || !strings.HasPrefix(h.Get("RateLimit-Policy"), strconv.Quote(want.Limit)) {
		c.t.Errorf("%s: %s %v", body, w.Body, h)
	}
}

// several is a batch or a take-all. With bad items a batch has errors in their places; a body that is cut short is refused, and whatever was read of it
// is nobody else's.
func (c *client) several(path string, bad bool) {
	var bodies []string
	var wants []told
	for range 1 + c.rng.IntN(20) {
		body, want := c.body()
		if bad && c.rng.IntN(3) == 0 {
			body, want = fmt.Sprintf(`{"limit":"none of %d","key":"k"}`, c.id), told{}
			if c.rng.IntN(2) == 0 {
				body = fmt.Sprintf(`{"field %d":1}`, c.id)
			}
		}
		bodies, wants = append(bodies, body), append(wants, want)
	}
	all := `{"takes":[` + strings.Join(bodies, ",") + `]}`
	if c.rng.IntN(8) == 0 {
		if w := c.ask(path, all[:len(all)-1-c.rng.IntN(min(30, len(all)-1))]); w.Code != 400 {
			c.t.Errorf("%s: %d %s", all, w.Code, w.Body)
		}
	}
	var got struct{ Results []told }
	w := c.ask(path, all)
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Results) != len(bodies) {
		c.t.Errorf("%s: %v: %s", all, err, w.Body)
		return
	}
	for i, one := range got.Results {
		if wants[i].Limit != "" {
			c.check(bodies[i], one, wants[i])
		} else if one.Error == nil || !strings.Contains(one.Error.Detail, strconv.Itoa(c.id)) {
			c.t.Errorf("%s: %+v", bodies[i], one)
		}
	}
}

func TestNoAnswerHasAnythingOfAnother(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	api, other := bigLimit(), bigLimit()
	api.Plans = map[string]jatah.Plan{"big": {Rate: api.Rate, Burst: api.Burst}}
	other.Name = "other"
	a := newAPI(t, Config{MaxBatch: 20}, api, other)
	var all sync.WaitGroup
	for id := range 8 {
		all.Go(func() {
			c := &client{t: t, h: a.h, id: id, rng: rand.New(rand.NewPCG(seed, uint64(id)))}
			for range 400 {
				switch c.rng.IntN(4) {
				case 0:
					c.several("/v1/batch", false)
				case 1:
					c.several("/v1/batch", true)
				case 2:
					c.several("/v1/take-all", false)
				default:
					c.take()
				}
			}
			for i, head := range c.heads { // nobody wrote into what was given away
				if got := fmt.Sprint(head); got != c.says[i] {
					t.Errorf("headers became %s, were %s", got, c.says[i])
				}
			}
		})
	}
	// Definitions change meanwhile, and with them what is remembered of them.
	for i := range 200 {
		l := other
		l.Burst += int64(i % 2)
		if _, err := a.node.Limit(l); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
}

// TestShortcutsAreTheRoutes: the calls that are not looked up are answered as those that are.
func TestShortcutsAreTheRoutes(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	for _, target := range []string{"/v1/take", "/v1/take/", "//v1/take", "/v1/./take", "/v1/t%61ke", "/v1/take?deny_status=200", "/v1/take?x=1", "/v1/batch", "/v1/batch?x=1",
		"/v1/b%61tch", "http://example.org/v1/take", "/v1/take%2F", "/V1/take"} {
		for _, method := range []string{"POST", "GET", "HEAD", "PUT", "OPTIONS", "post"} {
			for _, body := range []string{`{"limit":"api","key":"u","cost":0}`, `{"takes":[{"limit":"api","key":"u","cost":0}]}`, `{`, ``} {
				ask := func(h http.Handler) string {
					r, w := httptest.NewRequest(method, target, strings.NewReader(body)), httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return fmt.Sprint(w.Code, w.Header(), w.Body, r.Pattern)
				}
				if got, want := ask(a.h), ask(a.h.mux); got != want {
					t.Errorf("%s %s %s\ngot  %s\nwant %s", method, target, body, got, want)
				}
			}
		}
	}
}
