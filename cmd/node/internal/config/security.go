package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah/httpapi"
)

const (
	tlsPath        = "tls"
	certPath       = "tls.cert_file"
	keyPath        = "tls.key_file"
	clientCAPath   = "tls.client_ca_file"
	clientAuthPath = "tls.client_auth"
	minVersionPath = "tls.min_version"
	tokensFilePath = "tokens_file"

	maxConnections = 1_000_000
)

// RequireCertificate is the ClientAuth of `require`.
const RequireCertificate = tls.RequireAndVerifyClientCert

// TLS is the section of that name. It may be copied; slices and pools are shared.
type TLS struct {
	CertFile, KeyFile, ClientCAFile string
	ClientAuth                      tls.ClientAuthType // of a certificate of the client; without ClientCAFile none is asked for
	MinVersion                      uint16             // 0: TLS 1.2

	// What the files have. [Load] reads them.
	Certificate tls.Certificate // with its Leaf
	ClientCAs   *x509.CertPool  // nil: there is no ClientCAFile
	// ClientCAsUntil is when the first of ClientCAs expires.
	ClientCAsUntil time.Time
}

func (c *Config) tls() *TLS {
	if c.TLS == nil {
		c.TLS = &TLS{}
	}
	return c.TLS
}

// securityFields are those of who may call, and how.
var securityFields = []*field{
	{tokensFilePath, "tokens-file", text, "the name of a file with the tokens of callers", setText(func(c *Config) *string { return &c.TokensFile })},
	{"insecure_admin", "insecure-admin", boolean, "true or false", setBool(func(c *Config) *bool { return &c.InsecureAdmin })},
	{"max_connections", "max-connections", integer, "how many connections the HTTP API has at once, such as 10000", setConnections(func(c *Config) *int { return &c.MaxConnections })},
	{"max_connections_per_address", "max-connections-per-address", integer, "how many of them come from one address, such as 100; 0 for any number", setConnections(func(c *Config) *int { return &c.MaxConnectionsPerAddress })},
	{certPath, "tls-cert", text, "the name of a file with the certificate of the HTTP API, in PEM", setText(func(c *Config) *string { return &c.tls().CertFile })},
	{keyPath, "tls-key", text, "the name of a file with the key of that certificate, in PEM", setText(func(c *Config) *string { return &c.tls().KeyFile })},
	{clientCAPath, "tls-client-ca", text, "the name of a file with the authorities that sign certificates of clients, in PEM", setText(func(c *Config) *string { return &c.tls().ClientCAFile })},
	{clientAuthPath, "tls-client-auth", word, "require or request", setClientAuth},
	{minVersionPath, "tls-min-version", number, "1.2 or 1.3", setMinVersion},
}

func setConnections(at func(*Config) *int) func(*Config, []string) error {
	return func(c *Config, v []string) error {
		n, err := parseWhole(v[0], 0)
		if err == nil && n > maxConnections {
			err = fmt.Errorf("%d connections are more than a machine has: write at most %d", n, maxConnections)
		}
		*at(c) = int(n)
		return err
	}
}

func setClientAuth(c *Config, v []string) error {
	switch v[0] {
	case "require":
		c.tls().ClientAuth = RequireCertificate
	case "request":
		c.tls().ClientAuth = tls.VerifyClientCertIfGiven
	default:
		return fmt.Errorf("%.40q is neither require (no client without a certificate) nor request (a certificate that is given must be good)", v[0])
	}
	return nil
}

func setMinVersion(c *Config, v []string) error {
	switch v[0] {
	case "1.2":
		c.tls().MinVersion = tls.VersionTLS12
	case "1.3":
		c.tls().MinVersion = tls.VersionTLS13
	default:
		return fmt.Errorf("%.40q is neither 1.2 nor 1.3; older versions are broken", v[0])
	}
	return nil
}

// files are the names of the files whose content is part of the configuration, by their fields.
func (c *Config) files() map[string]*string {
	all := map[string]*string{tokensFilePath: &c.TokensFile}
	if t := c.TLS; t != nil {
		all[certPath], all[keyPath], all[clientCAPath] = &t.CertFile, &t.KeyFile, &t.ClientCAFile
	}
	for field, name := range all {
		if *name == "" {
			delete(all, field)
		}
	}
	return all
}

// checkTLS says what is missing in the section.
func (l *loader) checkTLS() {
	t := l.cfg.TLS
	if t == nil {
		return
	}
	if t.CertFile == "" && t.KeyFile == "" && t.ClientCAFile == "" && t.ClientAuth == 0 && t.MinVersion == 0 {
		l.cfg.TLS = nil
		return
	}
	var somewhere place
	for _, f := range securityFields {
		if at, ok := l.at[f.path]; ok && strings.HasPrefix(f.path, tlsPath+".") {
			somewhere = at
		}
	}
	for _, one := range []struct{ field, name, what string }{{certPath, t.CertFile, "the certificate"}, {keyPath, t.KeyFile, "the key of the certificate"}} {
		if one.name == "" {
			l.problem(somewhere, one.field, "is missing: TLS needs the file with %s, in PEM", one.what)
		}
	}
	switch {
	case t.ClientAuth != 0 && t.ClientCAFile == "":
		l.problem(l.at[clientAuthPath], clientAuthPath, "needs %s, the authorities that sign certificates of clients", clientCAPath)
	case t.ClientCAFile != "" && t.ClientAuth == 0:
		t.ClientAuth = RequireCertificate
	}
}

// extra is a file whose content is part of the configuration.
type extra struct {
	data  []byte
	err   error
	world bool // every user of the machine can read it
}

// readSecurity makes certificates and tokens of the files that read has.
func (l *loader) readSecurity(read func(name string) extra) {
	if t := l.cfg.TLS; t != nil {
		l.readTLS(t, read)
	}
	if l.cfg.TokensFile == "" {
		return
	}
	file, at := read(l.cfg.TokensFile), l.at[tokensFilePath]
	if file.err != nil {
		l.problem(at, tokensFilePath, "%v%s", file.err, ifAbsent(file.err, "its form is tokens: ["+strings.TrimPrefix(tokenForm, "- ")+"]"))
		return
	}
	plain := false
	l.cfg.Tokens, plain = l.readTokens(l.cfg.TokensFile, file.data)
	if plain && file.world {
		l.warn("%s: every user of this machine can read the tokens in it: chmod o-r, or write their sha256", l.cfg.TokensFile)
	}
}

func (l *loader) warn(format string, args ...any) {
	l.cfg.Warnings = append(l.cfg.Warnings, fmt.Sprintf(format, args...))
}

func (l *loader) readTLS(t *TLS, read func(name string) extra) {
	content := func(field, name string) (extra, bool) {
		if name == "" {
			return extra{}, false // told by checkTLS if it is needed
		}
		file := read(name)
		if file.err != nil {
			l.problem(l.at[field], field, "%v", file.err)
		}
		return file, file.err == nil
	}
	cert, hasCert := content(certPath, t.CertFile)
	key, hasKey := content(keyPath, t.KeyFile)
	if hasCert && hasKey {
		if key.world {
			l.warn("%s: every user of this machine can read the key of the certificate: chmod o-r", t.KeyFile)
		}
		pair, err := tls.X509KeyPair(cert.data, key.data)
		if err != nil {
			l.problem(l.at[certPath], certPath, "%s and %s are no certificate with its key: %v", t.CertFile, t.KeyFile, err)
		}
		t.Certificate = pair
	}
	if file, ok := content(clientCAPath, t.ClientCAFile); ok {
		var err error
		if t.ClientCAs, t.ClientCAsUntil, err = readCAs(file.data); err != nil {
			l.problem(l.at[clientCAPath], clientCAPath, "%s: %v", t.ClientCAFile, err)
		}
	}
}

// readCAs reads certificates, all of which must be good: x509.CertPool would leave out those that are not, and with them some clients.
func readCAs(data []byte) (pool *x509.CertPool, until time.Time, err error) {
	pool = x509.NewCertPool()
	for n := 1; ; n++ {
		var block *pem.Block
		block, data = pem.Decode(data)
		switch {
		case block == nil && n == 1:
			return nil, until, errors.New("has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")
		case block == nil:
			return pool, until, nil
		case block.Type != "CERTIFICATE":
			return nil, until, fmt.Errorf("has a %.40q in it: it must have certificates only", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, until, fmt.Errorf("certificate %d in it cannot be read: %w", n, err)
		}
		if pool.AddCert(cert); until.IsZero() || cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
}

// Access is who may call what.
func (c *Config) Access() httpapi.Access {
	return httpapi.Access{Tokens: c.Tokens, InsecureAdmin: c.InsecureAdmin}
}

// Same says that both show the same certificate and take the same ones.
func (t *TLS) Same(o *TLS) bool {
	return t.ClientAuth == o.ClientAuth && t.MinVersion == o.MinVersion &&
		slices.EqualFunc(t.Certificate.Certificate, o.Certificate.Certificate, bytes.Equal) &&
		(t.ClientCAs == nil) == (o.ClientCAs == nil) && (t.ClientCAs == nil || t.ClientCAs.Equal(o.ClientCAs))
}
