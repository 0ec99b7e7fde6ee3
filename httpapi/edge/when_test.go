package edge_test

import (
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func TestPaths(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{})
		for _, c := range []struct {
			pattern, path string
			want          bool
		}{
			{"/login", "/login", true},
			{"/login", "/login/", true},
			{"/login", "//login", true},
			{"/login", "/./login", true},
			{"/login", "/a/../login", true},
			{"/login", "/logins", false},
			{"/login", "/login/x", false},
			{"/login", "/Login", false},
			{"/api/*", "/api", true},
			{"/api/*", "/api/", true},
			{"/api/*", "/api/a/b", true},
			{"/api/*", "/apis", false},
			{"/users/*/keys", "/users/7/keys", true},
			{"/users/*/keys", "/users/7/8/keys", false},
			{"/users/*/keys", "/users//keys", false},
			{"/users/*/keys", "/users/7", false},
			{"/*", "/", true},
			{"/*", "/a", true},
			{"/", "/", true},
			{"/", "/a", false},
		} {
			r := request("GET", "/", someone)
			r.URL.Path = c.path
			if got := edge.Path(c.pattern)(e.RequestOf(r)); got != c.want {
				t.Errorf("%s for %s: %v, want %v", c.pattern, c.path, got, c.want)
			}
		}
	})
}

func TestConditions(t *testing.T) {
	yes, no := func(*edge.Request) bool { return true }, func(*edge.Request) bool { return false }
	inBubble(t, nil, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Account: byHeader})
		q := e.RequestOf(request("HEAD", "/", someone, "Tier", "free", "Tier", "gold", "Cookie", "sid=7; empty=", "Test-Account", "bob"))
		for name, c := range map[string]struct {
			got, want bool
		}{
			"HEAD is GET":      {edge.Method("GET", "POST")(q), true},
			"HEAD is no POST":  {edge.Method("POST")(q), false},
			"a header":         {edge.HasHeader("tier")(q), true},
			"no header":        {edge.HasHeader("X-None")(q), false},
			"second line":      {edge.HeaderIs("Tier", "gold")(q), true},
			"another value":    {edge.HeaderIs("Tier", "go")(q), false},
			"a cookie":         {edge.HasCookie("sid")(q), true},
			"an empty cookie":  {edge.HasCookie("empty")(q), false},
			"known":            {edge.Authenticated()(q), true},
			"not unknown":      {edge.Anonymous()(q), false},
			"not":              {edge.Not(yes)(q), false},
			"any":              {edge.Any(no, yes)(q), true},
			"any of none":      {edge.Any()(q), false},
			"none of several":  {edge.Any(no, no)(q), false},
			"not of something": {edge.Not(no)(q), true},
		} {
			if c.got != c.want {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
	})
}

// trusting makes a resolver that trusts proxies of a network.
func trusting(t *testing.T, proxies ...string) *clientip.Resolver {
	t.Helper()
	trusted, err := clientip.ParseProxies(proxies)
	if err != nil {
		t.Fatal(err)
	}
	r, err := clientip.New(clientip.Config{TrustedProxies: trusted, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
