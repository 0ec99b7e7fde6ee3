package edge

import (
	"slices"
	"strings"
)

// Condition says whether a rule is for a request. It is called by many goroutines at once.
type Condition func(*Request) bool

// Anonymous holds for who is not known.
func Anonymous() Condition { return func(q *Request) bool { return q.Account == "" } }

// Authenticated holds for who is known.
func Authenticated() Condition { return func(q *Request) bool { return q.Account != "" } }

// HasHeader holds where the header is there and not empty.
func HasHeader(name string) Condition {
	return func(q *Request) bool { return q.header(name) != "" }
}

// HeaderIs holds where one line of the header is this value.
func HeaderIs(name, value string) Condition {
	return func(q *Request) bool { return slices.Contains(q.headers(name), value) }
}

// HasCookie holds where the cookie is there and not empty.
func HasCookie(name string) Condition {
	return func(q *Request) bool { return cookie(q, name) != "" }
}

// Method holds for these methods; GET stands for HEAD too.
func Method(methods ...string) Condition {
	return func(q *Request) bool {
		return slices.Contains(methods, q.Method) || q.Method == "HEAD" && slices.Contains(methods, "GET")
	}
}

// Path holds for these paths. A pattern that ends in /* stands for all below, /api/* also for /api itself; another * stands for one element. Paths
// are cleaned first, so that /api//x and /api/./x are /api/x, as most servers see them. Programs do not agree on what .. and an encoded slash
// (%2F) in a path mean: a request for which another rule would decide if they are read in another way is refused with 400.
func Path(patterns ...string) Condition {
	return func(q *Request) bool {
		p := q.path()
		return slices.ContainsFunc(patterns, func(pattern string) bool { return under(pattern, p) })
	}
}

func under(pattern, p string) bool {
	for {
		if pattern == "/*" || pattern == "*" {
			return true
		}
		want, restWant, moreWant := cut(pattern)
		have, restHave, moreHave := cut(p)
		if want != "*" && want != have || want == "*" && have == "" {
			return false
		}
		switch {
		case !moreWant:
			return !moreHave || restHave == "/"
		case !moreHave:
			return restWant == "/*"
		}
		pattern, p = restWant, restHave
	}
}

// cut splits the first element of a path off: "/a/b" is "a", "/b" and true.
func cut(p string) (element, rest string, more bool) {
	p = strings.TrimPrefix(p, "/")
	i := strings.IndexByte(p, '/')
	if i < 0 {
		return p, "", false
	}
	return p[:i], p[i:], true
}

// Not holds where the condition does not.
func Not(c Condition) Condition { return func(q *Request) bool { return !c(q) } }

// Any holds where one of the conditions does.
func Any(cs ...Condition) Condition {
	return func(q *Request) bool {
		return slices.ContainsFunc(cs, func(c Condition) bool { return c(q) })
	}
}
