// Command bare answers every HTTP request with the same reply and decides nothing: what net/http can do on this machine. The suites build
// and start it.
//
//	bare -listen 127.0.0.1:8081 -reply FILE     # the file has an HTTP response, as on the wire
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	addr := flag.String("listen", "", "`address` to listen on")
	reply := flag.String("reply", "", "`file` with the response")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr, *reply); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// serve answers until ctx ends.
func serve(ctx context.Context, addr, file string) error {
	if addr == "" || file == "" {
		return errors.New("give an address with -listen and a file with -reply")
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	resp, err := http.ReadResponse(bufio.NewReader(f), nil)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	resp.Header.Del("Date") // net/http sets it anew, and the length too
	srv := &http.Server{Addr: addr, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, values := range resp.Header {
			h[name] = values
		}
		_, _ = w.Write(body)
	})}
	failed := make(chan error, 1)
	go func() { failed <- srv.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return srv.Close()
	}
}
