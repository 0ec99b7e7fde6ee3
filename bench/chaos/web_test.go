package chaos

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"testing"
)

// A connection that is used at once and broken is the server's doing; only one that nothing has come over for long is excused.
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

	// Of one that has lain there for longer than a request may take nobody can tell.
	w = newWeb(new(net.Dialer).DialContext)
	w.young = 0
	if err := ask(); !errors.Is(err, errUnused) || kindOf(err) != unused {
		t.Errorf("%v, of kind %s, of a connection that is older than any request", err, kindOf(err))
	}
}
