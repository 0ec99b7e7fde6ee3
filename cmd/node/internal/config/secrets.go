package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
)

func setSecret(c *Config, v []string) error {
	if v[0] == "" {
		c.Node.Secrets = nil
		return nil
	}
	secret, err := decodeSecret(v[0])
	c.Node.Secrets = [][]byte{secret}
	return err
}

func setSecrets(c *Config, v []string) error {
	c.Node.Secrets = nil
	for i, text := range v {
		if err := addSecret(&c.Node.Secrets, text); err != nil {
			return fmt.Errorf("secret %d %w", i+1, err)
		}
	}
	return nil
}

// ParseSecrets reads the content of a file of secrets: one in base64 on each line; empty lines, and what follows a #, do not count. The
// first is used, all are accepted. An error names the line and never what is on it.
func ParseSecrets(data []byte) (secrets [][]byte, err error) {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		text, _, _ := bytes.Cut(text, []byte("#"))
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if err := addSecret(&secrets, string(text)); err != nil {
			return nil, fmt.Errorf("line %d %w", line, err)
		}
	}
	if len(secrets) == 0 {
		return nil, errors.New("has no secret in it: write one on a line of its own (make one with: jatah key new)")
	}
	return secrets, nil
}

func addSecret(secrets *[][]byte, text string) error {
	secret, err := decodeSecret(text)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(*secrets, func(o []byte) bool { return bytes.Equal(o, secret) }):
		return errors.New("is the same secret as one before it: keep one of them")
	case len(*secrets) == jatah.MaxSecrets:
		return fmt.Errorf("is one secret too many: at most %d are accepted at once", jatah.MaxSecrets)
	}
	*secrets = append(*secrets, secret)
	return nil
}

func decodeSecret(s string) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(s)
	// The value itself must not reach a log through the message.
	const want = "16, 24 or 32 bytes in base64 (make one with: jatah key new)"
	if err != nil {
		return nil, errors.New("is not base64: it must be " + want)
	}
	switch len(secret) {
	case 16, 24, 32:
		return secret, nil
	}
	return nil, fmt.Errorf("has %d bytes: it must be %s", len(secret), want)
}

// secretFrom is which of the three fields counts: that of the last layer that has one; "" if none has. A second one of the same layer is a mistake.
func (l *loader) secretFrom() (path, second string) {
	for _, p := range []string{secretPath, secretsPath, secretFilePath} {
		at, ok := l.at[p]
		switch {
		case !ok:
		case path == "" || at.layer > l.at[path].layer:
			path, second = p, ""
		case at.layer == l.at[path].layer:
			second = p
		}
	}
	return path, second
}

// checkSecret settles which of the fields counts, and refuses a port that is open to the network without any.
func (l *loader) checkSecret() {
	path, second := l.secretFrom()
	if second != "" {
		l.problem(l.at[second], second, "%s is given too, at %s: keep one of the two", path, l.at[path])
	}
	if path != secretFilePath {
		l.cfg.SecretFile = ""
	} else if !l.secretRead {
		l.cfg.Node.Secrets = nil
	}
	if l.cfg.Node.Insecure || len(l.cfg.Node.Secrets) > 0 || l.cfg.SecretFile != "" {
		return
	}
	for _, one := range [][2]string{{"cluster.bind", l.cfg.Node.Bind}, {"cluster.advertise", l.cfg.Node.Advertise}} {
		field, address := one[0], one[1]
		at, ok := l.at[field]
		if !ok || address == "" || isLoopback(address) {
			continue
		}
		l.problem(at, field, "%s can be reached from the network, where anyone could join: "+
			"set cluster.secret (make one with: jatah key new) or cluster.secret_file, "+
			"use 127.0.0.1, or say insecure: true under cluster", address)
		return // one of the two is enough to say it
	}
}

// secretFile is the file of secrets that counts, "" if there is none. A relative path in a configuration file
// is relative to that file, so that `check` and `serve` agree wherever they
// are started.
func (l *loader) secretFile() string {
	if path, second := l.secretFrom(); path != secretFilePath || second != "" {
		return ""
	}
	path, at := l.cfg.SecretFile, l.at[secretFilePath]
	if at.layer == inFile && path != "" && !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(at.source), path)
	}
	return path
}

// readSecret reads the file of secrets.
func (l *loader) readSecret(read func(path string) ([]byte, error)) {
	path := l.secretFile()
	if path == "" {
		return
	}
	l.cfg.SecretFile = path
	at := l.at[secretFilePath]
	data, err := read(path)
	if err != nil {
		l.problem(at, secretFilePath, "%v%s", err, ifAbsent(err, "copy it from another node, or make the first with: (umask 077; jatah key new > "+path+")"))
		return
	}
	secrets, err := ParseSecrets(data)
	if err != nil {
		l.problem(at, secretFilePath, "%s: %v", path, err)
		return
	}
	l.cfg.Node.Secrets, l.secretRead = secrets, true
}

// readSecretFile reads the file of secrets that counts, unless it is one that can be read once only.
func (s *Sources) readSecretFile() {
	s.secret, s.secretErr = nil, nil
	if s.secretFile == "" || s.secretFile == s.streams.secret || !s.streams.ended && isStream(s.secretFile) {
		return
	}
	s.secret, s.secretErr = readFile(s.secretFile)
}

// secretWatched says whether the file of secrets is one that may change.
func (s *Sources) secretWatched() bool {
	return s.secretFile != "" && s.secretFile != s.streams.secret && !isStream(s.secretFile)
}

// hidden says whether what is given for a field must not be seen in messages.
func hidden(path string) bool { return strings.HasPrefix(path, secretPath) && path != secretFilePath }
