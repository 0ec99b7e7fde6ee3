package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair writes a certificate that is its own authority, and its key, as PEM.
func pair(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(until.Unix()), Subject: pkix.Name{CommonName: "n1"}, NotBefore: until.Add(-time.Hour), NotAfter: until,
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", raw)
}

// inDir writes files into a new directory.
func inDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

const (
	webToken   = "web-0123456789abcdef0123456789"
	opsDigest  = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	goodTokens = "tokens:\n  - {name: web, role: take, token: \"" + webToken + "\", limits: [api, \"login*\"]}\n  - name: ops\n    role: [take, admin]\n    sha256: " + opsDigest + "\n"
)

func TestCertificatesAndTokensAreReadFromFilesBesideTheConfiguration(t *testing.T) {
	until := time.Date(2031, 5, 1, 0, 0, 0, 0, time.UTC)
	cert, key := pair(t, until)
	other, _ := pair(t, until.Add(-time.Hour))
	dir := inDir(t, map[string]string{"c.pem": cert, "k.pem": key, "ca.pem": cert + other, "tokens": goodTokens,
		"jatah.yaml": "tls: {cert_file: c.pem, key_file: k.pem, client_ca_file: ca.pem, min_version: \"1.3\"}\ntokens_file: tokens\nmax_connections: 7\n"})
	cfg, err := Load(filepath.Join(dir, "jatah.yaml"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tl := cfg.TLS
	if tl.ClientAuth != tls.RequireAndVerifyClientCert || tl.MinVersion != tls.VersionTLS13 || !tl.Certificate.Leaf.NotAfter.Equal(until) ||
		tl.ClientCAs == nil || !tl.ClientCAsUntil.Equal(until.Add(-time.Hour)) {
		t.Errorf("%+v", tl)
	}
	if cfg.Tokens.Len() != 2 || cfg.MaxConnections != 7 || cfg.Access().Tokens != cfg.Tokens {
		t.Errorf("%+v", cfg)
	}
	if len(cfg.Warnings) != 0 {
		t.Errorf("warned: %q", cfg.Warnings)
	}
}

func TestFilesThatEverybodyCanReadAreWarnedOf(t *testing.T) {
	cert, key := pair(t, time.Now().Add(time.Hour))
	dir := inDir(t, map[string]string{"c.pem": cert, "k.pem": key, "tokens": goodTokens, "digests": "tokens: [{name: ops, role: admin, sha256: " + opsDigest + "}]"})
	for _, name := range []string{"c.pem", "k.pem", "tokens", "digests"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	environ := []string{"JATAH_TLS_CERT_FILE=" + at("c.pem"), "JATAH_TLS_KEY_FILE=" + at("k.pem"), "JATAH_TOKENS_FILE=" + at("tokens")}
	cfg, err := Load("", environ, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Warnings) != 2 || !strings.Contains(cfg.Warnings[0], "k.pem") || !strings.Contains(cfg.Warnings[1], "tokens") {
		t.Errorf("%q", cfg.Warnings)
	}
	if cfg, err = Load("", append(environ[:1:1], environ[1], "JATAH_TOKENS_FILE="+at("digests")), nil); err != nil || len(cfg.Warnings) != 1 {
		t.Errorf("digests: %v %q", err, cfg.Warnings)
	}
}

// Whatever is wrong, neither a token nor what may be one is shown.
func TestMistakesInTokensAreToldWithoutTheToken(t *testing.T) {
	for content, want := range map[string]string{
		"":                                 "there are none",
		webToken:                           "1:1: needs a list of tokens under `tokens:`",
		"- " + webToken:                    "1:1: needs a list of tokens",
		"tokens: " + webToken:              "1:9: tokens: needs a list",
		"tokens: []":                       "there are none",
		"tokens: [" + webToken + "]":       "tokens[0]: needs fields",
		"tokens:\n- {" + webToken + ": x}": "2:4: tokens[0]: has a field that is none; there are name, role, token",
		webToken + ": x":                   "has a field that is none",
		"tokens: [{name: a, role: take}]":  "needs either `token: `",
		"tokens: [{role: take, token: " + webToken + "}]":                                                            "has no name",
		"tokens: [{name: a, token: " + webToken + "}]":                                                               "has no role",
		"tokens: [{name: a, role: " + webToken + ", token: x}]":                                                      "tokens[0].role: must be take, read or admin",
		"tokens: [{name: a, role: take, token: " + webToken + ", sha256: " + opsDigest + "}]":                        "needs either",
		"tokens: [{name: a, role: take, token: web-0123456789abcdef}]":                                               "tokens[0].token: it has 20 characters, and 24 are needed",
		"tokens: [{name: a, role: take, sha256: " + webToken + "}]":                                                  "64 hexadecimal digits",
		"tokens: [{name: a b, role: take, token: " + webToken + "}]":                                                 "is no name",
		"tokens: [{name: a, role: [], token: " + webToken + "}]":                                                     "needs a list",
		"tokens: [{name: a, role: read, limits: [x], token: " + webToken + "}]":                                      "whose only role is take",
		"tokens: [{name: a, role: take, limits: x, token: " + webToken + "}]":                                        "needs a list",
		"tokens: [{name: a, role: take, token: " + webToken + "}, {name: a, role: read, sha256: " + opsDigest + "}]": `two are named "a"`,
		"tokens: [{name: a, role: take, token: " + webToken + "}, {name: b, role: read, token: " + webToken + "}]":   `"a" and "b" are the same secret`,
		"tokens: [{name: a, role: take, token: \"" + webToken + "}]":                                                 "not YAML",
		"tokens:\n- {name: a, role: take, token: " + webToken + ", token: " + webToken + "}":                         "given twice",
	} {
		file := write(t, filepath.Join(t.TempDir(), "tokens"), content)
		_, err := Load("", []string{"JATAH_TOKENS_FILE=" + file}, nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v, want %q", content, err, want)
		} else if strings.Contains(err.Error(), "0123456789abcdef") || strings.Contains(err.Error(), "1234567890123") {
			t.Errorf("%q: the token is shown: %v", content, err)
		}
	}
}

func TestMistakesInTLSAreRefused(t *testing.T) {
	cert, key := pair(t, time.Now().Add(time.Hour))
	_, otherKey := pair(t, time.Now().Add(time.Hour))
	dir := inDir(t, map[string]string{"c": cert, "k": key, "other": otherKey, "none": "hello", "mixed": cert + key})
	for content, want := range map[string]string{
		"tls: {cert_file: c}":                                                 "1:18: tls.key_file: is missing",
		"tls: {key_file: k}":                                                  "tls.cert_file: is missing",
		"tls: {min_version: 1.3}":                                             "tls.cert_file: is missing",
		"tls: {cert_file: c, key_file: other}":                                "1:18: tls.cert_file: " + dir + "/c and " + dir + "/other are no certificate with its key",
		"tls: {cert_file: none, key_file: k}":                                 "no certificate with its key",
		"tls: {cert_file: c, key_file: gone}":                                 "tls.key_file: open " + dir + "/gone",
		"tls: {cert_file: c, key_file: k, client_auth: require}":              "tls.client_auth: needs tls.client_ca_file",
		"tls: {cert_file: c, key_file: k, client_ca_file: none}":              "has no certificate in PEM",
		"tls: {cert_file: c, key_file: k, client_ca_file: mixed}":             `has a "PRIVATE KEY" in it`,
		"tls: {cert_file: c, key_file: k, client_ca_file: c, client_auth: x}": "neither require",
		"tls: {cert_file: c, key_file: k, min_version: 1.1}":                  "neither 1.2 nor 1.3",
		"tls: {cert: c}":                                                      `"cert" is not a field of tls`,
		"max_connections: -1":                                                 "max_connections",
		"max_connections: 9999999":                                            "at most 1000000",
		"tokens_file: gone":                                                   "1:14: tokens_file: open",
	} {
		file := write(t, filepath.Join(dir, "jatah.yaml"), content+"\n")
		if _, err := Load(file, nil, nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		} else if strings.Contains(err.Error(), "MHcC") || strings.Contains(err.Error(), "MIG") {
			t.Errorf("%s: a key is shown: %v", content, err)
		}
	}
	file := write(t, filepath.Join(dir, "jatah.yaml"), "tls: {cert_file: \"\", key_file: \"\"}\n")
	if cfg, err := Load(file, nil, nil); err != nil || cfg.TLS != nil {
		t.Errorf("empty names: %v %+v", err, cfg.TLS)
	}
}

func TestChangedCertificatesAndTokensChangeTheFingerprint(t *testing.T) {
	cert, key := pair(t, time.Now().Add(time.Hour))
	dir := inDir(t, map[string]string{"c": cert, "k": key, "t": goodTokens, "jatah.yaml": "tls: {cert_file: c, key_file: k}\ntokens_file: t\n"})
	s := Read(filepath.Join(dir, "jatah.yaml"), nil, nil)
	if got := strings.Join(s.Paths(), " "); !strings.Contains(got, "/c ") || !strings.Contains(got, "/k ") || !strings.HasSuffix(got, "/t") {
		t.Errorf("watched: %s", got)
	}
	if again := s.Again(); again.Fingerprint() != s.Fingerprint() {
		t.Error("nothing has changed")
	}
	for _, name := range []string{"c", "k", "t"} {
		before := s.Fingerprint()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString("\n")
		f.Close()
		if s = s.Again(); s.Fingerprint() == before {
			t.Errorf("a change of %s shows nowhere", name)
		}
	}
	before := s.Fingerprint()
	os.Remove(filepath.Join(dir, "t"))
	if s = s.Again(); s.Fingerprint() == before {
		t.Error("the file that is gone shows nowhere")
	}
	// Other names in the configuration are other files.
	write(t, filepath.Join(dir, "jatah.yaml"), "tokens_file: u\n")
	write(t, filepath.Join(dir, "u"), goodTokens)
	if cfg, err := s.Again().Config(); err != nil || cfg.Tokens.Len() != 2 || cfg.TLS != nil {
		t.Errorf("%v %+v", err, cfg)
	}
}

func TestVariablesOfClientsAreNoSettings(t *testing.T) {
	environ := []string{"JATAH_ADDR=https://x", "JATAH_TOKEN=x", "JATAH_CA=x", "JATAH_CERT=x", "JATAH_KEY=x"}
	if _, err := Merge(nil, environ, nil); err != nil {
		t.Error(err)
	}
	environ = append(environ, "JATAH_TOKEN_FILE=x")
	if _, err := Merge(nil, environ, nil); err == nil || !strings.Contains(err.Error(), "set JATAH_TOKENS_FILE, else unset it here") {
		t.Errorf("a name that may have been meant for another: %v", err)
	}
	if _, err := Merge(nil, environ, []Setting{{"--tokens-file", "tokens_file", "t"}}); err != nil {
		t.Error(err)
	}
}
