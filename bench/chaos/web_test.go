package chaos

import (
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
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+ln.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web{new(http.Transport)}.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	if err == nil || errors.Is(err, errUnused) || kindOf(err) != "connection broken" {
		t.Errorf("%v, of kind %s", err, kindOf(err))
	}
}
