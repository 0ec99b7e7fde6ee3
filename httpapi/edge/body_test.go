package edge_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/jatah-io/jatah/httpapi/edge"
)

var errBroken = errors.New("broken off")

// failing is a body that breaks off.
func failing(begin string) io.Reader {
	return io.MultiReader(strings.NewReader(begin), iotest.ErrReader(errBroken))
}

// tracked is a body that notes what is done with it.
type tracked struct {
	io.Reader
	closed int
}

func (b *tracked) Close() error { b.closed++; return nil }

func TestTheHandlerGetsTheBodyAgain(t *testing.T) {
	e := anEdge(t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		data := make([]byte, rng.IntN(200))
		for i := range data {
			data[i] = byte(rng.IntN(256))
		}
		body := &tracked{Reader: bytes.NewReader(data)}
		broken := rng.IntN(3) == 0
		if broken {
			body.Reader = failing(string(data))
		}
		switch rng.IntN(4) {
		case 0:
			body.Reader = iotest.OneByteReader(body.Reader)
		case 1:
			body.Reader = iotest.DataErrReader(body.Reader)
		}
		r := httptest.NewRequest("POST", "/", body)
		if rng.IntN(2) == 0 && !broken {
			r.ContentLength = int64(len(data))
		}
		length := r.ContentLength
		q := e.RequestOf(r)
		for range rng.IntN(3) { // several costs of one request
			_, _ = edge.Body("rows").Within(int64(1+rng.IntN(250))).Per(1, edge.Bounds{Max: 5})(q)
		}
		again, err := io.ReadAll(r.Body)
		if !bytes.Equal(again, data) || broken != errors.Is(err, errBroken) || r.ContentLength != length {
			t.Fatalf("seed %d: %q became %q, %v", seed, data, again, err)
		}
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("seed %d: %d bytes after the end, %v", seed, n, err)
		}
		if err := r.Body.Close(); err != nil || body.closed != 1 {
			t.Fatalf("seed %d: close gives %v and closes %d times", seed, err, body.closed)
		}
	}
}

func TestNoMoreOfABodyIsReadThanSaid(t *testing.T) {
	e := anEdge(t)
	endless := &tracked{Reader: rand.NewChaCha8([32]byte{1})}
	r := httptest.NewRequest("POST", "/", endless)
	counted := &counting{Reader: endless}
	r.Body = counted
	if c, err := edge.Body("rows").Within(1000).Per(1, edge.Bounds{Max: 9})(e.RequestOf(r)); c != 9 || err != nil {
		t.Errorf("costs %d, %v", c, err)
	}
	if counted.n > 1001 {
		t.Errorf("%d bytes were read", counted.n)
	}
	r.ContentLength, counted.n = 1001, 0
	r.Body = counted
	_, _ = edge.Body("rows").Within(1000).Per(1, edge.Bounds{Max: 9})(e.RequestOf(r))
	if counted.n > 0 {
		t.Errorf("%d bytes were read of a body that says it is too long", counted.n)
	}
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
}

type counting struct {
	io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) { n, err := c.Reader.Read(p); c.n += n; return n, err }
func (c *counting) Close() error               { return nil }

func TestAClosedBodyIsNotRead(t *testing.T) {
	e := anEdge(t)
	r := httptest.NewRequest("POST", "/", strings.NewReader(`{"rows":1}`))
	_, _ = edge.Body("rows").Per(1, edge.Bounds{})(e.RequestOf(r))
	r.Body.Close()
	if n, err := r.Body.Read(make([]byte, 8)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A transport closes a body while another goroutine reads it.
func TestABodyIsClosedWhileItIsRead(t *testing.T) {
	e := anEdge(t)
	for range 200 {
		r := httptest.NewRequest("POST", "/", strings.NewReader(`{"rows":1}`))
		_, _ = edge.Body("rows").Per(1, edge.Bounds{})(e.RequestOf(r))
		var wait sync.WaitGroup
		wait.Go(func() { _, _ = io.ReadAll(r.Body) })
		wait.Go(func() { r.Body.Close() })
		wait.Wait()
	}
}

// overHTTP serves a handler that prices a request by its body and then answers what the body was.
func overHTTP(t *testing.T) *httptest.Server {
	e := anEdge(t)
	cost := edge.Body("rows").Per(500, edge.Bounds{Max: 100})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		length := r.ContentLength
		c, err := cost(e.RequestOf(r))
		body, bad := io.ReadAll(r.Body)
		fmt.Fprintf(w, "cost %d %v, length %d, %d bytes, %v, trailer %s\n", c, err, length, len(body), bad, r.Trailer.Get("Sum"))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestBodiesOverHTTP(t *testing.T) {
	s := overHTTP(t)
	small, large := `{"rows":5000}`, `{"rows":1,"x":"`+strings.Repeat("x", 1<<20)+`"}`
	chunked := func(body string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\nSum: 7\r\n\r\n", len(body), body)
	}
	for _, c := range []struct{ name, head, body, want string }{
		{"small", fmt.Sprintf("Content-Length: %d", len(small)), small, "cost 10 <nil>, length 13, 13 bytes, <nil>, trailer \n"},
		{"large", fmt.Sprintf("Content-Length: %d", len(large)), large, fmt.Sprintf("cost 100 <nil>, length %d, %[1]d bytes, <nil>, trailer \n", len(large))},
		{"chunked", "Transfer-Encoding: chunked\r\nTrailer: Sum", chunked(small), "cost 10 <nil>, length -1, 13 bytes, <nil>, trailer 7\n"},
		{"large and chunked", "Transfer-Encoding: chunked\r\nTrailer: Sum", chunked(large), fmt.Sprintf("cost 100 <nil>, length -1, %d bytes, <nil>, trailer 7\n", len(large))},
		{"none", "Content-Length: 0", "", "cost 1 <nil>, length 0, 0 bytes, <nil>, trailer \n"},
		{"a broken chunk", "Transfer-Encoding: chunked", "5\r\n{\"row\r\nZZ\r\n", "cost 100 <nil>, length -1, 5 bytes, invalid byte in chunk length, trailer \n"},
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", c.head, c.body)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		text, _ := io.ReadAll(res.Body)
		if string(text) != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
		conn.Close()
	}
}

// A client that waits before it sends its body is told to go on when the body is needed, and only then.
func TestAClientThatWaitsForContinue(t *testing.T) {
	s := overHTTP(t)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n")
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = in.ReadString('\n')
	fmt.Fprint(conn, `{"rows":5000}`)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(res.Body); !strings.HasPrefix(string(text), "cost 10 <nil>, length 13, 13 bytes, <nil>") {
		t.Errorf("%s", text)
	}
}
