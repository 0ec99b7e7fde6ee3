package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// serve runs Serve on a loopback port until the returned function is called.
func serve(t *testing.T, h http.Handler, log *slog.Logger, drain time.Duration) (addr string, stop func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, NewServer(h, log), ln, drain) }()
	return ln.Addr().String(), func() error { cancel(); return <-done }
}

func TestServeAnswersThenDrains(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	entered, leave := make(chan struct{}), make(chan struct{})
	addr, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			close(entered)
			<-leave
		}
		a.h.ServeHTTP(w, r)
	}), nil, time.Minute)
	const body = `{"limit":"api","key":"u"}`
	post := func(slow string) (int, string, error) {
		r, _ := http.NewRequest("POST", "http://"+addr+"/v1/take", strings.NewReader(body))
		r.Header.Set("X-Slow", slow)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), err
	}
	if code, b, err := post(""); code != 200 || !strings.Contains(b, `"remaining":9`) || err != nil {
		t.Fatalf("%d %s %v", code, b, err)
	}
	running := make(chan int, 1)
	go func() { code, _, _ := post("yes"); running <- code }()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// The port is closed to newcomers while the running request goes on.
	for {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a request running: %v", err)
	default:
	}
	close(leave)
	if code := <-running; code != 200 {
		t.Errorf("the running request got %d", code)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServeSaysWhatItCutOff(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	addr, stop := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	}), nil, time.Millisecond)
	go http.Get("http://" + addr)
	<-entered
	if err := stop(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v", err)
	}
}

func TestAddressInUseIsAnError(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = ListenAndServe(t.Context(), ln.Addr().String(), http.NotFoundHandler(), nil, time.Second)
	if err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func TestLargeBodyOverTheWireIsRefusedBeforeItIsSent(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	addr, stop := serve(t, a.h, nil, time.Minute)
	defer stop()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 413 || !resp.Close {
		t.Errorf("%v %+v", err, resp)
	}
}

func TestRefusalsAndBadRequestsWriteNoLog(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	a := newAPI(t, Config{Logger: logger}, perMinute("api", 1, 1))
	addr, stop := serve(t, a.h, logger, time.Minute)
	for _, body := range []string{`{"limit":"api","key":"u"}`, `{"limit":"api","key":"u"}`, `{"limit":"no","key":"u"}`, `}`} {
		resp, err := http.Post("http://"+addr+"/v1/take", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if err := stop(); err != nil || log.Len() > 0 {
		t.Errorf("%v, log: %s", err, log.String())
	}
}

// Behind forward auth the headers are those of the client.
func TestHeadersOfTheSizeThatProxiesLetThroughAreRead(t *testing.T) {
	addr, stop := serve(t, newAPI(t, Config{}).h, nil, time.Second)
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", "a="+strings.Repeat("x", 32<<10))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
