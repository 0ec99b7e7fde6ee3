package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/jatah-io/jatah"
)

// Part makes a part of a key. ok is false where the request has none: then the rule is not for it. An empty part with ok true is one like any
// other: all that have it share a key. It is called by many goroutines at once.
type Part func(*Request) (part string, ok bool)

// Account is who is asking, where known.
func Account() Part {
	return func(q *Request) (string, bool) {
		q.named = true
		return q.Account, q.Account != ""
	}
}

// Address is the address of the client, an IPv6 address with those of its network: see Config.Client. All whose address cannot be told
// share one key.
func Address() Part {
	return func(q *Request) (string, bool) {
		q.located = true
		return q.edge.client.Key(q.Client()), true
	}
}

// Header is the value of a header, such as an API key. A client can send any value, each with a key of its own: limit the address in the same
// rule, unless the value was checked before.
func Header(name string) Part {
	return func(q *Request) (string, bool) { v := q.header(name); return v, v != "" }
}

// Cookie is the value of a cookie, such as a session. What is said of Header holds here too.
func Cookie(name string) Part {
	return func(q *Request) (string, bool) { v := cookie(q, name); return v, v != "" }
}

// Route is the method and the pattern of http.ServeMux that was matched, where the middleware is behind one; else the method and the path.
// Where paths have names in them, which are without end, group them with conditions and Text instead.
func Route() Part {
	return func(q *Request) (string, bool) {
		if q.HTTP != nil && q.HTTP.Pattern != "" {
			return q.HTTP.Pattern, true
		}
		return q.Method + " " + q.path(), true
	}
}

// Text is always the same, to keep keys apart or to let all share one.
func Text(s string) Part { return func(*Request) (string, bool) { return s, true } }

func cookie(q *Request, name string) string {
	r := q.HTTP
	if r == nil {
		r = &http.Request{Header: q.Header}
	}
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// keyOf joins the parts. A key that is longer than a node takes is replaced by its hash, so that nobody evades a limit with a long one.
func keyOf(q *Request, parts []Part) (key string, ok bool) {
	if len(parts) == 1 {
		key, ok = parts[0](q)
		if !ok {
			return "", false
		}
		if key == "" { // a node takes no empty key
			return jatah.Key(), true // of no parts: no others make it
		}
		key = jatah.Key(key)
	} else {
		all := make([]string, len(parts))
		for i, part := range parts {
			if all[i], ok = part(q); !ok {
				return "", false
			}
		}
		key = jatah.Key(all...)
	}
	if len(key) > jatah.MaxKey {
		sum := sha256.Sum256([]byte(key))
		key = jatah.Key("sha256", hex.EncodeToString(sum[:]))
	}
	return key, true
}
