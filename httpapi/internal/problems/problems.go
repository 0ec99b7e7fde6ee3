// Package problems writes errors in the form of RFC 9457, application/problem+json: type, title, status, detail and what else an error has.
package problems

import (
	"net/http"
	"strconv"
	"unicode/utf8"
)

// Type is the prefix of the type member. What follows it (the slug) is fixed and may be compared by clients; titles and details may change.
const Type = "urn:jatah:problem:"

// ContentType is that of a problem.
const ContentType = "application/problem+json"

// Append writes the members that every problem has, without the closing brace, so that more can follow: each with a comma before it.
// detail is a sentence that says what to do.
func Append(b []byte, slug string, status int, detail string) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, Type...)
	b = append(b, slug...)
	b = append(b, `","title":`...)
	b = AppendString(b, http.StatusText(status))
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":`...)
	return AppendString(b, detail)
}

// AppendString writes a string as JSON. Bytes that are no UTF-8 become U+FFFD.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' {
				b = append(b, s[from:i]...)
				if c < ' ' {
					b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
				} else {
					b = append(b, '\\', c)
				}
				from = i + 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			b = append(b, s[from:i]...)
			b = append(b, "\ufffd"...)
			from = i + 1
		}
		i += size
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
