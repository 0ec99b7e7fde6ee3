package edge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// through serves one request over HTTP by a handler whose writer is wrapped, and returns what came back and what was noted.
func through(t *testing.T, unnamed int, h http.HandlerFunc) (res *http.Response, body string, noted writer) {
	t.Helper()
	done := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		h(noted.wrap(w, unnamed), r)
	}))
	defer srv.Close()
	res, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	<-done
	return res, string(text), noted
}

func TestWhatAHandlerAnswersIsNoted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		h      http.HandlerFunc
		status int // noted; 0: none
		bytes  int64
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 0, 0},
		{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 404, 0},
		{"bytes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, 200, 5},
		{"a string", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, 200, 5},
		{"early hints before the status", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(100)
			w.WriteHeader(201)
		}, 201, 0},
		{"the first of two", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte("12345678"))
		}, 500, 8},
		{"a file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }, 200, 100_000},
		{"a flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, 200, 0},
		{"a flush by the controller", func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}, 200, 0},
	} {
		res, body, noted := through(t, 0, c.h)
		if noted.status != c.status || noted.bytes != c.bytes || int64(len(body)) != c.bytes {
			t.Errorf("%s: noted %d with %d bytes, want %d with %d", c.name, noted.status, noted.bytes, c.status, c.bytes)
		}
		if c.status != 0 && res.StatusCode != c.status {
			t.Errorf("%s: the client saw %d", c.name, res.StatusCode)
		}
	}
}

func TestAStatusThatIsNotNamed(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"write":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") },
		"string": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") },
		"copy":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("x")) },
		"flush":  func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
	} {
		if res, _, noted := through(t, 429, h); res.StatusCode != 429 || noted.status != 429 {
			t.Errorf("%s: %d, noted %d, want 429", name, res.StatusCode, noted.status)
		}
	}
}

func TestAConnectionCanBeTakenOver(t *testing.T) {
	for name, hijack := range map[string]func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error){
		"by assertion": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) { return w.(http.Hijacker).Hijack() },
		"by controller": func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return http.NewResponseController(w).Hijack()
		},
	} {
		_, body, noted := through(t, 0, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := hijack(w)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nraw")
		})
		if body != "raw" || noted.status != http.StatusSwitchingProtocols {
			t.Errorf("%s: %q, noted %d, want 101", name, body, noted.status)
		}
	}
}

// copied is a writer whose ReadFrom is called.
type copied struct {
	http.ResponseWriter
	calls int
}

func (c *copied) ReadFrom(r io.Reader) (int64, error) { c.calls++; return io.Copy(io.Discard, r) }

func TestReadFromReachesTheWriterBelow(t *testing.T) {
	below := &copied{ResponseWriter: httptest.NewRecorder()}
	var noted writer
	if n, err := io.Copy(noted.wrap(below, 0), io.LimitReader(strings.NewReader("hello, world"), 5)); n != 5 || err != nil || below.calls != 1 || noted.bytes != 5 {
		t.Errorf("%d bytes (%v), %d calls, noted %d", n, err, below.calls, noted.bytes)
	}
}

// The kinds of writers that there are below, by what they can do.
type (
	plainW struct{ http.ResponseWriter }
	flushW struct {
		plainW
		http.Flusher
	}
	hijackW struct {
		plainW
		http.Hijacker
	}
	bothW struct {
		plainW
		http.Flusher
		http.Hijacker
	}
	wrappedW struct{ http.ResponseWriter }
	pushW    struct {
		plainW
		pushed string
	}
)

func (w wrappedW) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *pushW) Push(target string, _ *http.PushOptions) error { w.pushed = target; return nil }

type noHijack struct{}

var errHijack = errors.New("no connection here")

func (noHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errHijack }

// A handler that asks by type assertion is told what holds.
func TestNoMoreIsPromisedThanTheWriterBelowCanDo(t *testing.T) {
	rec := httptest.NewRecorder()
	plain := plainW{rec}
	for _, c := range []struct {
		name          string
		below         http.ResponseWriter
		flush, hijack bool
	}{
		{"plain", plain, false, false},
		{"flusher", flushW{plain, rec}, true, false},
		{"hijacker", hijackW{plain, noHijack{}}, false, true},
		{"both", bothW{plain, rec, noHijack{}}, true, true},
		{"both, wrapped", wrappedW{bothW{plain, rec, noHijack{}}}, true, true},
		{"plain, wrapped", wrappedW{plain}, false, false},
	} {
		var noted writer
		w := noted.wrap(c.below, 0)
		_, flush := w.(http.Flusher)
		h, hijack := w.(http.Hijacker)
		if flush != c.flush || hijack != c.hijack {
			t.Errorf("%s: flush %v, hijack %v", c.name, flush, hijack)
		}
		if hijack {
			if _, _, err := h.Hijack(); !errors.Is(err, errHijack) || noted.status != 0 {
				t.Errorf("%s: %v, noted %d", c.name, err, noted.status)
			}
		}
		if err := w.(http.Pusher).Push("/x", nil); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("%s: push: %v", c.name, err)
		}
	}
	below := &pushW{plainW: plain}
	var noted writer
	if err := noted.wrap(wrappedW{below}, 0).(http.Pusher).Push("/style.css", nil); err != nil || below.pushed != "/style.css" {
		t.Errorf("push: %v, %q", err, below.pushed)
	}
}

func TestHTTP2CanBeFlushedAndNotHijacked(t *testing.T) {
	var noted writer
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(below http.ResponseWriter, _ *http.Request) {
		w := noted.wrap(below, 0)
		if _, ok := w.(http.Hijacker); ok {
			t.Error("a stream of HTTP/2 is said to be a connection")
		}
		w.(http.Flusher).Flush()
		fmt.Fprint(w, "hello")
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	res, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello" || res.ProtoMajor != 2 {
		t.Errorf("%q over %s, %v", body, res.Proto, err)
	}
}

func TestWrappingAllocatesNothing(t *testing.T) {
	var noted writer
	below := bothW{plainW{httptest.NewRecorder()}, httptest.NewRecorder(), noHijack{}}
	var w http.ResponseWriter = below
	if n := testing.AllocsPerRun(100, func() { noted.wrap(w, 0).WriteHeader(200) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
