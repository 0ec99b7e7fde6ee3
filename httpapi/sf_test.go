package httpapi

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
)

// sfItem is a member of a structured-field list whose items are strings with
// integer parameters, as RateLimit and RateLimit-Policy are.
type sfItem struct {
	name   string
	params map[string]int64
}

// parseSF reads such a list after RFC 9651, section 4.2, and nothing more lenient.
func parseSF(s string) (items []sfItem, err error) {
	fail := func() ([]sfItem, error) { return nil, fmt.Errorf("bad structured field %q before %q", s, s) }
	rest := s
	for {
		if !strings.HasPrefix(rest, `"`) {
			return fail()
		}
		rest = rest[1:]
		it := sfItem{params: map[string]int64{}}
		for closed := false; !closed; {
			if rest == "" {
				return fail()
			}
			c := rest[0]
			rest = rest[1:]
			switch {
			case c == '"':
				closed = true
			case c == '\\':
				if rest == "" || rest[0] != '"' && rest[0] != '\\' {
					return fail()
				}
				it.name += rest[:1]
				rest = rest[1:]
			case c < ' ' || c > '~':
				return fail()
			default:
				it.name += string(c)
			}
		}
		for strings.HasPrefix(rest, ";") {
			key, val, ok := strings.Cut(rest[1:], "=")
			end := strings.IndexFunc(val, func(r rune) bool { return r != '-' && (r < '0' || r > '9') })
			if end < 0 {
				end = len(val)
			}
			n, err := strconv.ParseInt(val[:end], 10, 64)
			if !ok || err != nil || strings.ToLower(key) != key || len(strings.TrimPrefix(val[:end], "-")) > 15 {
				return fail()
			}
			it.params[key] = n
			rest = val[end:]
		}
		items = append(items, it)
		if rest == "" {
			return items, nil
		}
		if rest = strings.TrimLeft(rest, " \t"); !strings.HasPrefix(rest, ",") {
			return fail()
		}
		rest = strings.TrimLeft(rest[1:], " \t")
	}
}

// wantSF compares a list of one item with a name and pairs of parameter and value.
func wantSF(t *testing.T, field, name string, params map[string]int64) {
	t.Helper()
	items, err := parseSF(field)
	if err != nil || len(items) != 1 {
		t.Fatalf("%q: %v, %d items", field, err, len(items))
	}
	if items[0].name != name || fmt.Sprint(items[0].params) != fmt.Sprint(params) {
		t.Errorf("%q: name %q params %v, want %q %v", field, items[0].name, items[0].params, name, params)
	}
}

func FuzzNamesSurviveAsStructuredFieldStrings(f *testing.F) {
	for _, s := range []string{"", "api", `a"b\c`, `\\"`, "a;b,c", "per-user/v1:x.y_z", "\x00\u00e9"} {
		f.Add(s, int64(5), int64(7))
	}
	f.Fuzz(func(t *testing.T, name string, count, burst int64) {
		l := jatah.Limit{Name: name, Rate: jatah.Rate{Count: max(0, count), Per: 3600e9}, Burst: max(0, burst)}
		policy := string(fields.AppendPolicy(nil, &l))
		items, err := parseSF(policy)
		if err != nil || len(items) != 1 {
			t.Fatalf("%q: %v", policy, err)
		}
		var want strings.Builder
		for _, c := range []byte(name) {
			if c < ' ' || c > '~' {
				c = '?'
			}
			want.WriteByte(c)
		}
		if items[0].name != want.String() {
			t.Fatalf("%q came back as %q", name, items[0].name)
		}
		if q := items[0].params["q"]; q != min(l.Capacity(), 999_999_999_999_999) {
			t.Fatalf("q=%d for %+v", q, l)
		}
	})
}
