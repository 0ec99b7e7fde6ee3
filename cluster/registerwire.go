package cluster

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// wireRecord is a record as it is sent and kept on disk: with the age of a removal and no time of day, since clocks differ.
type wireRecord struct {
	Name    string
	Version uint64
	Origin  uint64
	Gone    bool
	Age     time.Duration
	Value   []byte
}

// stamp says which write of a name a node has.
type stamp struct {
	Name            string
	Version, Origin uint64
}

// difference is the answer to a list of stamps.
type difference struct {
	Records []wireRecord // that are newer here, or not there
	Wants   []string     // what is newer there
	More    bool         // there are more Records
}

// keptRegister is a register on disk.
type keptRegister struct {
	Clock   uint64
	Written int64 // Unix milliseconds: removals age while nobody runs
	Records []wireRecord
}

func (w *wireRecord) size() int { return len(w.Name) + len(w.Value) + 32 }

func (w *wireRecord) valid() bool {
	return w.Name != "" && len(w.Name) <= maxName && w.Version > 0 && w.Version <= maxVersion && len(w.Value) <= MaxValue &&
		w.Age >= 0 && (!w.Gone || len(w.Value) == 0)
}

func (r record) wire(name string, now time.Time) wireRecord {
	w := wireRecord{Name: name, Version: r.version, Origin: r.origin, Gone: r.gone, Value: r.value}
	if r.gone {
		w.Age = max(0, now.Sub(r.since))
	}
	return w
}

// wireReader reads what marshal wrote, field by field. The library would make room for as many elements as a message claims to have
// before it looks for the first of them, and follow arrays within arrays as deep as they go. After an error all is zero.
//
// A struct may have more fields than are known here, at its end: those of newer versions. They are left out. Readers before protocol 3
// refused them, so what has more is sent only to members that speak it.
type wireReader struct {
	d   *msgpack.Decoder
	in  []byte
	src *bytes.Reader // of in; d reads no further than it decodes
	err error
}

func newWireReader(b []byte) *wireReader {
	src := bytes.NewReader(b)
	return &wireReader{d: msgpack.NewDecoder(src), in: b, src: src}
}

func wireField[T any](r *wireReader, decode func() (T, error)) T {
	var v T
	if r.err == nil {
		v, r.err = decode()
	}
	if r.err != nil {
		var none T
		return none
	}
	return v
}

// begin reads the head of a struct of so many fields, and returns what leaves out those that it has besides.
func (r *wireReader) begin(fields int) (end func()) {
	n := wireField(r, r.d.DecodeArrayLen)
	if r.err == nil && n < fields {
		r.err = fmt.Errorf("%d fields, not %d", n, fields)
	}
	return func() { r.skip(n - fields) }
}

func (r *wireReader) skip(n int) {
	if r.err != nil || n == 0 {
		return
	}
	rest, ok := skipValues(r.in[len(r.in)-r.src.Len():], n)
	if !ok {
		r.err = io.ErrUnexpectedEOF
		return
	}
	_, r.err = r.src.Seek(int64(len(r.in)-len(rest)), io.SeekStart)
}

func wireList[T any](r *wireReader, one func() T) (list []T) {
	n := wireField(r, r.d.DecodeArrayLen)
	for range n {
		v := one()
		if r.err != nil {
			return nil
		}
		list = append(list, v)
	}
	return list
}

func (r *wireReader) record() (w wireRecord) {
	defer r.begin(6)()
	w.Name, w.Version, w.Origin = wireField(r, r.d.DecodeString), wireField(r, r.d.DecodeUint64), wireField(r, r.d.DecodeUint64)
	w.Gone, w.Age, w.Value = wireField(r, r.d.DecodeBool), wireField(r, r.d.DecodeDuration), wireField(r, r.d.DecodeBytes)
	return w
}

func (r *wireReader) stamp() (s stamp) {
	defer r.begin(3)()
	s.Name, s.Version, s.Origin = wireField(r, r.d.DecodeString), wireField(r, r.d.DecodeUint64), wireField(r, r.d.DecodeUint64)
	return s
}

// end gives the error of all of it.
func (r *wireReader) end() error {
	if r.err != nil {
		return fmt.Errorf("%w: %w", errPacket, r.err)
	}
	return nil
}

func readControl(b []byte) (m control, err error) {
	r := newWireReader(b)
	more := r.begin(5)
	m.Op = op(wireField(r, r.d.DecodeUint8))
	m.Name, m.Addr = wireField(r, r.d.DecodeString), wireField(r, r.d.DecodeString)
	m.Proc, m.Data = wireField(r, r.d.DecodeUint64), wireField(r, r.d.DecodeBytes)
	more()
	return m, r.end()
}

func readShared(b []byte) (s sharedState, err error) {
	r := newWireReader(b)
	more := r.begin(2)
	s.Lost = wireList(r, func() (l sharedLost) {
		defer r.begin(6)()
		l.Name, l.Addr = wireField(r, r.d.DecodeString), wireField(r, r.d.DecodeString)
		l.Incarnation, l.Claim = wireField(r, r.d.DecodeUint64), wireField(r, r.d.DecodeUint64)
		l.Age, l.Left = wireField(r, r.d.DecodeDuration), wireField(r, r.d.DecodeBool)
		return l
	})
	s.Forgotten = wireList(r, func() (n sharedName) {
		defer r.begin(3)()
		n.Name, n.Proc, n.Addr = wireField(r, r.d.DecodeString), wireField(r, r.d.DecodeUint64), wireField(r, r.d.DecodeString)
		return n
	})
	more()
	return s, r.end()
}

func readRecords(b []byte) ([]wireRecord, error) {
	r := newWireReader(b)
	ws := wireList(r, r.record)
	return ws, r.end()
}

func readStamps(b []byte) ([]stamp, error) {
	r := newWireReader(b)
	list := wireList(r, r.stamp)
	return list, r.end()
}

func readDifference(b []byte) (d difference, err error) {
	r := newWireReader(b)
	more := r.begin(3)
	d.Records = wireList(r, r.record)
	d.Wants = wireList(r, func() string { return wireField(r, r.d.DecodeString) })
	d.More = wireField(r, r.d.DecodeBool)
	more()
	return d, r.end()
}

func readKept(b []byte) (k keptRegister, err error) {
	r := newWireReader(b)
	more := r.begin(3)
	k.Clock, k.Written = wireField(r, r.d.DecodeUint64), wireField(r, r.d.DecodeInt64)
	k.Records = wireList(r, r.record)
	more()
	return k, r.end()
}
