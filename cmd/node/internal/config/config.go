package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi"
)

const (
	// DefaultHTTP and DefaultBind are loopback: a node that was told nothing
	// is not open to the network.
	DefaultHTTP = "127.0.0.1:8080"
	DefaultBind = "127.0.0.1:7946"

	// maxFile bounds what is read as a configuration: ten thousand limits fit.
	maxFile = 4 << 20
)

// Config is what a node is to be. It may be copied; slices are shared.
type Config struct {
	// HTTP is where the API listens, host:port; port 0 takes a free one.
	HTTP string
	// Node is the configuration of the embedded node. Bind is empty, and the
	// node alone without a cluster port, as long as no field of cluster is set.
	Node jatah.Config
	// SecretFile is the file that holds the secrets, "" when they are given
	// directly or not at all. [Load] has read it into Node.Secrets.
	SecretFile string
	// LimitsDir is a directory with files of limits, "" if there is none. Their limits are in Limits.
	LimitsDir string
	// LogRefusals: a line for each limit that refuses, at most one a second.
	LogRefusals bool
	// TLS is how the API answers; nil: in plain HTTP.
	TLS *TLS
	// TokensFile has the tokens of callers, "" if they need none. [Load] has read it into Tokens.
	TokensFile string
	Tokens     *httpapi.Tokens
	// InsecureAdmin lets everybody do everything where there are no tokens.
	InsecureAdmin bool
	// MaxConnections and MaxConnectionsPerAddress bound the connections of the API. 0: the default of package httpapi, and any number.
	MaxConnections, MaxConnectionsPerAddress int
	// Warnings are what is allowed and not wise.
	Warnings []string
	// Limits are sorted as they were first named.
	Limits []jatah.Limit
	// Edge is nil if no field of it is set.
	Edge *Edge
}

// Document is a configuration file and its content.
type Document struct {
	Name string
	Data []byte
}

// Setting is a value given on the command line.
type Setting struct {
	Flag  string // as written, "--http"; messages name it
	Field string // path of the field, "http"
	Value string // lists: separated by commas
}

// Load is [Read] and what it amounts to: it reads the file (none if path is ""), the files of limits_dir, the environment in the form of
// os.Environ, and the flags, and then the secret's file if there is one.
func Load(path string, environ []string, flags []Setting) (Config, error) {
	return Read(path, environ, flags).Config()
}

// Merge is Load without any input or output: doc may be nil, neither a secret
// file nor limits_dir is read, and the node's name stays empty when it is not given.
func Merge(doc *Document, environ []string, flags []Setting) (Config, error) {
	return merge(doc, environ, flags).finish()
}

// readFile reads a regular file. Anything else is an error: a pipe may never have an end, and not even a beginning.
func readFile(path string) ([]byte, error) {
	// A pipe that nobody writes to blocks who opens it otherwise. It may have taken the place of a file at any moment, so look at what was opened.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: path, Err: errIrregular}
	}
	return readOpen(f, path)
}

var errIrregular = errors.New("it is no regular file; others than the configuration file and that of the secret must be, and these too once the node runs")

// readStream reads a file of any kind, once.
func readStream(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readOpen(f, path)
}

func readOpen(f *os.File, path string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB: is it the right file?", path, maxFile>>20)
	}
	return data, nil
}

// loader gathers values and mistakes from all layers.
type loader struct {
	cfg      Config
	at       map[string]place // where each field was last set
	limitAt  map[string]place // where each limit was last defined
	uses     []placedUse      // of the rules of the edge
	problems Problems

	mistakable bool // ClientTokenFile is set
	secretRead bool // cfg.Node.Secrets is what the file of secrets has
}

// merge reads the layers; limits are the files of limits_dir, which are of the layer of the file.
func merge(doc *Document, environ []string, flags []Setting, limits ...Document) *loader {
	l := &loader{
		cfg:     Config{HTTP: DefaultHTTP},
		at:      map[string]place{},
		limitAt: map[string]place{},
	}
	if doc != nil {
		l.readDocument(doc.Name, doc.Data)
	}
	for _, d := range limits {
		l.readLimits(d.Name, d.Data)
	}
	l.readEnvironment(environ)
	for _, s := range flags {
		l.setText(place{layer: inFlags, source: s.Flag}, s.Field, s.Value)
	}
	return l
}

func (l *loader) problem(at place, field, format string, args ...any) {
	l.problems = append(l.problems, Problem{
		Source: at.source, Line: at.line, Column: at.column,
		Field: field, Text: fmt.Sprintf(format, args...),
	})
}

// set gives a field its values, one unless the field is a list.
func (l *loader) set(at place, f *field, values []string) {
	if err := f.set(&l.cfg, values); err != nil {
		l.problem(at, f.path, "%s", plain(err))
		return
	}
	l.at[f.path] = at
}

// setText gives a field the value of a variable or flag.
func (l *loader) setText(at place, path, value string) {
	if path == limitsPath {
		l.setCompactLimits(at, value)
		return
	}
	f := fieldOf(nodeFields, path)
	if f == nil {
		l.problem(at, path, "is no field")
		return
	}
	values := []string{value}
	if f.kind == list {
		values = splitList(value, ",")
	}
	l.set(at, f, values)
}

// splitList cuts a list at a separator; spaces around an element and empty
// elements are dropped.
func splitList(s, separator string) []string {
	var out []string
	for part := range strings.SplitSeq(s, separator) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// finish applies the rules that concern more than one field.
func (l *loader) finish() (Config, error) {
	var clusterAt place
	for _, f := range nodeFields {
		if at, ok := l.at[f.path]; ok && strings.HasPrefix(f.path, "cluster.") && at.layer > clusterAt.layer {
			clusterAt = at
		}
	}
	if clusterAt.layer != 0 && l.cfg.Node.Bind == "" {
		l.cfg.Node.Bind = DefaultBind
	}
	l.checkSecret()
	l.checkTLS()
	l.checkTokenNames()
	l.orderLimits()
	l.checkEdge()
	if len(l.problems) > 0 {
		return Config{}, l.problems
	}
	return l.cfg, nil
}

// placePaths makes relative paths of a configuration file relative to that file, as that of the secret.
func (l *loader) placePaths() {
	for field, path := range map[string]*string{"state_dir": &l.cfg.Node.StateDir, limitsDirPath: &l.cfg.LimitsDir} {
		l.placePath(field, path)
	}
	for field, path := range l.cfg.files() {
		l.placePath(field, path)
	}
}

func (l *loader) placePath(field string, path *string) {
	if at := l.at[field]; at.layer == inFile && *path != "" && !filepath.IsAbs(*path) {
		*path = filepath.Join(filepath.Dir(at.source), *path)
	}
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
