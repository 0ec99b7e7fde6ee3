package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

func TestWhoIsCountedByWhat(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	e, err := newEdge(node)
	if err != nil {
		t.Fatal(err)
	}
	handler := shop(e)
	send := func(method, target, form, session string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form))
		if form != "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		if session != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: session})
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for _, c := range []struct {
		method, target, form, session string
		status                        int
		left                          string
	}{
		{"GET", "/", "", "", 200, "59"},
		{"GET", "/", "", "forged", 200, "58"},
		{"GET", "/", "", "5e55", 200, "499"},
		{"GET", "/export?rows=1001", "", "5e55", 200, "97"},
		{"GET", "/export?rows=many", "", "5e55", 400, ""},
	} {
		if w := send(c.method, c.target, c.form, c.session); w.Code != c.status || w.Header().Get("X-RateLimit-Remaining") != c.left {
			t.Errorf("%+v: %d %v", c, w.Code, w.Header())
		}
	}
	for i := range 7 {
		want := http.StatusUnauthorized
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		if w := send("POST", "/login", "user=alice&password=guess", ""); w.Code != want {
			t.Errorf("wrong password %d: %d", i+1, w.Code)
		}
	}
}
