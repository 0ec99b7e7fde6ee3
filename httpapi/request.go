package httpapi

import (
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxBody is the largest request body that is read, in bytes.
const MaxBody = 1 << 20

// firstRead is the room a body gets at first: all usual bodies fit. More is
// given as it arrives, so that a large Content-Length alone takes no memory.
const firstRead = 1 << 10

// readBody appends the body of a request to buf[:0], whatever its length is
// said to be.
func readBody(r *http.Request, buf []byte) ([]byte, *problem) {
	buf = buf[:0]
	if r.ContentLength > MaxBody {
		return buf, tooLarge()
	}
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(firstRead, len(buf)))
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > MaxBody:
			return buf, tooLarge()
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, badBody("The body ended early, after %d bytes: send it whole.", len(buf))
		}
	}
}

func tooLarge() *problem {
	return &problem{slug: "body-too-large", status: http.StatusRequestEntityTooLarge, detail: "The body is larger than 1 MiB (1048576 bytes); send smaller batches."}
}

// checkType refuses a body that is declared to be something else than JSON.
func checkType(head http.Header) *problem {
	types := head["Content-Type"]
	if len(types) == 0 || types[0] == "" || types[0] == "application/json" {
		return nil
	}
	media, _, err := mime.ParseMediaType(types[0])
	if err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")) {
		return nil
	}
	return &problem{
		slug: "not-json", status: http.StatusUnsupportedMediaType,
		detail: "The Content-Type is " + quote(types[0]) + "; send application/json, or none (with curl: --json instead of -d).",
	}
}

// denyStatus reads the query of a decision: the status of a denial.
func denyStatus(r *http.Request) (int, *problem) {
	const name = "deny_status"
	if r.URL.RawQuery == "" {
		return http.StatusTooManyRequests, nil
	}
	query, p := readQuery(r, name)
	if p != nil {
		return 0, p
	}
	given, ok := query[name]
	if !ok {
		return http.StatusTooManyRequests, nil
	}
	code, err := strconv.Atoi(given[0])
	if len(given) != 1 || err != nil || len(given[0]) != 3 || code/100 != 2 && code/100 != 4 {
		return 0, badQuery(name, "deny_status must be one status from 200 to 299 or from 400 to 499, for example 200 or 403.")
	}
	return code, nil
}

// readQuery parses the query and refuses what is not known.
func readQuery(r *http.Request, known ...string) (url.Values, *problem) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badQuery("", "The query cannot be read: %v; escape special characters with %%.", err)
	}
	for name := range query {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return nil, badQuery(name, "There is no parameter %s; this call takes none.", quote(name))
			}
			return nil, badQuery(name, "There is no parameter %s; this call knows %s.", quote(name), strings.Join(known, ", "))
		}
	}
	return query, nil
}

// oneOf returns the single value of a parameter that must be there.
func oneOf(query url.Values, name string) (string, *problem) {
	switch v := query[name]; {
	case len(v) == 0 || v[0] == "":
		return "", badQuery(name, "%s is missing; add ?%s=... to the address.", name, name)
	case len(v) > 1:
		return "", badQuery(name, "%s is there %d times; send it once.", name, len(v))
	default:
		return v[0], nil
	}
}
