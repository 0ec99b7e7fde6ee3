package chaos

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
)

// A connection that is used at once and broken is the server's doing; only one that lay idle from the start is excused.
func TestABrokenConnectionIsTheServersDoing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1))
			conn.Close()
		}
	}()
	w := newWeb(new(net.Dialer).DialContext)
	ask := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+ln.Addr().String(), bytes.NewReader([]byte("x")))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := ask(); err == nil || errors.Is(err, errUnused) || kindOf(err) != "connection broken" {
		t.Errorf("%v, of kind %s, of a connection that was new", err, kindOf(err))
	}

	// The first request is given another connection than the one that was dialed for it.
	dialing, free := make(chan struct{}), make(chan struct{})
	dialed, errDial := false, errors.New("no more connections")
	w = newWeb(func(_ context.Context, network, addr string) (net.Conn, error) {
		if dialed {
			return nil, errDial
		}
		dialed = true
		conn, err := net.Dial(network, addr)
		close(dialing)
		<-free
		return conn, err
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-dialing
		cancel()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+ln.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that it was given up", err)
	}
	close(free)
	for err = errDial; errors.Is(err, errDial); { // until the connection is among those that are free
		err = ask()
	}
	if !errors.Is(err, errUnused) || kindOf(err) != unused {
		t.Errorf("%v, of kind %s, of a connection that had been made for another request", err, kindOf(err))
	}
}
