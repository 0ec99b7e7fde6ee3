package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

const limitsDirPath = "limits_dir"

// Sources are the files of a configuration as they were at one moment, with the environment and flags that go with them. Made by [Read]; not
// for use by several goroutines.
type Sources struct {
	environ []string
	flags   []Setting

	path    string // "": no file
	main    *Document
	mainErr error
	// fixed says that the file can be read once only, as a pipe can.
	fixed   bool
	streams *streams

	secretFile string // that counts; "": none
	secret     []byte // its content, unless it can be read once only
	secretErr  error

	dir     string // "": no limits_dir
	dirAt   place
	limits  []Document // of the directory, in the order of their names
	entries []string   // what else there is to watch: the names of all files in it that count
	// extras are the files with certificates and tokens, by their names.
	extras map[string]extra
	// unread are the mistakes of the directory itself.
	unread  Problems
	lacking error // what kept some of it from being read is not about the files; nil: nothing did

	limitAt map[string]place // as Config found them
	fieldAt map[string]place // the same of fields
}

// streams are what the readings of one configuration know of files that can be read once only.
type streams struct {
	secret string // the name of the secret's file, if it is one
	has    []byte // what was in it
	ended  bool   // the node was started: no more of them are read
}

// Read reads the file (none if path is ""), and the files of limits_dir, if that is set in it, in the environment or by a flag. What cannot be
// read is told by Config. Where there is a directory all files are read until two readings in a row are the same, so that they go together
// also when they are replaced meanwhile.
func Read(path string, environ []string, flags []Setting) *Sources {
	s := &Sources{path: path, environ: environ, flags: flags, streams: &streams{}}
	if path != "" {
		if s.fixed = isStream(path); s.fixed {
			s.readMain(readStream)
		} else {
			s.readMain(readFile)
		}
	}
	s.findFiles()
	s.readSecretFile()
	s.readDir()
	s.readExtras()
	for range mostReadings {
		again := s.Again()
		if s.dir == "" && len(s.extras) == 0 || again.Fingerprint() == s.Fingerprint() {
			break
		}
		s = again
	}
	return s
}

// mostReadings bounds the attempts: whoever changes files without end gets what is there.
const mostReadings = 10

// Again reads the same files once more, where they are now.
func (s *Sources) Again() *Sources {
	n := &Sources{path: s.path, environ: s.environ, flags: s.flags, fixed: s.fixed, streams: s.streams, main: s.main, mainErr: s.mainErr,
		secretFile: s.secretFile, dir: s.dir, dirAt: s.dirAt, extras: s.extras}
	if s.path != "" && !s.fixed {
		n.readMain(readFile)
	}
	if !bytes.Equal(n.content(), s.content()) { // reading YAML is more work than reading files
		n.findFiles()
	}
	n.readSecretFile()
	n.readDir()
	n.readExtras()
	return n
}

func (s *Sources) content() []byte {
	if s.main == nil {
		return nil
	}
	return s.main.Data
}

// isStream says that a file is there and can be read once only, as a pipe can.
func isStream(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

func (s *Sources) readMain(read func(path string) ([]byte, error)) {
	s.main, s.mainErr = nil, nil
	data, err := read(s.path)
	if err != nil {
		s.mainErr = fmt.Errorf("config: %w%s", err, ifAbsent(err, "name one that is there, or leave it out and say all by flags and variables"))
		return
	}
	s.main = &Document{Name: s.path, Data: data}
}

// ifAbsent is what to do about a file that is not there; "" if something else is wrong with it.
func ifAbsent(err error, remedy string) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "; " + remedy
	}
	return ""
}

// findFiles finds out which directory and other files count, from all that is said about them.
func (s *Sources) findFiles() {
	l := merge(s.main, s.environ, s.flags)
	l.placePaths()
	s.dir, s.dirAt = l.cfg.LimitsDir, l.at[limitsDirPath]
	s.secretFile = l.secretFile()
	s.extras = map[string]extra{}
	for _, name := range l.cfg.files() {
		s.extras[*name] = extra{}
	}
}

// readExtras reads the other files anew.
func (s *Sources) readExtras() {
	before := s.extras
	s.extras = make(map[string]extra, len(before))
	for name := range before {
		var one extra
		one.data, one.err = readFile(name)
		if info, err := os.Stat(name); err == nil && runtime.GOOS != "windows" {
			one.world = info.Mode().Perm()&0o004 != 0
		}
		s.extras[name] = one
	}
}

// readDir reads the directory as a config map is mounted: limits.yaml is a link to ..data/limits.yaml, and ..data to a hidden folder that has a
// new name each time. So links are followed, hidden names are not read, and a file that has two names is read once.
func (s *Sources) readDir() {
	s.limits, s.entries, s.unread, s.lacking = nil, nil, nil, nil
	if s.dir == "" {
		return
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.cannotRead(s.dirAt.source, s.dirAt, limitsDirPath, err, "make the directory, or remove the setting")
		return
	}
	var seen []os.FileInfo
	if info, err := os.Stat(s.path); s.path != "" && err == nil {
		seen = append(seen, info)
	}
	for _, e := range entries {
		if !counts(e.Name()) {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		s.entries = append(s.entries, path)
		info, err := os.Stat(path)
		if err != nil {
			s.cannotRead(path, place{}, "", err, "mend or remove it")
			continue
		}
		if !info.Mode().IsRegular() || sameAsOne(seen, info) {
			continue
		}
		seen = append(seen, info)
		data, err := readFile(path)
		if err != nil {
			s.cannotRead(path, place{}, "", err, "mend or remove it")
			continue
		}
		s.limits = append(s.limits, Document{Name: path, Data: data})
	}
}

// readSecret reads the secret's file. What came out of a stream when the node was started is what it has; one that comes later is refused like
// every file that is no regular one, since nobody may ever write to it.
func (s *Sources) readSecret(path string) ([]byte, error) {
	switch {
	case path == s.streams.secret:
		return s.streams.has, nil
	case path == s.secretFile && (s.secret != nil || s.secretErr != nil):
		return s.secret, s.secretErr
	case s.streams.ended || !isStream(path):
		return readFile(path)
	}
	data, err := readStream(path)
	if err == nil {
		s.streams.secret, s.streams.has = path, data
	}
	return data, err
}

// counts says whether a file of this name in limits_dir is read. What editors leave beside a file has other endings, or a dot before it.
func counts(name string) bool {
	ext := filepath.Ext(name)
	return (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(name, ".")
}

func sameAsOne(seen []os.FileInfo, info os.FileInfo) bool {
	for _, other := range seen {
		if os.SameFile(other, info) {
			return true
		}
	}
	return false
}

func (s *Sources) cannotRead(source string, at place, field string, err error, remedy string) {
	if lacks(err) {
		s.lacking = err
	}
	var p *fs.PathError
	text := err.Error()
	if errors.As(err, &p) {
		text = "cannot be read: " + p.Err.Error()
		if p.Path != source {
			text = p.Path + " " + text
		}
	}
	s.unread = append(s.unread, Problem{Source: source, Line: at.line, Column: at.column, Field: field, Text: text + "; " + remedy})
}

// Config is what the sources amount to. The node's name defaults to the host's. Errors are [Problems] or
// say that the file could not be read.
func (s *Sources) Config() (Config, error) {
	if s.mainErr != nil {
		return Config{}, s.mainErr
	}
	l := merge(s.main, s.environ, s.flags, s.limits...)
	l.problems = append(l.problems, s.unread...)
	s.limitAt, s.fieldAt = l.limitAt, maps.Clone(l.at)
	l.readSecret(s.readSecret)
	s.streams.ended = true
	l.placePaths()
	l.readSecurity(func(name string) extra { return s.extras[name] })
	cfg, err := l.finish()
	if err != nil {
		return Config{}, err
	}
	if cfg.Node.Node == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			return Config{}, errors.New("config: this machine has no host name: give the node a name with --node or JATAH_NODE")
		}
		cfg.Node.Node = host
	}
	return cfg, nil
}

// Given says whether a field, by its path such as cluster.bind, was set anywhere. Call it after Config.
func (s *Sources) Given(path string) bool {
	_, ok := s.fieldAt[path]
	return ok
}

// InFile says whether the value of a field that counts is the configuration file's. Call it after Config.
func (s *Sources) InFile(path string) bool {
	at, ok := s.fieldAt[path]
	return ok && at.layer == inFile
}

// Path is that of the configuration file; "" if there is none.
func (s *Sources) Path() string { return s.path }

// Fingerprint is the same as long as names and content of all files are, and what kept some from being read.
func (s *Sources) Fingerprint() [sha256.Size]byte {
	h := sha256.New()
	add := func(b []byte) {
		_ = binary.Write(h, binary.BigEndian, uint64(len(b))) // a hash takes everything
		h.Write(b)
	}
	if s.mainErr != nil {
		add([]byte(s.mainErr.Error()))
	}
	add(s.content())
	add([]byte(s.secretFile))
	add(s.secret)
	if s.secretErr != nil {
		add([]byte(s.secretErr.Error()))
	}
	for _, d := range s.limits {
		add([]byte(d.Name))
		add(d.Data)
	}
	for _, p := range s.unread {
		add([]byte(p.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(s.extras)) {
		add([]byte(name))
		if one := s.extras[name]; one.err != nil {
			add([]byte(one.err.Error()))
		} else {
			add(one.data)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Starved says that files could not be read for want of something that this process or its machine has no more of, such as file descriptors. Nothing is
// known of the files then, neither that they have changed nor that they are wrong. Nil: what is there was read.
func (s *Sources) Starved() error {
	errs := []error{s.mainErr, s.secretErr, s.lacking}
	for _, name := range slices.Sorted(maps.Keys(s.extras)) {
		errs = append(errs, s.extras[name].err)
	}
	if i := slices.IndexFunc(errs, lacks); i >= 0 {
		return errs[i]
	}
	return nil
}

func lacks(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// Paths are the files and the directory whose content counts, also where they do not exist now. None: nothing can change.
func (s *Sources) Paths() (paths []string) {
	if s.path != "" && !s.fixed {
		paths = append(paths, s.path)
	}
	if s.secretWatched() {
		paths = append(paths, s.secretFile)
	}
	if s.dir != "" {
		paths = append(paths, s.dir)
	}
	paths = append(paths, slices.Sorted(maps.Keys(s.extras))...)
	return append(paths, s.entries...)
}

// LimitFiles are the names of the files that were read in limits_dir.
func (s *Sources) LimitFiles() (names []string) {
	for _, d := range s.limits {
		names = append(names, filepath.Base(d.Name))
	}
	return names
}

// Emptied says that the configuration file is there and has nothing in it but comments, which is what a full disk and an interrupted save leave behind.
func (s *Sources) Emptied() error {
	if s.main == nil {
		return nil
	}
	for line := range bytes.Lines(s.main.Data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return nil
		}
	}
	return Problems{{Source: s.path, Line: 1, Column: 1, Text: "the file is empty: if there are to be no settings any more, say so with `limits: []`"}}
}
