package jatah

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// state is a node's directory of Config.StateDir: it keeps what the node knows of used tokens, so that a cluster that
// was stopped as a whole goes on where it ended.
//
// A file is a line of JSON that says whose it is, the engine's snapshot, and the SHA-256 of both. It is replaced as a
// whole, so a crash while it is written leaves the one before.
type state struct {
	n    *Node
	path string
	lock *os.File
	stop chan struct{}
	done sync.WaitGroup

	writing  sync.Mutex
	warned   time.Time // under writing
	failures atomic.Uint64
	writes   atomic.Uint64
}

const (
	stateFormat     = "jatah state"
	stateVersion    = 2 // 1 had token buckets only
	stateInterval   = 5 * time.Second
	stateWarnEvery  = time.Minute
	stateHeaderSize = 4096 // at most
)

// stateHeader is the first line of a state file.
type stateHeader struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	Written string `json:"written"` // for who looks at the file; the snapshot has its own time
}

var errForeign = errors.New("not a state file of this node")

// openState locks the node's file and gives the engine what is in it. A file that cannot be used is set aside.
func openState(n *Node) (*state, error) {
	dir := n.cfg.StateDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: StateDir (state_dir): %w; name a directory that this process may write to", ErrConfig, err)
	}
	name := filepath.Join(dir, stateName(n.cfg.Node))
	lock, err := lockFile(name + ".lock")
	switch {
	case errors.Is(err, errLocked):
		return nil, fmt.Errorf("%w: %s is in use by another process (%s says which); stop it, or give this node another name or StateDir (state_dir)", ErrStateLocked, name, name+".lock")
	case err != nil:
		return nil, fmt.Errorf("%w: StateDir (state_dir): %w; name a directory that this process may write to", ErrConfig, err)
	}
	s := &state{n: n, path: name + ".state", lock: lock, stop: make(chan struct{})}
	if err := cmp.Or(s.load(), s.loadLimits()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

func (n *Node) openState() (err error) {
	if n.cfg.StateDir != "" {
		n.state, err = openState(n)
	}
	n.defining.Lock()
	defer n.defining.Unlock()
	n.adopt(n.pub.reg.Names()...)
	return err
}

// runState begins to write: from here on the node decides, and what it restored is used up.
func (n *Node) runState() {
	if n.state != nil {
		n.state.run(cmp.Or(n.cfg.StateInterval, stateInterval))
	}
}

// abandonState leaves the file as it was, for the next attempt.
func (n *Node) abandonState() {
	if n.state != nil {
		n.state.lock.Close()
	}
}

// load gives the engine what the file has.
func (s *state) load() error {
	return s.read(s.path, s.header(), "keys start as if there were none", func(payload []byte) error {
		return s.n.e.Restore(s.n.e.Now(), time.Now(), payload)
	})
}

// read hands over what is in a file, if there is one. One that cannot be used is set aside, and without says what then holds.
func (s *state) read(path string, want stateHeader, without string, use func(payload []byte) error) error {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: StateDir (state_dir): %w; make the file readable or remove it", ErrConfig, err)
	}
	payload, err := readState(data, want)
	if err == nil {
		err = use(payload)
	}
	if err == nil {
		s.n.cfg.Logger.Info("state read", "file", path, "bytes", len(data))
		return nil
	}
	bad := fmt.Sprintf("%s.bad-%s", path, time.Now().UTC().Format("20060102T150405.000"))
	if e := os.Rename(path, bad); e != nil {
		return fmt.Errorf("%w: the state file %s cannot be used (%w), and not set aside: %w; remove it", ErrConfig, path, err, e)
	}
	s.n.cfg.Logger.Error("the state file cannot be used; it is set aside, and "+without, "file", path, "set_aside_as", bad, "err", err)
	return nil
}

func (s *state) header() stateHeader {
	return stateHeader{Format: stateFormat, Version: stateVersion, Node: s.n.cfg.Node, Cluster: cmp.Or(s.n.cfg.Cluster, "jatah")}
}

// readState checks a file, and returns the snapshot in it.
func readState(data []byte, want stateHeader) ([]byte, error) {
	line, rest, ok := bytes.Cut(data[:min(len(data), stateHeaderSize)], []byte("\n"))
	var h stateHeader
	if !ok || json.Unmarshal(line, &h) != nil || h.Format != want.Format {
		return nil, fmt.Errorf("%w: it does not begin as one", errForeign)
	}
	if h.Version != want.Version {
		return nil, fmt.Errorf("%w: its format is version %d, this program reads version %d; use the program that wrote it, or do without", errForeign, h.Version, want.Version)
	}
	body := len(data) - sha256.Size
	if len(rest) == 0 || body <= len(line) {
		return nil, fmt.Errorf("%w: it ends too early", errForeign)
	}
	if sum := sha256.Sum256(data[:body]); !bytes.Equal(sum[:], data[body:]) {
		return nil, fmt.Errorf("%w: its checksum is wrong, so it is torn or was changed", errForeign)
	}
	if h.Node != want.Node || h.Cluster != want.Cluster {
		return nil, fmt.Errorf("%w: it belongs to node %q of cluster %q, this is %q of %q", errForeign, h.Node, h.Cluster, want.Node, want.Cluster)
	}
	return data[len(line)+1 : body], nil
}

// run writes every interval until end is called.
func (s *state) run(every time.Duration) {
	s.write() // what was restored is in use from now on
	s.done.Go(func() {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-t.C:
				s.write()
			}
		}
	})
	s.done.Go(func() { s.runLimits(every) })
}

// end writes for the last time, once the engine is closed, and lets the directory go.
func (s *state) end() error {
	close(s.stop)
	s.done.Wait()
	return errors.Join(s.write(), s.endLimits(), s.lock.Close())
}

// write replaces the file. An error is counted and logged, never more.
func (s *state) write() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	now := time.Now()
	err := replaceSealed(s.path, s.header(), now, s.n.e.Snapshot(s.n.e.Now(), now))
	if err == nil {
		s.writes.Add(1)
		return nil
	}
	s.failures.Add(1)
	if s.warned.IsZero() || now.Sub(s.warned) >= stateWarnEvery {
		s.warned = now
		s.n.cfg.Logger.Error("state not written; a stop of the whole cluster would forget what was used since the last time", "file", s.path, "err", err)
	}
	return fmt.Errorf("jatah: state not written: %w", err)
}

// replaceSealed makes a file of a header and a payload that readState finds whole or not at all.
func replaceSealed(path string, h stateHeader, now time.Time, payload []byte) error {
	h.Written = now.UTC().Format(time.RFC3339Nano)
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	data := append(append(line, '\n'), payload...)
	sum := sha256.Sum256(data)
	return replaceFile(path, append(data, sum[:]...))
}

// replaceFile makes data the content of a file, whole or not at all, also when the machine stops meanwhile.
func replaceFile(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(filepath.Dir(path))
}

// stateName is a node's name as the name of a file: letters, digits, - and _ stand for themselves, and dots but for the first.
func stateName(node string) string {
	var b strings.Builder
	for i := range len(node) {
		c := node[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	const most = 160 // a file system allows 255 with what is appended
	if b.Len() <= most {
		return b.String()
	}
	sum := sha256.Sum256([]byte(node))
	return b.String()[:most-33] + "%" + hex.EncodeToString(sum[:16])
}
