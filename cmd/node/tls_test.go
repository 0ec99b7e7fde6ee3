package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi"
)

// authority signs certificates for tests.
type authority struct {
	t      *testing.T
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

func newAuthority(t *testing.T, dir, file string) *authority {
	a := &authority{t: t, dir: dir, serial: 1}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: file}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, form, form, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.write(file, "CERTIFICATE", der)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) write(file, kind string, der []byte) {
	if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// sign writes name.pem and name-key.pem.
func (a *authority) sign(name string, until time.Time) (serial int64) {
	a.serial++
	form := &x509.Certificate{SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, form, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+"-key.pem", "PRIVATE KEY", raw)
	return a.serial
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// load reads a configuration in the folder of the authority.
func (a *authority) load(yaml string) (config.Config, error) {
	file := filepath.Join(a.dir, "jatah.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return config.Load(file, nil, nil)
}

func (a *authority) mustLoad(yaml string) config.Config {
	a.t.Helper()
	cfg, err := a.load(yaml)
	if err != nil {
		a.t.Fatal(err)
	}
	return cfg
}

func TestANewCertificateIsShownToNewConnectionsOnly(t *testing.T) {
	a := newAuthority(t, t.TempDir(), "ca.pem")
	const yaml = "tls: {cert_file: n1.pem, key_file: n1-key.pem}\n"
	first := a.sign("n1", time.Now().Add(time.Hour))
	c := newCertificates(a.mustLoad(yaml).TLS, slog.New(slog.DiscardHandler))
	srv := httpapi.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }), slog.New(slog.DiscardHandler))
	srv.TLSConfig = c.config()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go serveOn(srv, ln)
	defer srv.Close()
	// ask is the serial number of the certificate that the server shows.
	ask := func(tr *http.Transport) int64 {
		t.Helper()
		resp, err := (&http.Client{Transport: tr}).Get("https://" + ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if string(body) != "HTTP/2.0" {
			t.Errorf("spoken is %q", body)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	pool := func() *http.Transport {
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, ForceAttemptHTTP2: true}
	}
	old := pool()
	defer old.CloseIdleConnections()
	if got := ask(old); got != first {
		t.Fatalf("serial %d, want %d", got, first)
	}
	second := a.sign("n1", time.Now().Add(2*time.Hour))
	change, err := c.prepare(a.mustLoad(yaml))
	if err != nil {
		t.Fatal(err)
	}
	if fresh := pool(); ask(fresh) != first {
		t.Error("preparing a change has made it")
	}
	change()
	fresh := pool()
	defer fresh.CloseIdleConnections()
	if got := ask(fresh); got != second {
		t.Errorf("a new connection: serial %d, want %d", got, second)
	}
	if got := ask(old); got != first {
		t.Errorf("the old connection was not kept: serial %d", got)
	}
	for _, v := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: a.pool(), MinVersion: v, MaxVersion: v})
		if err == nil {
			conn.Close()
			t.Errorf("%s is spoken", tls.VersionName(v))
		}
	}
	// A pair that does not fit together is refused before it gets here.
	if err := os.Rename(filepath.Join(a.dir, "ca.pem"), filepath.Join(a.dir, "n1.pem")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.load(yaml); err == nil || !strings.Contains(err.Error(), "no certificate with its key") {
		t.Errorf("a broken pair: %v", err)
	}
}

func TestCertificatesOfClients(t *testing.T) {
	dir := t.TempDir()
	a, other := newAuthority(t, dir, "ca.pem"), newAuthority(t, dir, "other.pem")
	a.sign("n1", time.Now().Add(time.Hour))
	a.sign("good", time.Now().Add(time.Hour))
	a.sign("old", time.Unix(1000, 0))
	other.sign("bad", time.Now().Add(time.Hour))
	for auth, want := range map[string]map[string]bool{
		"":                       {"": false, "good": true, "bad": false, "old": false},
		", client_auth: require": {"": false, "good": true, "bad": false, "old": false},
		", client_auth: request": {"": true, "good": true, "bad": false, "old": false},
	} {
		c := newCertificates(a.mustLoad("tls: {cert_file: n1.pem, key_file: n1-key.pem, client_ca_file: ca.pem"+auth+"}\n").TLS, slog.New(slog.DiscardHandler))
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		srv.TLS = c.config()
		srv.StartTLS()
		for client, may := range want {
			t.Run(auth+client, func(t *testing.T) {
				cfg := &tls.Config{RootCAs: a.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
				if client != "" {
					pair, err := tls.LoadX509KeyPair(filepath.Join(dir, client+".pem"), filepath.Join(dir, client+"-key.pem"))
					if err != nil {
						t.Fatal(err)
					}
					cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // also to who does not know its authority
				}
				for range 2 {
					tr := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}
					resp, err := (&http.Client{Transport: tr}).Get(srv.URL)
					if (err == nil) != may {
						t.Errorf("error %v", err)
					}
					if err == nil {
						if resp.Body.Close(); resp.TLS.DidResume {
							t.Error("a session was resumed, for which no certificate is shown")
						}
					}
				}
			})
		}
		srv.Close()
	}
}

func TestCertificatesThatExpireAreToldEachDay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		a := newAuthority(t, dir, "ca.pem")
		begin := time.Now()
		until := begin.Add(15*24*time.Hour + time.Hour)
		a.sign("n1", until)
		c := newCertificates(a.mustLoad("tls: {cert_file: n1.pem, key_file: n1-key.pem, client_ca_file: ca.pem}\n").TLS, slog.New(slog.NewTextHandler(&log, nil)))
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); <-done }()
		go func() { c.run(ctx); close(done) }()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := log.String(); got != "" {
			t.Errorf("15 days before: %s", got)
		}
		time.Sleep(24*time.Hour + time.Second)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "certificate=server") || !strings.Contains(got, "left=313h0m0s") {
			t.Errorf("13 days before: %s", got)
		}
		time.Sleep(14 * 24 * time.Hour)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 15 || strings.Count(got, "level=ERROR") != 1 {
			t.Errorf("afterwards: %s", got)
		}
		reg := prometheus.NewRegistry()
		reg.MustRegister(c)
		families, err := reg.Gather()
		if err != nil || len(families) != 1 || len(families[0].Metric) != 2 || families[0].Metric[1].GetGauge().GetValue() != float64(until.Unix()) {
			t.Errorf("%v %v", err, families)
		}
	})
}

func TestAdviceOnWhoMayCall(t *testing.T) {
	some := &httpapi.Tokens{}
	https := &config.TLS{}
	both := &config.TLS{ClientAuth: config.RequireCertificate}
	for _, c := range []struct {
		cfg  config.Config
		want string
	}{
		{config.Config{HTTP: "127.0.0.1:1"}, ""},
		{config.Config{HTTP: "localhost:1", InsecureAdmin: true}, ""},
		{config.Config{HTTP: "[::1]:1", Tokens: some}, ""},
		{config.Config{HTTP: ":1"}, "no tokens_file: whoever reaches"},
		{config.Config{HTTP: "10.0.0.1:1"}, "no tokens_file: whoever reaches"},
		{config.Config{HTTP: "0.0.0.0:1", TLS: https}, "no tokens_file: whoever reaches"},
		{config.Config{HTTP: "0.0.0.0:1", TLS: both}, ""},
		{config.Config{HTTP: "n1.example:1", InsecureAdmin: true}, "insecure_admin: whoever reaches"},
		{config.Config{HTTP: "10.0.0.1:1", Tokens: some}, "tokens without tls"},
		{config.Config{HTTP: "10.0.0.1:1", Tokens: some, TLS: https}, ""},
		{config.Config{HTTP: "127.0.0.1:1", Warnings: []string{"x"}}, "x"},
	} {
		if got := strings.Join(advice(c.cfg), "|"); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: %q, want %q", c.cfg, got, c.want)
		}
	}
}

// secured is a node's API behind TLS with tokens, in this process.
func secured(t *testing.T, a *authority, yaml string) (url string, api *httpapi.Handler) {
	t.Helper()
	cfg := a.mustLoad(yaml)
	quiet := slog.New(slog.DiscardHandler)
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	if _, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerMinute(10)}); err != nil {
		t.Fatal(err)
	}
	api = httpapi.New(node, httpapi.Config{Logger: quiet, Access: cfg.Access()})
	srv := httptest.NewUnstartedServer(api)
	srv.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelError)
	srv.TLS = newCertificates(cfg.TLS, quiet).config()
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL, api
}

func TestCommandsSendTokensAndSayWhatHelps(t *testing.T) {
	a := newAuthority(t, t.TempDir(), "ca.pem")
	a.sign("n1", time.Now().Add(time.Hour))
	a.sign("me", time.Now().Add(time.Hour))
	const web, ops = "web-0123456789abcdef0123456789", "ops-0123456789abcdef0123456789"
	file := func(name, content string) string {
		path := filepath.Join(a.dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("tokens", "tokens: [{name: web, role: take, token: "+web+"}, {name: ops, role: admin, token: "+ops+"}]")
	webFile, opsFile := file("web", web+"\n"), file("ops", ops)
	url, _ := secured(t, a, "tls: {cert_file: n1.pem, key_file: n1-key.pem}\ntokens_file: tokens\n")
	strict, _ := secured(t, a, "tls: {cert_file: n1.pem, key_file: n1-key.pem, client_ca_file: ca.pem}\ntokens_file: tokens\n")
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	ca, cert, key := filepath.Join(a.dir, "ca.pem"), filepath.Join(a.dir, "me.pem"), filepath.Join(a.dir, "me-key.pem")
	env := func(more ...string) []string { return append([]string{"JATAH_ADDR=" + url, "JATAH_CA=" + ca}, more...) }
	for _, c := range []struct {
		environ []string
		args    string
		code    int
		want    string
	}{
		{env("JATAH_TOKEN=" + web), "take api u", 0, "allowed: api u"},
		{env("JATAH_TOKEN_FILE=" + webFile), "take api u", 0, "allowed: api u"},
		{env(), "take --token-file " + webFile + " api u", 0, "allowed: api u"},
		{env("JATAH_TOKEN=" + ops), "take --token-file " + webFile + " api u", 0, "allowed: api u"},
		{nil, "cluster --addr " + url + " --ca " + ca + " --token-file " + opsFile, 0, "as "},
		{env(), "limits --addr " + strict + " --token-file " + opsFile + " --cert " + cert + " --key " + key, 0, "api "},
		{env("JATAH_TOKEN="+ops, "JATAH_CERT="+cert, "JATAH_KEY="+key), "top --addr " + strict, 0, "as 1 of 1 nodes"},

		{env(), "take api u", 1, "401 Unauthorized: This node wants a token: send one header Authorization: Bearer ... with one that is in its tokens_file; name a file with a token by --token-file or JATAH_TOKEN_FILE"},
		{env("JATAH_TOKEN=x-" + web), "take api u", 1, "This node knows no such token"},
		{env("JATAH_TOKEN=" + web), "limits", 1, "needs a token with the role read; that of \"web\" has take"},
		{env("JATAH_TOKEN=" + web), "limits --delete api", 1, "needs a token with the role admin"},
		{env("JATAH_TOKEN="+web, "JATAH_TOKEN_FILE="+webFile), "top", 1, "JATAH_TOKEN and JATAH_TOKEN_FILE are both there"},
		{env("JATAH_TOKEN=a b"), "top", 1, "JATAH_TOKEN is no token"},
		{env(), "top --token-file " + ca, 1, "--token-file: what is in " + ca + " is no token"},
		{env(), "top --token-file /nowhere", 1, "--token-file: open /nowhere"},
		{env(), "top --ca " + webFile, 1, "--ca: " + webFile + " has no certificate"},
		{env(), "top --cert " + cert + " --key " + ca, 1, "--cert and --key: "},
		{env(), "top --cert " + cert, 1, "--cert and --key: "},
		{nil, "top --addr ftp://x", 1, "--addr: \"ftp://x\" is no address"},
		{nil, "top --addr " + url, 1, "by --ca"},
		{nil, "top --addr " + strings.Replace(url, "https", "http", 1), 1, "answers by TLS only: write https:// in --addr"},
		{nil, "top --addr " + strings.Replace(plain.URL, "http", "https", 1), 1, "does not answer by TLS: write http:// in --addr"},
		{env("JATAH_TOKEN=" + ops), "top --addr " + strict, 1, "by --cert and --key"},
	} {
		code, out, err := runCommand(c.environ, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+err, c.want) {
			t.Errorf("%q %s: code %d, %s%s; want %d, %q", c.environ, c.args, code, out, err, c.code, c.want)
		}
		if strings.Contains(out+err, "0123456789abcdef") {
			t.Errorf("%s shows the token: %s%s", c.args, out, err)
		}
	}
}
