package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

func TestVisitorsAreLimitedByAddressAndAccountsByName(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	site, err := limited(node, http.HandlerFunc(hello))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(user string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		if user != "" {
			r.SetBasicAuth(user, "secret")
		}
		site.ServeHTTP(w, r)
		return w
	}
	for i := range 6 {
		if w := ask(""); (w.Code == 200) != (i < 5) || i == 5 && w.Header().Get("Retry-After") == "" {
			t.Errorf("visitor, request %d: %d", i+1, w.Code)
		}
	}
	for _, user := range []string{"ada", "bob"} { // behind the same address
		if w := ask(user); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "999" || !strings.Contains(w.Body.String(), `"known"`) {
			t.Errorf("%s: %d, %s left: %s", user, w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Body)
		}
	}
}

// What the README and docs/http.md show is what is compiled here.
func TestThePagesShowThisProgram(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\t// README: begin\n")
	code, _, ok := strings.Cut(code, "\t// README: end\n")
	if !ok {
		t.Fatal("the marks are gone")
	}
	code = strings.TrimPrefix(strings.ReplaceAll(code, "\n\t", "\n"), "\t")
	for _, page := range []string{"README.md", "docs/http.md"} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```go\n"+code+"```\n") {
			t.Errorf("%s does not show this:\n%s", page, code)
		}
	}
}
