package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

// reply is a ResponseWriter that keeps nothing but its header map, as net/http
// does between two requests of a connection.
type reply struct {
	head   http.Header
	status int
}

func (r *reply) Header() http.Header         { return r.head }
func (r *reply) WriteHeader(status int)      { r.status = status }
func (r *reply) Write(b []byte) (int, error) { return len(b), nil }

// again is a request that can be served any number of times.
type again struct {
	body strings.Reader
	text string
	r    *http.Request
	w    reply
}

func newAgain(target, body string) *again {
	a := &again{text: body, w: reply{head: http.Header{}}}
	a.r = httptest.NewRequest("POST", target, nil)
	a.r.Header.Set("Content-Type", "application/json")
	a.r.ContentLength = int64(len(body))
	a.r.Body = io.NopCloser(&a.body)
	return a
}

func (a *again) serve(h http.Handler) int {
	clear(a.w.head)
	a.body.Reset(a.text)
	h.ServeHTTP(&a.w, a.r)
	return a.w.status
}

const benchBody = `{"limit":"api","key":"user:12345","cost":1}`

func bigLimit() jatah.Limit { return perSecond("api", 1_000_000_000, 1_000_000_000) }

func TestTakeAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	a := newAPI(t, Config{}, bigLimit())
	req := newAgain("/v1/take", benchBody)
	n := testing.AllocsPerRun(1000, func() {
		if req.serve(a.h) != 200 {
			t.Fatal(req.w.status)
		}
	})
	// The key, and all header values: net/http and those around this handler may look at them after it has returned.
	// The rest is pooled, or made once for a limit.
	if n > 2 {
		t.Errorf("%v allocations for one take, want at most 2", n)
	}
}

func TestBatchAllocatesItsKeys(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	a := newAPI(t, Config{}, bigLimit())
	req := newAgain("/v1/batch", `{"takes":[`+strings.Repeat(benchBody+",", 99)+benchBody+`]}`)
	if n := testing.AllocsPerRun(100, func() { req.serve(a.h) }); n > 102 {
		t.Errorf("%v allocations for a batch of 100, want at most its keys and 2 for Content-Length", n)
	}
}

func BenchmarkTakeHandler(b *testing.B) {
	a := newAPI(b, Config{}, bigLimit())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for req := newAgain("/v1/take", benchBody); pb.Next(); {
			if req.serve(a.h) != 200 {
				b.Fatal(req.w.status)
			}
		}
	})
}

func BenchmarkTakeHandlerDenied(b *testing.B) {
	a := newAPI(b, Config{}, jatah.Limit{Name: "api", Rate: jatah.Per(1, 24*60*60e9), Burst: 1})
	a.take(benchBody)
	b.ReportAllocs()
	for req := newAgain("/v1/take", benchBody); b.Loop(); {
		if req.serve(a.h) != 429 {
			b.Fatal(req.w.status)
		}
	}
}

func BenchmarkBatchHandler(b *testing.B) {
	a := newAPI(b, Config{}, bigLimit())
	b.ReportAllocs()
	body := `{"takes":[` + strings.Repeat(benchBody+",", 99) + benchBody + `]}`
	for req := newAgain("/v1/batch", body); b.Loop(); {
		req.serve(a.h)
	}
}

func BenchmarkDecodeTake(b *testing.B) {
	b.ReportAllocs()
	for body := []byte(benchBody); b.Loop(); {
		if _, p := decodeTake(body); p != nil {
			b.Fatal(p)
		}
	}
}
