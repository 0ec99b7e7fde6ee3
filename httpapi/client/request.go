package client

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Key says whose usage is counted: one string, or several that are joined so that no two lists collide, such as Key{"tenant-7", "alice"}.
// Key{"a"} is the key "a". Any bytes are allowed, at most 1024 in all.
type Key []string

// Request is one take, refund or charge.
type Request struct {
	Limit string
	Key   Key
	Cost  int64  // tokens. 0: a look, which takes nothing
	Route string // instead of Cost, which must be 0: what the definition of the limit says that the route costs. "": Cost
	Plan  string // of the limit, that the key has. "": none is named
}

// appendRequest writes a request as the API reads it.
func appendRequest(b []byte, r *Request) ([]byte, error) {
	b = appendLimitKey(b, r.Limit, r.Key)
	switch {
	case r.Route == "":
		b = append(b, `,"cost":`...)
		b = strconv.AppendInt(b, r.Cost, 10)
	case r.Cost != 0:
		return b, fmt.Errorf("client: a request with the cost %d and the route %q; give it one of them", r.Cost, r.Route)
	default:
		b = append(b, `,"route":`...)
		b = appendString(b, r.Route)
	}
	if r.Plan != "" {
		b = append(b, `,"plan":`...)
		b = appendString(b, r.Plan)
	}
	return append(b, '}'), nil
}

// appendLimitKey writes the beginning of an object.
func appendLimitKey(b []byte, limit string, key Key) []byte {
	b = append(b, `{"limit":`...)
	b = appendString(b, limit)
	b = append(b, `,"key":`...)
	if len(key) == 1 {
		return appendString(b, key[0])
	}
	b = append(b, '[')
	for i, part := range key {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, part)
	}
	return append(b, ']')
}

// appendString writes a string as JSON. Bytes that are no UTF-8 stay as they are: the API takes them, and so different bytes stay
// different keys. encoding/json would replace them.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		if c < ' ' {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			b = append(b, '\\', c)
		}
	}
	return append(append(b, s[from:]...), '"')
}

// UnmarshalJSON reads a key as the API shows it, a string or an array. What was no UTF-8 comes back as U+FFFD.
func (k *Key) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*k = Key{""}
		return json.Unmarshal(b, &(*k)[0])
	}
	var parts []string
	err := json.Unmarshal(b, &parts)
	*k = parts
	return err
}

// MarshalJSON writes a key as the API takes it.
func (k Key) MarshalJSON() ([]byte, error) {
	if len(k) == 1 {
		return json.Marshal(k[0])
	}
	return json.Marshal([]string(k))
}

// String is for people: the parts, quoted.
func (k Key) String() string {
	if len(k) == 1 {
		return strconv.Quote(k[0])
	}
	return fmt.Sprintf("%q", []string(k))
}
