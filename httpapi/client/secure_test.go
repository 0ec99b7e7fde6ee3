package client_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
)

// door lets those in who send one of its tokens, and writes down what was sent.
type door struct {
	mu    sync.Mutex
	good  map[string]bool
	heard []string
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sent := r.Header.Get("Authorization")
	d.heard = append(d.heard, sent)
	if !d.good[strings.TrimPrefix(sent, "Bearer ")] {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"type":"urn:jatah:problem:unauthenticated","title":"Unauthorized","status":401,"detail":"No."}`)
		return
	}
	fmt.Fprint(w, `{"allowed":true,"limit":"api","key":"u","cost":1,"remaining":1,"retry_after_ms":0,"reset_after_ms":0,"mode":"hybrid","source":"local"}`)
}

func (d *door) change(good ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good, d.heard = map[string]bool{}, nil
	for _, g := range good {
		d.good[g] = true
	}
}

func tokenFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	replace(t, path, content)
	return path
}

func replace(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

var one = client.Request{Limit: "api", Key: client.Key{"u"}, Cost: 1}

func TestATokenFromAFileIsReplacedWithoutAFailure(t *testing.T) {
	path := tokenFile(t, "first\n")
	synctest.Test(t, func(t *testing.T) {
		l, d := newLab(t), &door{}
		l.serve("n1", d)
		c, err := client.New(client.Config{Addrs: []string{"n1"}, HTTP: l.http, TokenFile: path, Retry: client.Retry{Attempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		take := func() error { _, err := c.Take(t.Context(), one); return err }
		d.change("first")
		if err := take(); err != nil {
			t.Fatal(err)
		}
		// The node forgets the old one, and only then is it noticed that there is another.
		replace(t, path, "second")
		d.change("second")
		if err := take(); err != nil || len(d.heard) != 2 {
			t.Errorf("after a refusal: %v, heard %q", err, d.heard)
		}
		// Without a refusal it takes a minute.
		replace(t, path, "third")
		d.change("second", "third")
		for _, step := range []struct {
			after time.Duration
			want  string
		}{{0, "Bearer second"}, {59 * time.Second, "Bearer second"}, {2 * time.Second, "Bearer third"}} {
			time.Sleep(step.after)
			if err := take(); err != nil || d.heard[len(d.heard)-1] != step.want {
				t.Errorf("%v later: %v, heard %q", step.after, err, d.heard)
			}
		}
		// A file that is gone, or nonsense, changes nothing; one refusal is not tried again for ever.
		replace(t, path, "two words")
		time.Sleep(2 * time.Minute)
		if err := take(); err != nil {
			t.Error(err)
		}
		d.change()
		os.Remove(path)
		if err := take(); !errors.Is(err, client.ErrUnauthenticated) || len(d.heard) != 1 || strings.Contains(err.Error(), "third") {
			t.Errorf("%v, heard %q", err, d.heard)
		}
	})
}

func TestATokenGoesNowhereElse(t *testing.T) {
	d := &door{}
	d.change("secret")
	other := httptest.NewServer(d)
	defer other.Close()
	var to string
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/here" {
			d.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	}))
	defer first.Close()
	for target, want := range map[string]int{other.URL + "/x": 0, "//" + other.Listener.Addr().String() + "/x": 0, "/here": 1, first.URL + "/here": 1} {
		d.change("secret")
		to = target
		c, err := client.New(client.Config{Addrs: []string{first.URL}, Token: "secret", Retry: client.Retry{Attempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Take(t.Context(), one)
		if len(d.heard) != want || (err == nil) != (want == 1) {
			t.Errorf("to %s: %v, heard %q", target, err, d.heard)
		}
	}
}

func TestSettingsOfTokensAndCertificatesThatAreRefused(t *testing.T) {
	path := tokenFile(t, "a b")
	for want, cfg := range map[string]client.Config{
		"both there":                 {Token: "x", TokenFile: "y"},
		"Token is no token":          {Token: "x\ny"},
		"TokenFile: open /nowhere":   {TokenFile: "/nowhere"},
		"TokenFile: what is in":      {TokenFile: path},
		"larger than a token":        {TokenFile: tokenFile(t, strings.Repeat("x", 5000))},
		"CAFile: open /nowhere":      {CAFile: "/nowhere"},
		"has no certificate":         {CAFile: path},
		"CertFile and KeyFile: open": {CertFile: "/nowhere"},
		"with HTTP set":              {CAFile: path, HTTP: http.DefaultClient},
	} {
		cfg.Addrs = []string{"n1"}
		if _, err := client.New(cfg); !errors.Is(err, client.ErrConfig) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "a b") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAClientTrustsTheAuthorityItIsGiven(t *testing.T) {
	d := &door{}
	d.change("secret")
	srv := httptest.NewUnstartedServer(d)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	ca := tokenFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	c, err := client.New(client.Config{Addrs: []string{srv.URL}, Token: "secret", CAFile: ca, Retry: client.Retry{Attempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Take(t.Context(), one); err != nil {
		t.Error(err)
	}
	c, err = client.New(client.Config{Addrs: []string{srv.URL}, Token: "secret", Retry: client.Retry{Attempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var unknown *tls.CertificateVerificationError
	if _, err := c.Take(t.Context(), one); !errors.As(err, &unknown) || len(d.heard) != 1 {
		t.Errorf("without it: %v, heard %q", err, d.heard)
	}
}

// roundTrip is a transport that fails as it says.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestWhoIsNotLetInHasDoneNothing: in TLS 1.3 a client learns that its certificate is not wanted when it has written its request, which nobody has read then.
func TestWhoIsNotLetInHasDoneNothing(t *testing.T) {
	for text, uncertain := range map[string]bool{
		"tls: certificate required": false, "tls: bad certificate": false, "tls: unknown certificate authority": false,
		"tls: bad record MAC": true,
	} {
		fails := roundTrip(func(r *http.Request) (*http.Response, error) {
			httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
			return nil, &net.OpError{Op: "remote error", Err: errors.New(text)}
		})
		c, err := client.New(client.Config{Addrs: []string{"https://n1"}, HTTP: &http.Client{Transport: fails}, Retry: client.Retry{Attempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Take(t.Context(), one); err == nil || errors.Is(err, client.ErrUncertain) != uncertain {
			t.Errorf("%s: %v", text, err)
		}
	}
}
