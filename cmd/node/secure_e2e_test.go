package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pair that does not fit together and tokens that cannot be read change nothing, not even what is right beside them; the next good ones count, while
// a connection that was open all the time goes on.
func TestCertificatesAndTokensOfARunningNode(t *testing.T) {
	needProcesses(t)
	a := newAuthority(t, t.TempDir(), "ca.pem")
	a.sign("n1", time.Now().Add(time.Hour))
	const first, second = "first-0123456789abcdef0123456789", "second-0123456789abcdef0123456789"
	file := func(name, content string) string {
		path := filepath.Join(a.dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokens := func(token string) { file("tokens", "tokens: [{name: ops, role: admin, token: "+token+"}]\n") }
	tokens(first)
	s := launch(t, "--http", "127.0.0.1:0", "--config", file("jatah.yaml",
		"tokens_file: tokens\ntls: {cert_file: n1.pem, key_file: n1-key.pem}\nlimits: [{name: api, rate: 10/s}]\n"))
	s.http, _ = s.waitLog("answering HTTP")["http"].(string)
	s.waitLog("ready")

	kept := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, ForceAttemptHTTP2: true}
	defer kept.CloseIdleConnections()
	// ask is the answer to who sends a token, and the number of the certificate that was shown.
	ask := func(tr *http.Transport, token string) (status int, serial int64) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+s.http+"/v1/limits", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	anew := func(token string) (int, int64) {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, DisableKeepAlives: true}
		return ask(tr, token)
	}
	if status, serial := ask(kept, first); status != 200 || serial != 2 {
		t.Fatalf("%d, certificate %d", status, serial)
	}
	if status, _ := ask(kept, second); status != 401 {
		t.Errorf("a token that is none: %d", status)
	}

	old, err := os.ReadFile(filepath.Join(a.dir, "n1-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	tokens(second)
	a.sign("n1", time.Now().Add(2*time.Hour))
	good, err := os.ReadFile(filepath.Join(a.dir, "n1-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	file("n1-key.pem", string(old))
	s.signal(syscall.SIGHUP)
	if text, _ := s.waitLog("configuration refused, nothing was changed")["error"].(string); !strings.Contains(text, "are no certificate with its key") {
		t.Errorf("the log says %q", text)
	}
	if status, serial := anew(first); status != 200 || serial != 2 {
		t.Errorf("after a broken pair: %d, certificate %d", status, serial)
	}
	file("n1-key.pem", string(good))
	s.signal(syscall.SIGHUP)
	s.waitLog("the certificate of the HTTP API was replaced")
	s.waitLog("configuration reloaded")
	if status, serial := anew(second); status != 200 || serial != 3 {
		t.Errorf("a new connection: %d, certificate %d", status, serial)
	}
	if status, serial := ask(kept, second); status != 200 || serial != 2 {
		t.Errorf("the connection that was open: %d, certificate %d", status, serial)
	}
	if status, _ := ask(kept, first); status != 401 {
		t.Errorf("the old token: %d", status)
	}
	if text := s.text(); strings.Contains(text, "0123456789abcdef") {
		t.Error("the log shows a token")
	}
	terminate(t, s)
}
