package edge_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// account is where signedIn leaves who is asking.
type account struct{}

// signedIn stands for the authentication of a service.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get("Test-User"); name != "" {
			r = r.WithContext(context.WithValue(r.Context(), account{}, name))
		}
		next.ServeHTTP(w, r)
	})
}

// asShown is what the README and docs/http.md show.
func asShown(ctx context.Context, addr string, mux http.Handler) error {
	// begin
	node, err := jatah.Start(ctx, jatah.Config{}) // one node; set Bind and Join for a cluster
	if err != nil {
		return err
	}
	defer node.Close()
	for _, l := range []jatah.Limit{
		{Name: "account", Rate: jatah.PerHour(500)},
		{Name: "address", Rate: jatah.PerHour(60)},
	} {
		if _, err := node.Limit(l); err != nil { // before the edge, whose rules name it
			return err
		}
	}
	e, err := edge.New(node, edge.Config{
		Account: edge.AccountFromContext(account{}), // where your authentication puts it, as a string
		Rules: []edge.Rule{
			{Name: "known", When: []edge.Condition{edge.Authenticated()}, Uses: []edge.Use{{Limit: "account", Key: []edge.Part{edge.Account()}}}},
			{Name: "visitors", Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Address()}}}},
		},
	})
	if err != nil {
		return err
	}
	return http.ListenAndServe(addr, signedIn(e.Middleware(mux))) // your authentication, then the edge
	// end
}

// shownAddr is the variable that makes this program the server that the pages show: it listens until it is killed.
const shownAddr = "JATAH_TEST_SHOWN_ADDR"

func TestThePagesShowWhatWorks(t *testing.T) {
	source, err := os.ReadFile("example_page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\t// begin\n")
	code, _, _ = strings.Cut(code, "\t// end\n")
	code = strings.ReplaceAll("\n"+code, "\n\t", "\n")[1:]
	for page, code := range map[string]string{"docs/http.md": code, "README.md": code[strings.Index(code, "for _, l"):]} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```go\n"+code+"```\n") {
			t.Errorf("%s does not show this:\n%s", page, code)
		}
	}

	held := httptest.NewServer(nil) // an address that is free a moment later
	addr := held.Listener.Addr().String()
	held.Close()
	server := exec.CommandContext(t.Context(), os.Args[0])
	server.Env = append(os.Environ(), shownAddr+"="+addr)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Wait() }) // the context of the test is over by then
	ask := func(user string) (left string) {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/", nil)
		r.Header.Set("Test-User", user)
		for range 3000 {
			res, err := http.DefaultClient.Do(r)
			if err == nil {
				res.Body.Close()
				return res.Header.Get("X-RateLimit-Remaining")
			}
			time.Sleep(10 * time.Millisecond) // until it listens
		}
		t.Fatal("nobody answers")
		return ""
	}
	for _, c := range []struct{ user, left string }{{"", "59"}, {"", "58"}, {"ada", "499"}, {"bob", "499"}} {
		if got := ask(c.user); got != c.left {
			t.Errorf("%q has %s left, want %s", c.user, got, c.left)
		}
	}
}
