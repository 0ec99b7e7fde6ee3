package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// tokenAge is how old a token from a file gets before that is read again.
	tokenAge = time.Minute
	// maxTokenFile bounds what is read as a token, in bytes.
	maxTokenFile = 4096
	// mostRedirects is what net/http follows.
	mostRedirects = 10
)

// credential is the token that a client sends. Safe for concurrent use.
type credential struct {
	file string // "": it never changes

	mu   sync.Mutex
	head []string // the header's value
	read time.Time
}

// newCredential is nil if no token is to be sent.
func newCredential(cfg *Config) (*credential, error) {
	switch {
	case cfg.Token != "" && cfg.TokenFile != "":
		return nil, fmt.Errorf("%w: Token and TokenFile are both there; keep one of them", ErrConfig)
	case cfg.Token != "":
		head, err := bearer(cfg.Token)
		if err != nil {
			return nil, fmt.Errorf("%w: Token %w", ErrConfig, err)
		}
		return &credential{head: head}, nil
	case cfg.TokenFile == "":
		return nil, nil
	}
	head, err := readToken(cfg.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("%w: TokenFile: %w", ErrConfig, err)
	}
	return &credential{file: cfg.TokenFile, head: head, read: time.Now()}, nil
}

// bearer is a header's value. The error does not show the token.
func bearer(token string) ([]string, error) {
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("is no token: it must be one word of ASCII, as it stands in the tokens_file of the nodes")
	}
	return []string{"Bearer " + token}, nil
}

func readToken(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(data) > maxTokenFile {
		return nil, fmt.Errorf("%s is larger than a token; it is to have nothing but that", file)
	}
	head, err := bearer(string(bytes.TrimSpace(data)))
	if err != nil {
		return nil, fmt.Errorf("what is in %s %w", file, err)
	}
	return head, nil
}

// header is what to send now.
func (c *credential) header() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.file != "" && now.Sub(c.read) >= tokenAge {
		c.again(now)
	}
	return c.head
}

// renewed says whether the file has another token than the one that was refused, which it has when tokens are being replaced.
func (c *credential) renewed(refused []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != "" && c.head[0] == refused[0] {
		c.again(time.Now())
	}
	return c.head[0] != refused[0]
}

// again reads the file. One that cannot be read now changes nothing.
func (c *credential) again(now time.Time) {
	c.read = now
	if head, err := readToken(c.file); err == nil && head[0] != c.head[0] {
		c.head = head
	}
}

// transport is the client's own pool, with the authorities and certificates of cfg if there are any.
func transport(cfg *Config) (http.RoundTripper, error) {
	if cfg.CAFile == "" && cfg.CertFile == "" && cfg.KeyFile == "" {
		return newPool(nil), nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		data, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: CAFile: %w", ErrConfig, err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("%w: CAFile: %s has no certificate in PEM", ErrConfig, cfg.CAFile)
		}
	}
	if cfg.CertFile != "" || cfg.KeyFile != "" {
		read := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("CertFile and KeyFile: %w", err)
			}
			return &pair, nil
		}
		if _, err := read(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		// Each connection reads them, so that they can be replaced.
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	}
	return newPool(t), nil
}

// withoutLeaks is a client that follows no redirect which would carry a token to another host, or out of TLS.
func withoutLeaks(c *http.Client) *http.Client {
	own, then := *c, c.CheckRedirect
	own.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		from := via[0].URL
		switch {
		case r.URL.Host != from.Host || from.Scheme == "https" && r.URL.Scheme != "https":
			return http.ErrUseLastResponse
		case then != nil:
			return then(r, via)
		case len(via) >= mostRedirects:
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}
	return &own
}
