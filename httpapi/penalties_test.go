package httpapi

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// pausing pauses at the first refusal.
var pausing = edge.Rule{
	Name: "login", Pause: &edge.Pause{After: 1, Base: time.Minute},
	Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Header("X-User"), edge.Text("x")}}},
}

// refuse has a user refused by a node's edge.
func (a *api) refuse(user string) {
	a.t.Helper()
	e := a.h.Edge()
	r := httptest.NewRequestWithContext(a.t.Context(), "GET", "/", nil)
	r.Header.Set("X-User", user)
	for range 50 {
		if v := e.Decide(a.t.Context(), e.RequestOf(r)); !v.OK && v.Paused {
			return
		}
	}
	a.t.Fatalf("%s is not paused", user)
}

type listed struct {
	Penalties         []penaltyBody
	Answered, Missing []string
}

func (a *api) penalties(query string) (b listed) {
	a.t.Helper()
	w := a.call("GET", "/v1/penalties"+query, "")
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); w.Code != 200 || err != nil || b.Penalties == nil || b.Answered == nil || b.Missing == nil {
		a.t.Fatalf("%d %v %+v", w.Code, err, b)
	}
	return b
}

func TestPenaltiesAreListedAndLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perHour("api", 2))
		if b := a.penalties(""); len(b.Penalties) != 0 || len(b.Answered) != 1 {
			t.Errorf("without an edge: %+v", b)
		}
		a.setEdge(pausing)
		a.refuse("bob")
		time.Sleep(20 * time.Second)
		a.refuse("\xff\x00eve")
		b := a.penalties("?rule=login&n=1")
		if len(b.Penalties) != 1 || len(b.Missing) != 0 {
			t.Fatalf("%+v", b)
		}
		if p := b.Penalties[0]; fmt.Sprint(p.Key) != "[\ufffd\x00eve x]" || p.Rule != "login" || p.Node != b.Answered[0] || p.LeftMS != 60_000 || p.Level != 1 {
			t.Errorf("%+v", p)
		}
		if b := a.penalties(""); len(b.Penalties) != 2 || b.Penalties[1].LeftMS != 40_000 {
			t.Errorf("%+v", b)
		}
		if b := a.penalties("?rule=other"); len(b.Penalties) != 0 {
			t.Errorf("%+v", b)
		}
		lift := func(user string) *httptest.ResponseRecorder {
			return a.call("DELETE", "/v1/penalties?rule=login&key="+url.QueryEscape(user)+"&key=x", "")
		}
		for _, user := range []string{"bob", "\xff\x00eve"} {
			if w := lift(user); w.Code != 200 || !strings.HasPrefix(w.Body.String(), `{"lifted":["`) {
				t.Errorf("%q: %d %s", user, w.Code, w.Body)
			}
			wantProblem(t, lift(user), 404, "unknown-penalty", "key", "No node has paused this key by the rule \"login\"")
		}
		if b := a.penalties(""); len(b.Penalties) != 0 {
			t.Errorf("%+v", b)
		}
	})
}

func TestQuestionsAboutPenaltiesAreChecked(t *testing.T) {
	a := newAPI(t, Config{}, perHour("api", 2))
	for _, c := range []struct{ method, query, field, sentence string }{
		{"GET", "?n=0", "n", "n must be a whole number from 1 to 500"},
		{"GET", "?n=501", "n", "n must be a whole number from 1 to 500"},
		{"GET", "?n=x", "n", "n must be a whole number from 1 to 500"},
		{"GET", "?rule=", "rule", "rule is missing"},
		{"GET", "?key=x", "key", "There is no parameter \"key\"; this call knows rule, n."},
		{"DELETE", "?key=x", "rule", "rule is missing"},
		{"DELETE", "?rule=x", "key", "key is missing"},
		{"DELETE", "?rule=x&rule=y&key=z", "rule", "rule is there 2 times"},
	} {
		wantProblem(t, a.call(c.method, "/v1/penalties"+c.query, ""), 400, "bad-query", c.field, c.sentence)
	}
}

// A key is paused where it was refused. Any node lists and lifts what all know.
func TestPenaltiesOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(5)
		var nodes []*api
		var seeds []string
		for i := range 3 {
			addr := fmt.Sprintf("10.0.0.%d:7946", i+1)
			tr, err := net.Transport(addr)
			if err != nil {
				t.Fatal(err)
			}
			node, err := jatah.Open(t.Context(), jatah.Config{Node: fmt.Sprint("n", i), Transport: tr, Join: seeds, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { node.Close() })
			seeds = append(seeds, addr)
			if _, err := node.Limit(perHour("api", 2)); err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, &api{t: t, node: node, h: New(node, Config{Logger: slog.New(slog.DiscardHandler), Access: Access{InsecureAdmin: true}})})
		}
		for _, a := range nodes {
			if err := a.node.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		nodes[0].setEdge(pausing)
		nodes[1].setEdge(pausing)
		nodes[0].refuse("bob")
		nodes[1].refuse("bob")
		nodes[1].refuse("eve")
		b := nodes[2].penalties("")
		if len(b.Penalties) != 3 || fmt.Sprint(b.Answered, b.Missing) != "[n0 n1 n2] []" {
			t.Fatalf("%+v", b)
		}
		if w := nodes[2].call("DELETE", "/v1/penalties?rule=login&key=bob&key=x", ""); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"lifted":["n0","n1"],"missing":[]}` {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if b := nodes[0].penalties(""); len(b.Penalties) != 1 || fmt.Sprint(b.Penalties[0].Key) != "[eve x]" || b.Penalties[0].Node != "n1" {
			t.Errorf("%+v", b)
		}
		net.Crash("10.0.0.2:7946")
		if b := nodes[0].penalties(""); fmt.Sprint(b.Answered, b.Missing) != "[n0 n2] [n1]" {
			t.Errorf("%+v", b)
		}
		wantProblem(t, nodes[0].call("DELETE", "/v1/penalties?rule=login&key=eve&key=x", ""), 503, "undecided", "", "n1 did not answer")
	})
}

// The rules of a login count failures, which forward auth cannot see: their edge is the program's own, and is told of all the same.
func TestEdgesOfMiddlewareAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own *edge.Edge
		a := newAPI(t, Config{Edges: func() []*edge.Edge { return []*edge.Edge{nil, own, own} }}, perHour("api", 2), perHour("wrong", 2))
		defer a.node.Close()
		if b := a.penalties(""); len(b.Penalties) != 0 {
			t.Errorf("without an edge: %+v", b)
		}
		login := edge.Rule{
			Name: "passwords", Pause: &edge.Pause{After: 1, Base: time.Hour},
			Uses: []edge.Use{{Limit: "wrong", Key: []edge.Part{edge.Text("bob")}, Counts: edge.Failures()}},
		}
		own = a.newEdge(login)
		if err := a.h.SetEdge(own); err == nil {
			t.Error("forward auth takes a rule that counts failures")
		}
		a.setEdge(pausing)
		a.refuse("bob")
		served := own.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
		for range 4 {
			served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/login", nil))
		}
		b := a.penalties("")
		if len(b.Penalties) != 2 || b.Penalties[0].Rule != "passwords" || b.Penalties[0].LeftMS != 3_600_000 || b.Penalties[1].Rule != "login" {
			t.Errorf("%+v", b)
		}
		if b := a.penalties("?n=1"); len(b.Penalties) != 1 || b.Penalties[0].Rule != "passwords" {
			t.Errorf("%+v", b)
		}
		told := a.call("GET", "/v1/edge", "").Body.String()
		if strings.Count(told, `{"rule":"passwords","admitted":2,"refused":2,`) != 1 || strings.Count(told, `{"rule":"login",`) != 1 {
			t.Error(told)
		}
		for _, lift := range []struct{ rule, key string }{{"passwords", "key=bob"}, {"login", "key=bob&key=x"}} {
			if w := a.call("DELETE", "/v1/penalties?rule="+lift.rule+"&"+lift.key, ""); w.Code != 200 {
				t.Errorf("%v: %d %s", lift, w.Code, w.Body)
			}
		}
		if b := a.penalties(""); len(b.Penalties) != 0 {
			t.Errorf("%+v", b)
		}
	})
}
