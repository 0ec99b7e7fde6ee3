package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

var quiet = slog.New(slog.DiscardHandler)

func lone(t *testing.T, limits ...jatah.Limit) (*jatah.Node, *Handler) {
	t.Helper()
	n, err := jatah.Start(t.Context(), jatah.Config{Node: "n1", Version: "v1", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	if err := n.SetLimits(limits...); err != nil {
		t.Fatal(err)
	}
	h := New(n)
	t.Cleanup(h.Close)
	return n, h
}

func call(h http.Handler, method, target string, head ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestAssets: the page names nothing that is not there, nothing of others, and no code within it.
func TestAssets(t *testing.T) {
	_, h := lone(t)
	w := call(h, "GET", "/")
	page := w.Body.String()
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(page, "<title>Jatah</title>") {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), part) {
			t.Errorf("the policy lacks %s", part)
		}
	}
	for _, bad := range []string{"<style", "style=", " onclick", "http://", "https://", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for name, a := range h.assets {
		if name == "index.html" {
			continue
		}
		w := call(h, "GET", "/dashboard/"+name)
		if w.Code != 200 || w.Header().Get("Content-Type") != a.kind || a.kind == "" || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if w := call(h, "GET", "/dashboard/"+name, "If-None-Match", `"x", W/`+a.tag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s again: %d", name, w.Code)
		}
		if strings.HasSuffix(name, ".js") && name != "uplot.js" {
			for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"} {
				if strings.Contains(string(a.body), bad) {
					t.Errorf("%s has %q", name, bad)
				}
			}
		}
	}
	for _, part := range strings.Split(page, `"/dashboard/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if _, ok := h.assets[name]; !ok {
			t.Errorf("the page wants %q, which is not there", name)
		}
	}
	for _, c := range []string{"/dashboard/none.js", "/dashboard/index.html", "/dashboard/", "/dashboard/../handler.go", "/v1/dashboard/none", "/other"} {
		if w := call(h, "GET", c); w.Code != 404 && w.Code != 307 && w.Code != 301 {
			t.Errorf("%s: %d", c, w.Code)
		} else if w.Code == 404 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v", c, w.Header())
		}
	}
}

func TestBadQueries(t *testing.T) {
	_, h := lone(t)
	for _, q := range []string{"?scope=all", "?scope=node&scope=node", "?other=1", "?limit=" + strings.Repeat("x", mostName+1)} {
		for _, path := range []string{Stream, History} {
			w := call(h, "GET", path+q)
			if w.Code != 400 || w.Header().Get("Content-Type") != "application/problem+json" || !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s%s: %d %s", path, q, w.Code, w.Body)
			}
		}
	}
	if w := call(h, "HEAD", Stream); w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
}

// reader reads a stream of events.
type reader struct {
	t *testing.T
	*bufio.Scanner
}

// next returns the data of the next event of a kind.
func (r reader) next(kind string, into any) {
	r.t.Helper()
	for r.Scan() {
		if r.Text() != "event: "+kind {
			continue
		}
		if !r.Scan() {
			break
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(r.Text(), "data: ")), into); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	r.t.Fatalf("the stream ended before the next %s: %v", kind, r.Err())
}

// watch opens a stream in a bubble, whose pipe stands for the connection.
func watch(t *testing.T, h http.Handler, query string) (reader, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	go func() {
		h.ServeHTTP(&pipeWriter{http.Header{}, out}, httptest.NewRequestWithContext(ctx, "GET", Stream+query, nil))
		out.Close()
	}()
	s := bufio.NewScanner(in)
	s.Buffer(nil, 1<<20)
	return reader{t, s}, func() { cancel(); in.Close() }
}

type pipeWriter struct {
	head http.Header
	*io.PipeWriter
}

func (w *pipeWriter) Header() http.Header { return w.head }
func (w *pipeWriter) WriteHeader(int)     {}
func (w *pipeWriter) Flush()              {}

func TestStreamOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := lone(t, jatah.Limit{Name: "api", Rate: jatah.PerHour(10)}, jatah.Limit{Name: "Other", Rate: jatah.PerHour(10), DryRun: true},
			jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 3})
		api, _ := n.Lookup("api")
		time.Sleep(1500 * time.Millisecond)
		for range 15 {
			api.Take(t.Context(), "u", 1)
		}
		time.Sleep(3 * time.Second)
		r, end := watch(t, h, "?find=API")
		defer end()
		var p past
		r.next("history", &p)
		if len(p.Times) != 4 || p.Allowed[1] != 10 || p.Refused[1] != 5 {
			t.Errorf("the history is %+v", p)
		}
		var f frame
		r.next("frame", &f)
		if f.Node != "n1" || f.Scope != "node" || !f.Ready || f.K != 1 || f.Weight != 1 || f.Version != "v1" || f.First || len(f.Members) != 1 || f.Members[0].Rates == nil {
			t.Errorf("%+v", f)
		}
		if len(f.Limits) != 1 || f.Limits[0].Name != "api" || f.Limits[0].Allowed != 10 || f.Limits[0].Refused != 5 || f.Limits[0].Rate != "10/h" || f.LimitsTotal != 3 || f.Matching != 1 {
			t.Errorf("%d of %d limits: %+v", f.Matching, f.LimitsTotal, f.Limits)
		}
		if len(f.Events) == 0 || f.Events[0].Kind != "started" {
			t.Errorf("events: %+v", f.Events)
		}
		n.Note(jatah.Event{Kind: "reload", Text: "</script>"})
		r.next("frame", &f)
		if len(f.Events) != 1 || f.Events[0].Text != "</script>" {
			t.Errorf("events since: %+v", f.Events)
		}
		begun := time.Now()
		for range 40 {
			r.next("frame", &f)
		}
		if took := time.Since(begun); took != 40*time.Second {
			t.Errorf("40 frames took %v", took)
		}
		var of past
		w := call(h, "GET", History+"?limit=api")
		if err := json.Unmarshal(w.Body.Bytes(), &of); err != nil || of.Limit != "api" || of.Allowed[1] != 10 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v %s", err, w.Body)
		}
		h.Close()
		h.Close()
		r.next("end", &struct{}{})
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := lone(t)
		var ends []context.CancelFunc
		for range mostStreams {
			r, end := watch(t, h, "")
			r.next("history", &past{})
			ends = append(ends, end)
		}
		if w := call(h, "GET", Stream); w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "too-many-streams") {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		ends[0]()
		synctest.Wait()
		r, end := watch(t, h, "")
		r.next("history", &past{})
		end()
		for _, end := range ends[1:] {
			end()
		}
	})
}

// TestStreamOfACluster: the numbers of all, who is missing, and that nobody is asked for those who have gone.
func TestStreamOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simnet.New(7)
		defer time.Sleep(10 * time.Second) // what a probe of a node that is gone waits for
		var nodes []*jatah.Node
		var seeds []string
		for i := range 3 {
			addr := fmt.Sprintf("10.0.0.%d:7946", i+1)
			tr, err := sim.Transport(addr)
			if err != nil {
				t.Fatal(err)
			}
			n, err := jatah.Open(t.Context(), jatah.Config{Node: fmt.Sprint("n", i+1), Transport: tr, Join: seeds, Expect: 3, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			if err := n.SetLimits(jatah.Limit{Name: "api", Rate: jatah.PerHour(1000), Mode: jatah.Split}); err != nil {
				t.Fatal(err)
			}
			nodes, seeds = append(nodes, n), append(seeds, addr)
		}
		for _, n := range nodes {
			if err := n.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		h := New(nodes[0])
		defer h.Close()
		r, end := watch(t, h, "?scope=cluster")
		defer end()
		var f frame
		r.next("frame", &f)
		if !f.First {
			t.Errorf("the first frame: %+v", f)
		}
		for _, n := range nodes {
			api, _ := n.Lookup("api")
			for range 5 {
				api.Take(t.Context(), "u", 1)
			}
		}
		r.next("frame", &f)
		if f.First || f.Now.Allowed < 10 || len(f.Missing)+len(f.Unknown) != 0 || len(f.Limits) != 1 || f.Limits[0].Allowed != 15 {
			t.Errorf("%+v", f)
		}
		for _, m := range f.Members {
			if m.Answered != "yes" || m.Rates == nil || m.K != 3 {
				t.Errorf("%+v", m)
			}
		}
		sim.Crash(seeds[2])
		for range 5 {
			r.next("frame", &f)
		}
		if len(f.Missing) != 1 || f.Missing[0] != "n3" || f.Members[2].Answered != "no" || f.Members[2].Rates != nil {
			t.Errorf("without n3: missing %v, %+v", f.Missing, f.Members[2])
		}
		end()
		time.Sleep(lingers + 2*time.Second)
		h.sampler.mu.Lock()
		if h.sampler.whole != nil || h.sampler.watchers != 0 {
			t.Errorf("%d watch, and the members are asked still", h.sampler.watchers)
		}
		h.sampler.mu.Unlock()
	})
}

// TestStreamOutlivesTheServersBounds: the times that a server gives to requests are not for streams, and its shutdown does not wait for them.
func TestStreamOutlivesTheServersBounds(t *testing.T) {
	_, h := lone(t)
	srv := &http.Server{Handler: h, ReadTimeout: time.Second, WriteTimeout: time.Second}
	srv.RegisterOnShutdown(h.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	resp, err := http.Get("http://" + ln.Addr().String() + Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream; charset=utf-8" {
		t.Errorf("Content-Type %q", ct)
	}
	s := bufio.NewScanner(resp.Body)
	s.Buffer(nil, 1<<20)
	r := reader{t, s}
	for range 3 { // two seconds
		r.next("frame", &frame{})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Errorf("the stream kept the server: %v", err)
	}
	<-served
	r.next("end", &struct{}{})
}
