package httpapi

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a network in memory, for servers in bubbles.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// peerConn is a pipe that says from where it comes.
type peerConn struct {
	net.Conn
	peer string
}

func (c peerConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.peer))
}

// dial is a connection from an address.
func (p *pipes) dial(peer string) net.Conn {
	client, server := net.Pipe()
	p.conns <- peerConn{server, peer}
	return client
}

// closedAfter is how long it takes until the other side closes, whatever it says before.
func closedAfter(t *testing.T, c net.Conn, most time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	c.SetReadDeadline(begin.Add(most))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	return time.Since(begin)
}

func TestSlowClientsAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perMinute("api", 10, 10))
		defer a.node.Close()
		srv := NewServer(a.h, slog.New(slog.DiscardHandler))
		p := newPipes()
		go srv.Serve(p)
		defer srv.Close()
		slow := func(text, more string, every time.Duration) time.Duration {
			c := p.dial("192.0.2.1:9")
			defer c.Close()
			done := make(chan struct{})
			go func() { // drips for as long as it is listened to
				defer close(done)
				_, err := io.WriteString(c, text)
				for ; err == nil; _, err = io.WriteString(c, more) {
					time.Sleep(every)
				}
			}()
			took := closedAfter(t, c, time.Hour)
			c.Close()
			<-done
			return took
		}
		for _, s := range []struct {
			what, text, more string
			most             time.Duration
		}{
			{"nothing", "", "", 5 * time.Second},
			{"endless headers", "POST /v1/take HTTP/1.1\r\nHost: x\r\n", "X-A: b\r\n", 5 * time.Second},
			{"a slow first line", "POST /v1/t", "a", 5 * time.Second},
			{"a slow body", "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", " ", 15 * time.Second},
			{"slow chunks", "POST /v1/take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 15 * time.Second},
		} {
			if took := slow(s.text, s.more, time.Second); took < s.most-time.Second || took > s.most+2*time.Second {
				t.Errorf("%s: cut off after %v, want %v", s.what, took, s.most)
			}
		}
		idle := p.dial("192.0.2.1:9")
		defer idle.Close()
		go io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if took := closedAfter(t, idle, time.Hour); took != 2*time.Minute {
			t.Errorf("an idle connection was kept for %v", took)
		}
	})
}

func TestAHandshakeThatDoesNotComeEnds(t *testing.T) {
	cert := selfSigned(t)
	synctest.Test(t, func(t *testing.T) {
		srv := NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
		p := newPipes()
		go srv.ServeTLS(p, "", "")
		defer srv.Close()
		c := p.dial("192.0.2.1:9")
		defer c.Close()
		if took := closedAfter(t, c, time.Hour); took != 5*time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

func TestHeadersBeyondTheBoundAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
		p := newPipes()
		go srv.Serve(p)
		defer srv.Close()
		c := p.dial("192.0.2.1:9")
		defer c.Close()
		go func() {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n")
			for {
				if _, err := io.WriteString(c, "A: b\r\n"); err != nil {
					return
				}
			}
		}()
		var answer bytes.Buffer
		if _, err := io.Copy(&answer, c); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		if !strings.HasPrefix(answer.String(), "HTTP/1.1 431 ") {
			t.Errorf("%q", answer.String())
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newPipes()
		ln := NewListener(p, 4, 2, slog.New(slog.NewTextHandler(&log, nil)))
		srv := NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
		go srv.Serve(ln)
		defer srv.Close()
		open := func(c net.Conn) bool {
			c.SetReadDeadline(time.Now().Add(time.Second))
			_, err := c.Read(make([]byte, 1))
			return !errors.Is(err, io.EOF)
		}
		// The second is of the same 64 bits as the first, the third of others.
		var all []net.Conn
		for _, d := range []struct {
			peer string
			want bool
		}{
			{"[2001:db8::1]:1", true}, {"[2001:db8::2]:1", true}, {"[2001:db8::3]:1", false}, {"[2001:db8:0:1::1]:1", true},
			{"[::ffff:192.0.2.1]:5", true}, {"192.0.2.1:6", false}, {"198.51.100.1:1", false},
		} {
			c := p.dial(d.peer)
			defer c.Close()
			all = append(all, c)
			if got := open(c); got != d.want {
				t.Errorf("%s: open %v, want %v", d.peer, got, d.want)
			}
		}
		if s := ln.Stats(); s.Open != 4 || s.Accepted != 4 || s.RefusedByAddress != 1 || s.RefusedTotal != 2 {
			t.Errorf("%+v", s)
		}
		if strings.Count(log.String(), "\n") != 1 {
			t.Errorf("log: %s", log.String())
		}
		all[0].Close()
		synctest.Wait()
		if s := ln.Stats(); s.Open != 3 {
			t.Errorf("after a close: %+v", s)
		}
		c := p.dial("[2001:db8::9]:1")
		defer c.Close()
		if !open(c) {
			t.Error("the place was not given back")
		}
		srv.Close()
		synctest.Wait()
		if s := ln.Stats(); s.Open != 0 || len(ln.by) != 0 {
			t.Errorf("after the end: %+v, %v", s, ln.by)
		}
	})
}

func TestWhatNetHTTPReportsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		srv := NewServer(http.NotFoundHandler(), slog.New(slog.NewTextHandler(&log, nil)))
		for range 1000 {
			srv.ErrorLog.Print("http: TLS handshake error")
		}
		if n := strings.Count(log.String(), "\n"); n != mostErrors {
			t.Errorf("%d lines", n)
		}
		log.Reset()
		time.Sleep(time.Second)
		srv.ErrorLog.Print("http: later")
		if !strings.Contains(log.String(), `level=WARN msg="http: later" others=990`) {
			t.Error(log.String())
		}
	})
}

func TestServeSpeaksTLSAndHTTP2WithATLSConfig(t *testing.T) {
	cert := selfSigned(t)
	srv := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), nil)
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, srv, ln, time.Minute) }()
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	resp, err := (&http.Client{Transport: tr}).Get("https://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "HTTP/2.0" {
		t.Errorf("%q", body)
	}
	tr.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
