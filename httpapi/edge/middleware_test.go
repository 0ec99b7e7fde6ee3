package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// panicOf runs f and returns what it panics with.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestAPanicGoesOnAsItWas(t *testing.T) {
	limits := []jatah.Limit{{Name: "flight", Algorithm: jatah.Concurrency, Max: 1}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for _, want := range []any{"broken", http.ErrAbortHandler, errors.New("x")} {
			h := limiting(t, node, edge.Answer{}, "flight")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(want) }))
			if got := panicOf(func() { h.ServeHTTP(httptest.NewRecorder(), request("GET", "/", someone)) }); got != want {
				t.Errorf("the panic is %v, want %v", got, want)
			}
			if n := held(t, node, "flight", "all"); n != 0 {
				t.Errorf("after the panic %d permits are held", n)
			}
		}
	})
}

// A connection that was upgraded is in flight until its handler returns.
func TestAHijackedConnectionHoldsItsPermit(t *testing.T) {
	limits := []jatah.Limit{{Name: "flight", Algorithm: jatah.Concurrency, Max: 1, TTL: 5 * time.Second}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		s := serveHTTP(t, limiting(t, node, edge.Answer{PermitStatus: 503}, "flight")(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
			line, _ := rw.ReadString('\n')
			_, _ = io.WriteString(conn, line)
		})))
		conn, err := s.pipes.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: site.test\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", res, err)
		}
		time.Sleep(20 * time.Second)
		if a := s.get(); a.StatusCode != 503 || held(t, node, "flight", "all") != 1 {
			t.Errorf("while it is open: %d, %d permits held", a.StatusCode, held(t, node, "flight", "all"))
		}
		_, _ = io.WriteString(conn, "bye\n")
		if line, err := in.ReadString('\n'); line != "bye\n" {
			t.Errorf("%q, %v", line, err)
		}
		synctest.Wait()
		if n := held(t, node, "flight", "all"); n != 0 {
			t.Errorf("after it was closed %d permits are held", n)
		}
	})
}

// unread fails when it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }
func (u unread) Close() error             { return nil }

func TestTheBodyOfARefusedRequestIsNotRead(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "closed", Rate: jatah.PerSecond(0)}}, func(t *testing.T, node *jatah.Node) {
		h := limiting(t, node, edge.Answer{}, "closed")(hello)
		r := request("POST", "/", someone)
		r.Body, r.ContentLength = unread{t}, 1<<40
		if got := serve(h, r); got != 429 {
			t.Errorf("status %d", got)
		}
		// Over HTTP the client that asks first never sends it.
		s := serveHTTP(t, h)
		conn, err := s.pipes.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", int64(1)<<40)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 429 {
			t.Errorf("%v, %v; want 429 in place of 100", res, err)
		}
	})
}

func TestAHandlerSeesItsVerdict(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(5)}, {Name: "outer", Rate: jatah.PerMinute(5)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		type key struct{}
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{
			{Name: "exempt", When: []edge.Condition{edge.Path("/exempt")}}, {Name: "r", When: []edge.Condition{edge.Path("/api")}, Uses: []edge.Use{forAll("api")}},
		}})
		var got *edge.Verdict
		h := e.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = edge.FromContext(r.Context())
			if r.Context().Value(key{}) != "kept" {
				t.Error("a value of the request's context is lost")
			}
			sub, cancel := context.WithCancel(r.Context())
			defer cancel()
			if edge.FromContext(sub) != got {
				t.Error("the verdict is not in a context made of the handler's")
			}
		}))
		for path, want := range map[string]string{"/api": "r", "/exempt": "exempt", "/none": ""} {
			r := request("GET", path, someone)
			h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), key{}, "kept")))
			switch {
			case want == "":
				if got != nil {
					t.Errorf("%s: a verdict by rule %q", path, got.Rule)
				}
			case got == nil || got.Rule != want || !got.OK:
				t.Errorf("%s: %+v", path, got)
			}
		}
		outer := limiting(t, node, edge.Answer{}, "outer")
		outer(h).ServeHTTP(httptest.NewRecorder(), func() *http.Request {
			r := request("GET", "/api", someone)
			return r.WithContext(context.WithValue(r.Context(), key{}, "kept"))
		}())
		if got == nil || got.Rule != "r" {
			t.Errorf("nested: %+v, want that of the inner one", got)
		}
	})
}

// A goroutine that a handler has left behind may look at the verdict while others are decided.
func TestAVerdictStaysWithItsRequest(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.Per(100, 24*time.Hour)}); err != nil {
		t.Fatal(err)
	}
	e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Header("Key")}}}}}})
	var left sync.WaitGroup
	over := make(chan struct{})
	h := e.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key, ctx := r.Header.Get("Key"), r.Context()
		left.Go(func() {
			<-over
			if v := edge.FromContext(ctx); v.Takes[0].Key != key || !v.OK {
				t.Errorf("the verdict on %s is now on %s (%v)", key, v.Takes[0].Key, v.OK)
			}
		})
	}))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 300 { // a third is admitted
				h.ServeHTTP(httptest.NewRecorder(), request("GET", "/", someone, "Key", fmt.Sprint("k", i, n%2)))
			}
		})
	}
	all.Wait()
	close(over)
	left.Wait()
}

// What a handler learns of a request reaches those around the middleware: the pattern, and the files that the server removes.
func TestWhatTheServerNeedsOfARequestIsHandedBack(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(5)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /upload/{name}", func(_ http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1); err != nil {
				t.Error(err)
			}
		})
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Soft: &edge.Soft{From: 0.9}, Uses: []edge.Use{forAll("api")}}}})
		h := e.Middleware(mux)
		for _, headers := range [][]string{nil, {"Jatah-Soft", "made up"}} { // with and without a copy of the request
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, _ := form.CreateFormFile("f", "f.bin")
			_, _ = part.Write(bytes.Repeat([]byte("x"), 20<<20))
			_ = form.Close()
			r := httptest.NewRequest("POST", "/upload/a", &body)
			r.Header.Set("Content-Type", form.FormDataContentType())
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			if r.Pattern != "POST /upload/{name}" || r.MultipartForm == nil {
				t.Fatalf("pattern %q, form %v", r.Pattern, r.MultipartForm)
			}
			f, err := r.MultipartForm.File["f"][0].Open()
			if err != nil {
				t.Fatal(err)
			}
			if onDisk, ok := f.(*os.File); ok {
				_ = onDisk.Close()
			}
			_ = r.MultipartForm.RemoveAll()
		}
	})
}

func TestEventsAreStreamed(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(5)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		use := forAll("api")
		use.Counts = func(int) bool { return true } // so that the writer is wrapped
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{use}}}})
		s := serveHTTP(t, e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "tick\n")
				w.(http.Flusher).Flush()
				time.Sleep(time.Second)
			}
		})))
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://site.test/", nil)
		began := time.Now()
		res, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var at []string
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			at = append(at, time.Since(began).String())
		}
		if got := strings.Join(at, " "); got != "0s 1s 2s" {
			t.Errorf("the lines came at %s", got)
		}
	})
}

// What a request costs in the end is told by how the handler has answered it.
func TestTheOutcomeIsThatOfTheHandler(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(1000)}}, func(t *testing.T, node *jatah.Node) {
		var got edge.Outcome
		use := forAll("api")
		use.After = []edge.After{func(_ *edge.Request, o edge.Outcome) int64 { got = o; return o.Bytes }}
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{use}}}})
		var h http.HandlerFunc
		s := serveHTTP(t, e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r) })))
		for _, c := range []struct {
			name string
			h    http.HandlerFunc
			want edge.Outcome
		}{
			{"nothing", func(http.ResponseWriter, *http.Request) {}, edge.Outcome{Status: 200}},
			{"an error after hints", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				time.Sleep(time.Second)
				http.Error(w, "no such thing", http.StatusNotFound)
			}, edge.Outcome{Status: 404, Bytes: 14, Took: time.Second}},
			{"a panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, edge.Outcome{Status: 500, Failed: true}},
			{"a panic after the status", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusAccepted)
				panic(http.ErrAbortHandler)
			}, edge.Outcome{Status: 202, Failed: true}},
			{"another protocol", func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			}, edge.Outcome{Status: 101}},
			{"a framework", func(_ http.ResponseWriter, r *http.Request) { edge.FromContext(r.Context()).Answered(418, 7) }, edge.Outcome{Status: 418, Bytes: 7}},
		} {
			h, got = c.h, edge.Outcome{}
			_, _ = s.try("POST", "/", nil)
			synctest.Wait()
			if got != c.want {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
		}
		l, _ := node.Lookup("api")
		if st, err := l.Peek(t.Context(), "all"); err != nil || st.Remaining != 1000-6-14-7 {
			t.Errorf("%d left (%v)", st.Remaining, err)
		}
	})
}

func TestRefusingAllocatesNoMoreThanAdmitting(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	allocs := map[string]float64{}
	for _, m := range measured(t) {
		w, r := newGet()
		m.h.ServeHTTP(w, r)
		allocs[m.name] = testing.AllocsPerRun(500, func() {
			clear(w.head)
			m.h.ServeHTTP(w, r)
		})
		if w.status != m.status {
			t.Fatalf("%s: status %d", m.name, w.status)
		}
	}
	// The key, one string and one array for all header values; who is admitted has besides the memory of its verdict and its copy of the request.
	if allocs["refuse"] > 3 || allocs["admit"] > 5 || allocs["observed"] > allocs["admit"] || allocs["two-limits-refuse"] > allocs["two-limits"] {
		t.Errorf("allocations: %v", allocs)
	}
}
