package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/client"
)

func key(parts ...string) client.Key { return parts }

func TestADecisionIsWhatTheNodeSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, client.Config{}, perMinute("api", 100, 20))
		l := c.Limiter("api")
		want := client.Decision{
			Allowed: true, Limit: "api", Key: key("u1"), Cost: 5, Remaining: 15, ResetAfter: 3 * time.Second, Mode: "hybrid", Source: "local",
		}
		if d, err := l.Take(t.Context(), key("u1"), 5); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("take: %+v, %v", d, err)
		}
		want.Allowed, want.Cost, want.RetryAfter = false, 16, 600*time.Millisecond
		if d, err := l.Take(t.Context(), key("u1"), 16); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("a denial: %+v, %v", d, err)
		}
		want.Cost, want.RetryAfter, want.Reason = 21, client.Never, "the cost 21 exceeds the burst 20; it is never possible"
		if d, err := l.Take(t.Context(), key("u1"), 21); err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("never: %+v, %v", d, err)
		}
		if d, err := l.Refund(t.Context(), key("u1"), 2); err != nil || !d.Allowed || d.Remaining != 17 {
			t.Errorf("refund: %+v, %v", d, err)
		}
		if d, err := l.Charge(t.Context(), key("u1"), 18); err != nil || !d.Allowed || d.Remaining > 0 {
			t.Errorf("charge: %+v, %v", d, err)
		}
		st, err := l.Peek(t.Context(), key("u1"))
		if err != nil || st.Balance != -1 || st.Burst != 20 || st.Owner != "n1" || st.RetryAfter != 1200*time.Millisecond || st.Mode != "hybrid" {
			t.Errorf("peek: %+v, %v", st, err)
		}
		if err := l.Reset(t.Context(), key("u1")); err != nil {
			t.Error(err)
		}
		if d, err := l.Take(t.Context(), key("u1"), 0); err != nil || d.Remaining != 20 {
			t.Errorf("a look after the reset: %+v, %v", d, err)
		}
	})
}

// The same list of parts is the same key in every call, and no two lists are the same, as strings or as bytes.
func TestKeysAreCountedApart(t *testing.T) {
	c := cluster(t, client.Config{}, perMinute("api", 1, 1000))
	keys := []client.Key{
		key("a"), key("a", ""), key("", "a"), key("ab"), key("a", "b"), key("\x00a"), key("\x00\x01a"), key("\xff"), key("\xfe"), key("�"),
		key("\xff", "x"), key("\xfe", "x"), key(`"`), key(`\`), key(`a","b`), key("\n"), key("é"), key("a b&c=d"), key("\u2028"), key("<>"),
	}
	for i, k := range keys {
		cost := int64(i + 1)
		if d, err := c.Take(t.Context(), client.Request{Limit: "api", Key: k, Cost: cost}); err != nil || d.Remaining != 1000-cost || !reflect.DeepEqual(d.Key, k) {
			t.Errorf("%v: %+v, %v", k, d, err)
		}
	}
	var batch []client.Request
	for _, k := range keys {
		batch = append(batch, client.Request{Limit: "api", Key: k})
	}
	results := c.Batch(t.Context(), batch)
	all, err := c.TakeAll(t.Context(), batch)
	if err != nil || !all.Allowed {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, k := range keys {
		left := 1000 - int64(i+1)
		st, err := c.Peek(t.Context(), client.Request{Limit: "api", Key: k})
		if err != nil || st.Remaining != left {
			t.Errorf("peek %v: %+v, %v; want %d", k, st, err, left)
		}
		if results[i].Err != nil || results[i].Remaining != left || all.Decisions[i].Remaining != left {
			t.Errorf("%v: batch %+v, all %+v; want %d", k, results[i], all.Decisions[i], left)
		}
	}
}

// A request is JSON whatever is in it, and what is UTF-8 is read back by any reader of JSON. What is not stays as it is.
func FuzzRequestsAreJSON(f *testing.F) {
	f.Add("api", "a", "b", "/x", int64(0))
	f.Add("\x00\"\\", "\xff", "\u2028<>", "", int64(-1))
	f.Fuzz(func(t *testing.T, limit, a, b, route string, cost int64) {
		if route != "" {
			cost = 0
		}
		r := client.Request{Limit: limit, Key: key(a, b), Cost: cost, Route: route, Plan: b}
		body, err := client.AppendRequest(nil, &r)
		if err != nil || !json.Valid(body) {
			t.Fatalf("%q, %v", body, err)
		}
		if !utf8.Valid(body) {
			return
		}
		var got client.Request
		if err := json.Unmarshal(body, &got); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%q is read as %+v, %v; want %+v", body, got, err, r)
		}
	})
}

func TestTakeAllAndBatch(t *testing.T) {
	c := cluster(t, client.Config{}, perMinute("a", 1, 10), perMinute("b", 1, 2))
	rs := []client.Request{{Limit: "a", Key: key("u"), Cost: 3}, {Limit: "b", Key: key("u"), Cost: 3}}
	all, err := c.TakeAll(t.Context(), rs)
	if err != nil || all.Allowed || !reflect.DeepEqual(all.Violated, []string{"b"}) || !all.Decisions[0].Allowed || all.Decisions[1].Allowed {
		t.Errorf("denied: %+v, %v", all, err)
	}
	rs[1].Cost = 2
	if all, err = c.TakeAll(t.Context(), rs); err != nil || !all.Allowed || all.Decisions[0].Remaining != 7 {
		t.Errorf("allowed: %+v, %v", all, err)
	}
	rs[1].Limit = "nope"
	if _, err = c.TakeAll(t.Context(), rs); !errors.Is(err, client.ErrUnknownLimit) || !strings.Contains(err.Error(), "takes[1].limit") {
		t.Errorf("an unknown limit: %v", err)
	}
	results := c.Batch(t.Context(), append(rs, client.Request{Limit: "a", Key: key("u"), Cost: 1, Route: "/x"}, client.Request{Limit: "a", Key: key("u"), Cost: 4}))
	if r := results[0]; r.Err != nil || !r.Allowed || r.Remaining != 4 {
		t.Errorf("0: %+v", r)
	}
	if r := results[1]; !errors.Is(r.Err, client.ErrUnknownLimit) {
		t.Errorf("1: %+v", r)
	}
	if r := results[2]; r.Err == nil || !strings.Contains(r.Err.Error(), "the cost 1 and the route") {
		t.Errorf("2: %+v", r)
	}
	if r := results[3]; r.Err != nil || !r.Allowed || r.Remaining != 0 {
		t.Errorf("3: %+v", r)
	}
	if got := c.Batch(t.Context(), nil); len(got) != 0 {
		t.Errorf("nothing: %v", got)
	}
}

func TestALargeBatchIsSplit(t *testing.T) {
	c := cluster(t, client.Config{}, perMinute("api", 1, 1_000_000))
	var many []client.Request
	for range 1300 {
		many = append(many, client.Request{Limit: "api", Key: key("few bytes"), Cost: 1})
	}
	for range 200 { // in JSON each needs 6 KiB
		many = append(many, client.Request{Limit: "api", Key: key(strings.Repeat("\x01", 1024)), Cost: 1})
	}
	for i, r := range c.Batch(t.Context(), many) {
		want := int64(1_000_000 - i - 1)
		if i >= 1300 {
			want += 1300
		}
		if r.Err != nil || r.Remaining != want {
			t.Fatalf("item %d: %+v, want %d left", i, r, want)
		}
	}
}

func TestPlansAndRoutes(t *testing.T) {
	limit := perMinute("api", 100, 20)
	limit.Plans = map[string]jatah.Plan{"pro": {Rate: jatah.Per(10, time.Second), Burst: 50}}
	limit.Costs = map[string]int64{"/export": 7}
	c := cluster(t, client.Config{}, limit)
	l := c.Limiter("api")
	if d, err := l.Plan("pro").Take(t.Context(), key("p"), 30); err != nil || d.Plan != "pro" || d.Remaining != 20 {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := l.Plan("gold").Take(t.Context(), key("p"), 30); !errors.Is(err, client.ErrUnknownPlan) {
		t.Errorf("%v", err)
	}
	if d, err := l.TakeRoute(t.Context(), key("r"), "/export"); err != nil || d.Cost != 7 || d.Remaining != 13 {
		t.Errorf("%+v, %v", d, err)
	}
	if st, err := l.Plan("pro").Peek(t.Context(), key("new")); err != nil || st.Plan != "pro" || st.Burst != 50 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t, client.Config{}, jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1, TTL: 30 * time.Second}, perSecond("api", 1, 1))
		p, d, err := c.Acquire(t.Context(), "jobs", key("u"), 10*time.Second)
		if err != nil || !d.Allowed || p.ID() == "" || d.ResetAfter != client.Never || time.Until(p.Expires()) != 10*time.Second {
			t.Fatalf("%+v, %+v, %v", p, d, err)
		}
		none, d, err := c.Acquire(t.Context(), "jobs", key("u"), 0)
		if err != nil || d.Allowed || none != nil || none.Release(t.Context()) != nil {
			t.Errorf("a second: %+v, %+v, %v", none, d, err)
		}
		if left, err := p.Renew(t.Context(), 0); err != nil || left != 30*time.Second || time.Until(p.Expires()) != left {
			t.Errorf("renewed for %v, %v", left, err)
		}
		ended, cancel := testContext(t)
		cancel()
		if err := p.Release(ended); err != nil {
			t.Errorf("released when the context had ended: %v", err)
		}
		if err := p.Release(t.Context()); err != nil {
			t.Errorf("released twice: %v", err)
		}
		if err := c.Release(t.Context(), "jobs", key("u"), p.ID()); !errors.Is(err, client.ErrUnknownPermit) {
			t.Errorf("released by its id: %v", err)
		}
		p, _, err = c.Acquire(t.Context(), "jobs", key("u"), 0)
		if err != nil || p == nil {
			t.Fatalf("after the release: %v, %v", p, err)
		}
		var pr *client.Problem
		if _, _, err := c.Acquire(t.Context(), "jobs", key("u"), -time.Second); !errors.As(err, &pr) || pr.Field != "ttl_ms" {
			t.Errorf("a negative ttl: %v", err)
		}
		if _, _, err := c.Acquire(t.Context(), "api", key("u"), 0); !errors.As(err, &pr) || pr.Status != 400 || pr.Field != "limit" {
			t.Errorf("a limit of tokens: %v", err)
		}
		time.Sleep(31 * time.Second)
		if err := p.Release(t.Context()); !errors.Is(err, client.ErrUnknownPermit) {
			t.Errorf("released after it expired: %v", err)
		}
	})
}

func TestDefinitionsAndMembers(t *testing.T) {
	limit := perMinute("team/api", 100, 20)
	limit.Plans = map[string]jatah.Plan{"pro": {Rate: jatah.Per(10, time.Second), Burst: 50}}
	limit.Overrides = []jatah.Override{{Key: "vip", Plan: "pro"}, {Prefix: "in:", Rate: jatah.Per(9, time.Second), Burst: 9}}
	c := cluster(t, client.Config{}, limit)
	burst, fifty, nine := int64(20), int64(50), int64(9)
	want := client.Limit{
		Name: "team/api", Rate: "100/min", Burst: &burst, Algorithm: "token_bucket", Mode: "hybrid", Fallback: "share",
		Plans:     map[string]client.Plan{"pro": {Rate: "10/s", Burst: &fifty}},
		Overrides: []client.Override{{Key: "vip", PlanName: "pro"}, {Prefix: "in:", Plan: client.Plan{Rate: "9/s", Burst: &nine}}},
	}
	if l, err := c.Limit(t.Context(), "team/api"); err != nil || !reflect.DeepEqual(l, want) {
		t.Errorf("%+v, %v", l, err)
	}
	if ls, err := c.Limits(t.Context()); err != nil || len(ls) != 1 || !reflect.DeepEqual(ls[0], want) {
		t.Errorf("%+v, %v", ls, err)
	}
	if _, err := c.Limit(t.Context(), "nope"); !errors.Is(err, client.ErrUnknownLimit) {
		t.Error(err)
	}
	v, err := c.Cluster(t.Context())
	if err != nil || v.Node != "n1" || !v.Ready || v.K != 1 || v.Settle != 2*time.Second || v.Grace != time.Minute || len(v.Members) != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	if m := v.Members[0]; m.Name != "n1" || !m.Self || m.State != "alive" || m.Share != 1 || m.Partitions == 0 || m.Incarnation == "" {
		t.Errorf("%+v", m)
	}
	if err := c.Forget(t.Context(), "n 9&"); !errors.Is(err, client.ErrUnknownNode) || !strings.Contains(err.Error(), `n 9&`) {
		t.Error(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if r, err := c.Do(t.Context(), "POST", "/v1/take", map[string]any{"limit": "team/api", "key": "u", "cost": 99}); err != nil || r.Status != 429 ||
		r.Header.Get("Ratelimit") == "" || !strings.Contains(string(r.Body), `"allowed":false`) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLimitsAreWrittenAsTheAPIWantsThem(t *testing.T) {
	l := newLab(t)
	s := &script{steps: []http.HandlerFunc{
		says(201, "{}"), says(200, "{}"), problem(409, "defined-in-file"), says(204, ""), problem(409, "defined-in-file"),
	}}
	l.serve("n1", s)
	c := l.client(client.Config{}, "n1")
	burst := int64(0)
	limit := client.Limit{Name: "a/b", Rate: "5/s", Burst: &burst, Overrides: []client.Override{{Key: "x", PlanName: "p"}, {Prefix: "y", Plan: client.Plan{Rate: "1/s"}}}}
	for i, want := range []bool{true, false} {
		if created, err := c.PutLimit(t.Context(), limit); err != nil || created != want {
			t.Errorf("put %d: %v, %v", i, created, err)
		}
	}
	if _, err := c.PutLimit(t.Context(), limit); !errors.Is(err, client.ErrConflict) {
		t.Error(err)
	}
	if err := c.DeleteLimit(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteLimit(t.Context(), "a/b"); !errors.Is(err, client.ErrConflict) {
		t.Error(err)
	}
	got := s.requests()
	const body = `{"name":"a/b","rate":"5/s","burst":0,"overrides":[{"key":"x","plan":"p"},{"prefix":"y","rate":"1/s"}]}`
	if got[0].method != "PUT" || got[0].uri != "/v1/limits/a%2Fb" || got[0].body != body || got[3].method != "DELETE" || got[3].uri != got[0].uri {
		t.Errorf("%+v", got)
	}
}

func TestProblemsAreMatched(t *testing.T) {
	c := cluster(t, client.Config{}, perSecond("api", 1, 1))
	_, err := c.Take(t.Context(), client.Request{Limit: "apo", Key: key("u")})
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != 404 || p.Type != "urn:jatah:problem:unknown-limit" || p.Title != "Not Found" || p.Field != "limit" ||
		p.Addr != "http://n1" || !strings.Contains(p.Detail, "this node knows api") {
		t.Errorf("%+v", p)
	}
	if !errors.Is(err, client.ErrUnknownLimit) || errors.Is(err, client.ErrUnknownPlan) || errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrUncertain) {
		t.Error(err)
	}
	if want := `client: http://n1 answered 404 Not Found for limit: No limit is named "apo"; this node knows api`; err.Error() != want {
		t.Errorf("%q", err)
	}
	for _, r := range []client.Request{
		{Limit: "api", Key: key("u"), Cost: -1}, {Limit: "api", Key: key("")}, {Limit: "api", Key: key()}, {Limit: "api", Key: key(strings.Repeat("x", 1025))},
	} {
		if _, err := c.Take(t.Context(), r); !errors.As(err, &p) || p.Status != 400 || p.Field == "" {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestBadSettings(t *testing.T) {
	ok := []string{"127.0.0.1:1"}
	for _, c := range []struct {
		cfg  client.Config
		want string
	}{
		{client.Config{}, "Addrs is empty"},
		{client.Config{Addrs: []string{"ftp://x"}}, "no address of a node"},
		{client.Config{Addrs: []string{""}}, "no address of a node"},
		{client.Config{Addrs: []string{"http://x?y=z"}}, "no address of a node"},
		{client.Config{Addrs: ok, Timeout: -1}, "Timeout"},
		{client.Config{Addrs: ok, Retry: client.Retry{Attempts: -1}}, "Retry"},
		{client.Config{Addrs: ok, Retry: client.Retry{Jitter: 7}}, "Retry.Jitter"},
		{client.Config{Addrs: ok, Batch: client.Batch{Max: 1001}}, "Batch.Max"},
		{client.Config{Addrs: ok, Batch: client.Batch{Calls: 1}}, "Batch.Calls"},
	} {
		if _, err := client.New(c.cfg); !errors.Is(err, client.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	for _, addr := range []string{"127.0.0.1:8080", "http://n1/", "https://x.example/jatah", "[::1]:1"} {
		if _, err := client.New(client.Config{Addrs: []string{addr}}); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
