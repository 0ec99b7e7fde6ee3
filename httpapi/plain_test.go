package httpapi

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"
)

// readings are bodies around the forms that plain knows.
func readings() []string {
	all := []string{
		``, ` `, `{}`, `{ }`, `[]`, `{"takes":[]}`, `{"takes":[]]}`, `{"takes":[}`, `{"takes":[,]}`, `{"takes":[]},`, `{"takes":[]`, "{\"takes\":[]}\x00",
		`{"limit":"a","key":"b"}`, `{"key":"b","limit":"a"}`, " {\t\"limit\":\n\"a\" ,\r\"key\": \"b\" , \"cost\": 7 } \n", `{"limit" :"a","key":"b"}`,
		`{"limit":"a","key":"b",}`, `{"limit":"a","key":"b"}}`, `{"limit":"a","key":"b"} {`, `{"limit":"a","key":"b"`, `{"limit":"a","key":"b","cost":`,
		`{"limit":"a","key":"b","cost":1`, `{"limit":"a","key":"b","limit":"a"}`, `{"limit":"a","key":"b","key":"b"}`, `{"limit":"a","cost":1,"cost":1,"key":"b"}`,
		`{"limit":"a","key":"b","route":"/x"}`, `{"limit":"a","key":"b","route":"/x","cost":1}`,
		`{"takes":[{"limit":"a","key":"b","route":"/x","cost":1} {"limit":"a","key":"b"}]}`, `{"limit":"a","key":"b","plan":"big"}`, `{"limit":"a","key":"b","plan":""}`,
		`{"key":"b"}`, `{"limit":"a"}`, `{"limit":"a","key":["b","c"]}`, `{"limit":"a","key":[]}`, `{"limit":"a","key":["b",1]}`, `{"limit":"a","key":"b","coat":1}`,
		`{"limit":"a","key":"\u0062"}`, `{"limit":"a","key":"\u0000b"}`, `{"limit":"a\n","key":"b"}`, "{\"limit\":\"a\",\"key\":\"\x1f\"}", "{\"limit\":\"a\",\"key\":\"\x7f\xff\"}",
		"{\"limit\":\"a\",\"key\":\"\x00\"}", `{"limit":"","key":""}`, `{"limit":1,"key":"b"}`, `{"limit":null,"key":"b"}`, `{"Limit":"a","key":"b"}`, `{"l\u0069mit":"a","key":"b"}`,
		`{"limit":"a","key":"01234567"}`, `{"limit":"a","key":"0123456\"7"}`, `{"limit":"a","key":"0123456789abcdef","cost":12}`, "{\"limit\":\"a\",\"key\":\"0123456789abcde\n\"}",
		`{"limit":"a","key":"é日本\u00e9"}`, "{\"limit\":\"a\",\"key\":\"é\x80日本\xc3\"}", "\ufeff" + `{"limit":"a","key":"b"}`, "{\"limit\":\"a\",\u00a0\"key\":\"b\"}",
	}
	for _, cost := range []string{"0", "00", "-0", "-1", "01", "1.0", "1e3", "1E", "1.", "+1", "0x1", " 1", "1 2", `"1"`, "true", "1}", "1_0",
		"999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808", "99999999999999999999999999"} {
		all = append(all, `{"limit":"a","key":"b","cost":`+cost+`}`, `{"cost":`+cost+`,"limit":"a","key":"b"}`)
	}
	for _, one := range all[:len(all):len(all)] {
		all = append(all, `{"takes":[`+one+`]}`, ` { "takes" : [ {"limit":"x","key":"y","cost":3} , `+one+` , {"key":"z","limit":"w"} ] } `)
	}
	return append(all, `{"takes":[{"limit":"a","key":"b"}],"takes":[]}`, `{"takes":[{"limit":"a","key":"b"}],"x":1}`, `{"x":1,"takes":[]}`, `{"t\u0061kes":[]}`,
		`{"takes":[{"limit":"a","key":"b"} {"limit":"a","key":"b"}]}`, `{"takes":[{"limit":"a","key":"b"},]}`, `{"takes":{"limit":"a","key":"b"}}`,
		`{"takes":[`+strings.Repeat(`{"limit":"a","key":"b"},`, 9)+`{"limit":"a","key":"b"}]}`, `{"takes":[`+strings.Repeat(`{"limit":"a","key":"b"},`, 10)+`{"limit":"a","key":"b"}]}`)
}

// differ compares what two readings of one body took of it; parts of the body must be the same part.
func differ(a, b *take) bool {
	same := func(x, y []byte) bool { return string(x) == string(y) && (x == nil) == (y == nil) }
	return !same(a.limit, b.limit) || !same(a.route, b.route) || !same(a.plan, b.plan) || !same(a.echo, b.echo) ||
		unsafe.SliceData(a.echo) != unsafe.SliceData(b.echo) || a.key != b.key || a.cost != b.cost
}

// checkReading holds the fast ways to read a body against the slow ones.
func checkReading(t *testing.T, body []byte) {
	const most = 10
	fast, p := decodeTake(body)
	slow, q := decodeObject(body)
	if (p == nil) != (q == nil) || p != nil && *p != *q || p == nil && differ(&fast, &slow) {
		t.Fatalf("%q\nread as    %+v %+v\nfor others %+v %+v", body, fast, p, slow, q)
	}
	items, ok := takesIn(body, make([]item, 1, 4)[:0], most)
	bodies, q := decodeBatch(body, most)
	if !ok {
		return // the slow way is taken then
	}
	if q != nil || len(bodies) != len(items) {
		t.Fatalf("%q: %d takes, but for others %d, %+v", body, len(items), len(bodies), q)
	}
	for i := range items {
		slow, q := decodeObject(bodies[i])
		if q != nil || differ(&items[i].take, &slow) || items[i].bad != nil || items[i].limiter != nil || items[i].face != nil {
			t.Fatalf("%q\ntake %d read as %+v\nfor others %+v %+v", body, i, items[i], slow, q)
		}
	}
}

func FuzzPlainBodiesReadAsAllOthers(f *testing.F) {
	for _, body := range readings() {
		f.Add([]byte(body))
	}
	f.Fuzz(checkReading)
}

// TestBrokenPlainBodiesReadAsAllOthers is what a fuzzer finds late: nearly good bodies, changed in a few bytes.
func TestBrokenPlainBodiesReadAsAllOthers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const odd = "\"\\{}[],: \t\n\r\x00\x1f\x7f\xff-+.0189eEul"
	bodies := readings()
	for range 100_000 {
		b := []byte(bodies[rng.IntN(len(bodies))])
		for n := 1 + rng.IntN(3); n > 0 && len(b) > 0; n-- {
			switch at := rng.IntN(len(b)); rng.IntN(4) {
			case 0:
				b[at] = odd[rng.IntN(len(odd))]
			case 1:
				b = append(b[:at], b[at+1:]...)
			case 2:
				b = append(b[:at], append([]byte{odd[rng.IntN(len(odd))]}, b[at:]...)...)
			default:
				b = b[:at]
			}
		}
		checkReading(t, b)
	}
}

// TestPlainIsTheWayOfUsualBodies, or all of the tests above would say nothing.
func TestPlainIsTheWayOfUsualBodies(t *testing.T) {
	for _, body := range []string{
		`{"limit":"api","key":"user:1","cost":1}`, `{"limit":"api","key":"user:1"}`, ` { "key": "é", "limit": "api", "cost": 999999999999999999, "plan": "big" } `,
		`{"limit":"api","key":"u","route":"/x"}`, `{"cost":0,"key":"","limit":""}`,
	} {
		s, got := scanner{b: []byte(body)}, take{}
		if !s.plain(&got) || strings.TrimSpace(body[s.i:]) != "" {
			t.Errorf("%s: not read, at byte %d", body, s.i)
		}
		batch := fmt.Sprintf(`{"takes":[%s,{"limit":"a","key":["b","\n"]},%s]}`, body, body)
		if items, ok := takesIn([]byte(batch), nil, 3); !ok || len(items) != 3 {
			t.Errorf("%s: %d takes, %v", batch, len(items), ok)
		}
	}
}
