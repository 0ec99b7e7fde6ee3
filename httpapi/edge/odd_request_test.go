package edge_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func TestAHEADRequestIsNotChargedForBytesThatAreNotSent(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(50)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, aUse(func(u *edge.Use) { u.After = []edge.After{edge.ResponseBytes(10)} }))
		h := e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100)) }))
		serve(h, request("HEAD", "/", someone))
		if got := left(t, node, "api", "203.0.113.7"); got != 49 {
			t.Errorf("after HEAD %v are left, want 49", got)
		}
		serve(h, request("GET", "/", someone))
		if got := left(t, node, "api", "203.0.113.7"); got != 38 {
			t.Errorf("after GET %v are left, want 38", got)
		}
	})
}

// What a handler did until its client hung up is not for nothing, whatever it makes of that.
func TestAHandlerThatSaysNothingWhenTheClientHangsUpCounts(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(50)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, aUse(func(u *edge.Use) { u.Counts = edge.Failures() }))
		h := e.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		serve(h, request("GET", "/", someone).WithContext(ctx))
		if got := left(t, node, "api", "203.0.113.7"); got < 49 || got >= 50 {
			t.Errorf("%v are left, want 49", got)
		}
	})
}

// gin's Stream asks for it, and panics where it is missing.
func TestAHandlerMayAskForCloseNotify(t *testing.T) {
	node := start(jatah.Limit{Name: "api", Rate: jatah.PerDay(50)})
	defer node.Close()
	e := mustNew(t, node, aUse(func(u *edge.Use) { u.Counts = edge.Failures() }))
	closed := make(chan struct{})
	srv := httptest.NewServer(e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := w.(interface{ CloseNotify() <-chan bool }).CloseNotify()
		w.(http.Flusher).Flush()
		<-n
		close(closed)
	})))
	defer srv.Close()
	res, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	<-closed
	w := httptest.NewRecorder() // which has none
	e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-w.(interface{ CloseNotify() <-chan bool }).CloseNotify():
			t.Error("told that the client has left")
		default:
		}
	})).ServeHTTP(w, request("GET", "/", someone))
}

func TestAnAccountThatIsNamedTwiceIsNobodys(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Account: edge.AccountFromHeader("x-user"), Client: trusting(t, "10.0.0.0/8")})
		for _, c := range []struct {
			headers []string
			account string
		}{
			{[]string{"X-User", "bob"}, "bob"},
			{[]string{"X-User", "alice", "X-User", "bob"}, ""},
			{[]string{"X-User", "", "X-User", "bob"}, ""},
			{nil, ""},
		} {
			if got := e.RequestOf(request("GET", "/", "10.0.0.1:80", c.headers...)).Account; got != c.account {
				t.Errorf("%q: the account is %q, want %q", c.headers, got, c.account)
			}
		}
	})
}

func TestADescribedTargetWithAFragmentIsNone(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{})
		for _, target := range []string{"/login#x", "/x?a=1#b", "/#"} {
			if q, err := e.Describe(t.Context(), "GET", "", target, someone, nil); err == nil {
				t.Errorf("%s is the path %q", target, q.Path)
			}
		}
		if _, err := e.Describe(t.Context(), "GET", "", "/a%23b", someone, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestAFieldThatIsSentAsAnArrayCounts(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(100000)}}, func(t *testing.T, node *jatah.Node) {
		query := mustNew(t, node, aUse(func(u *edge.Use) { u.Cost = edge.Query("rows").Per(1, edge.Bounds{}) }))
		body := mustNew(t, node, aUse(func(u *edge.Use) { u.Cost = edge.Body("rows").Per(1, edge.Bounds{}) }))
		for text, cost := range map[string]int64{
			"rows[]=500": 500, "rows%5B%5D=500": 500, "Rows[0]=5&rows[1]=500": 500, "rows=1&rows[a][b]=500": 500, "a[rows]=500": 1, "rowsx[]=500": 1, "=5": 1,
		} {
			r := request("POST", "/?"+text, someone)
			if v := query.Decide(t.Context(), query.RequestOf(r)); v.Takes[0].Cost != cost {
				t.Errorf("?%s costs %d, want %d", text, v.Takes[0].Cost, cost)
			}
			r = httptest.NewRequest("POST", "/", strings.NewReader(text))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if v := body.Decide(t.Context(), body.RequestOf(r)); v.Takes[0].Cost != cost {
				t.Errorf("the form %s costs %d, want %d", text, v.Takes[0].Cost, cost)
			}
		}
	})
}

// Servers take Host out of the headers: a rule that names it must not be for nobody.
func TestHostIsAHeader(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(50)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{
			When: []edge.Condition{edge.HasHeader("Host"), edge.HeaderIs("host", "shop.example")}, Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Header("Host")}}},
		}}})
		if v := decide(t, e, request("GET", "http://shop.example/", someone)); v.Rule == "" || v.Takes[0].Key != "shop.example" {
			t.Errorf("by rule %q: %+v", v.Rule, v.Takes)
		}
		q, err := e.Describe(t.Context(), "GET", "shop.example", "/", someone, http.Header{"Host": {"node"}})
		if err != nil {
			t.Fatal(err)
		}
		if v := e.Decide(t.Context(), q); v.Rule == "" || v.Takes[0].Key != "shop.example" {
			t.Errorf("described, by rule %q: %+v", v.Rule, v.Takes)
		}
		if v := decide(t, e, request("GET", "http://other.example/", someone)); v.Rule != "" {
			t.Errorf("another host by rule %q", v.Rule)
		}
	})
}
