package cluster

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/vmihailenco/msgpack/v5"
)

// Incarnation names one process and how often it has begun anew: 40 random bits drawn at the
// start, and 24 bits that count the calls of Renew. Never 0. Of two incarnations of one
// process the higher one is the newer.
type Incarnation = uint64

// renewBits counts the renewals. Enough for one a second for half a year.
const renewBits = 24

func newIncarnation() Incarnation {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // never fails
		if inc := binary.BigEndian.Uint64(b[:]) &^ (1<<renewBits - 1); inc != 0 {
			return inc
		}
	}
}

// process is the part of an incarnation that stays the same for the life of the process.
func process(inc Incarnation) uint64 { return inc >> renewBits }

// wireName is the name memberlist knows a process by: "n1/c0ffee1234".
func wireName(name string, proc uint64) string { return fmt.Sprintf("%s/%010x", name, proc) }

// state of a process, as it tells the others.
type state uint8

const (
	joining state = iota // not in any view yet: its name may be taken
	active
	leaving // in good order; out of all views
)

// metaVersion is raised when a field of meta is added or changes its meaning: decoders of another version then
// keep the process out, since an array has to have as many elements as they have fields. What comes after the array, metaExtra, they do not look at.
const metaVersion = 1

// meta is what a process tells about itself by gossip. memberlist allows 512 bytes.
type meta struct {
	Format      uint8
	State       state
	Incarnation Incarnation
	Claim       uint64 // higher wins a name
	Started     int64  // Unix milliseconds; only breaks ties between equal claims
	Protocol    uint8  // the oldest spoken; those of before metaExtra.Protocol speak no other
	HTTP        string
	Version     string

	Partitions  int
	Seed        uint64
	Load        float64
	Replication int
	Sync        time.Duration
	Settle      time.Duration
	Grace       time.Duration

	Sure bool // knows whether there is a cluster; see View.Unsure

	extra metaExtra
}

// marshal writes structs as arrays of their fields, which is short; decoding takes either form.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	e.UseArrayEncodedStructs(true)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

var errMeta = errors.New("cluster: not a node of ours")

func newMeta(c Config, inc Incarnation, now time.Time) meta {
	m := meta{
		Format: metaVersion, State: joining, Incarnation: inc, Started: now.UnixMilli(),
		Protocol: cmp.Or(c.oldest, PreviousProtocol), HTTP: c.HTTP, Version: c.Version,
		Partitions: c.Ring.Partitions, Seed: c.Ring.Seed, Load: c.Ring.Load, Replication: c.Ring.Replication,
		Sync: c.SyncInterval, Settle: c.Settle, Grace: c.Grace,
	}
	if c.Register != nil {
		m.extra.Register = registerFormat
	}
	if c.Protocol > PreviousProtocol {
		m.extra.Protocol = c.Protocol
		m.extra.Seeking = c.SecretSeed && len(c.Secrets) > 0
		m.tellSecrets(c.Secrets)
	}
	return m
}

func (m *meta) encode() ([]byte, error) {
	b, err := marshal(m)
	if err != nil {
		return nil, fmt.Errorf("cluster: metadata: %w", err)
	}
	if b, err = m.extra.append(b); err != nil {
		return nil, fmt.Errorf("cluster: metadata: %w", err)
	}
	if len(b) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("%w: metadata has %d bytes, at most %d: shorten the HTTP address or the version",
			ErrConfig, len(b), memberlist.MetaMaxSize)
	}
	return b, nil
}

// decodeMeta reads the metadata of a process known to memberlist as wire. It also gives its name.
func decodeMeta(wire string, b []byte) (name string, m meta, err error) {
	name, hex, ok := cutLast(wire, '/')
	if !ok || len(b) > memberlist.MetaMaxSize {
		return "", m, fmt.Errorf("%w: %q", errMeta, wire)
	}
	r := bytes.NewReader(b)
	if err := msgpack.NewDecoder(r).Decode(&m); err != nil {
		return "", m, fmt.Errorf("%w: %q: %w", errMeta, wire, err)
	}
	m.extra = decodeExtra(b[len(b)-r.Len():])
	if m.Format != metaVersion {
		return "", m, fmt.Errorf("%w: %q has metadata of format %d, this version reads %d", errMeta, wire, m.Format, metaVersion)
	}
	if checkName(name) != nil || wireName(name, process(m.Incarnation)) != name+"/"+hex || m.Incarnation == 0 {
		return "", m, fmt.Errorf("%w: name %q and incarnation %x do not fit", errMeta, wire, m.Incarnation)
	}
	return name, m, nil
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// differs names the first constant in which two nodes must agree and do not.
func (m *meta) differs(o *meta) error {
	if m.speaks(o) == 0 {
		return fmt.Errorf("%w: protocol is %s here and %s there, which have none in common: upgrade the older one, one release after the other",
			ErrMismatch, m.protocols(), o.protocols())
	}
	for _, f := range []struct {
		field        string
		ours, theirs any
	}{
		{"partitions", m.Partitions, o.Partitions},
		{"load", m.Load, o.Load},
		{"replication", m.Replication, o.Replication},
		{"sync interval", m.Sync, o.Sync},
	} {
		if f.ours != f.theirs {
			return fmt.Errorf("%w: %s is %v here and %v there, set the same everywhere", ErrMismatch, f.field, f.ours, f.theirs)
		}
	}
	return nil
}

// outranks says which of two processes of one name holds it. It is a total order on what both
// tell about themselves, so every node that knows both comes to the same answer. A name that was
// claimed knowing of another claim (a restart) beats that one; of equal claims (two sides of a
// partition) the process that has run longer wins, since more depends on it.
func (m *meta) outranks(o *meta) bool {
	if (m.State == active) != (o.State == active) {
		return m.State == active
	}
	return cmp.Or(
		cmp.Compare(o.Claim, m.Claim),
		cmp.Compare(m.Started, o.Started),
		cmp.Compare(m.Incarnation, o.Incarnation),
	) < 0
}

// member is how the view of one process shows another, or itself.
func (m *meta) member(name, addr string, to *meta) Member {
	return Member{
		Name: name, Addr: addr, Incarnation: m.Incarnation, HTTP: m.HTTP, Version: m.Version, Protocol: m.speaks(to),
		Settle: m.Settle, Grace: m.Grace, secrets: m.extra.Secrets,
	}
}
