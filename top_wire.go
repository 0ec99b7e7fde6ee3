package jatah

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/jatah-io/jatah/internal/topk"
)

// What nodes say to each other about it, in msgpack. A reader leaves out fields that it does not know.

const (
	topTopic = ownTopics + "top"
	// topBytes is about the largest answer: less than MaxAnswer by what the names of limits may take.
	topBytes = MaxAnswer / 2
	topNames = MaxAnswer / 4
)

type topQuestion struct {
	Limit string // "": all
}

type topAnswer struct {
	Limits []topLimit
}

type topLimit struct {
	Name          string
	Used, Refused topCounts
}

type topCounts struct {
	Span   int64 // ns
	Sample int64
	Floor  int64
	Keys   []topCount
}

type topCount struct {
	Key          string
	Count, Error int64
}

func packTop(v any) ([]byte, error) {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	e.UseArrayEncodedStructs(true)
	e.UseCompactInts(true)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("jatah: top: %w", err)
	}
	return b.Bytes(), nil
}

// topReader reads what packTop wrote, field by field: the library would make room for as many elements as a message claims to have before it looks for
// the first of them. After an error all is zero.
type topReader struct {
	d   *msgpack.Decoder
	err error
}

func newTopReader(b []byte) *topReader {
	return &topReader{d: msgpack.NewDecoder(bytes.NewReader(b))}
}

// topField reads a value that is no array.
func topField[T any](r *topReader, decode func() (T, error)) T {
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

// record reads so many fields, and leaves out those that a later version has behind them.
func (r *topReader) record(fields int, read func()) {
	n := topField(r, r.d.DecodeArrayLen)
	if r.err == nil && n < fields {
		r.err = fmt.Errorf("%d fields, not %d", n, fields)
	}
	read()
	r.skip(n - fields)
}

func topList[T any](r *topReader, one func() T) (list []T) {
	n := topField(r, r.d.DecodeArrayLen)
	for range n {
		v := one()
		if r.err != nil {
			return nil
		}
		list = append(list, v)
	}
	return list
}

// skip leaves out so many values, however deep they are: it needs no stack.
func (r *topReader) skip(values int) {
	for ; values > 0 && r.err == nil; values-- {
		switch code := topField(r, r.d.PeekCode); {
		case r.err != nil:
		case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
			values += max(0, topField(r, r.d.DecodeArrayLen))
		case msgpcode.IsFixedMap(code), code == msgpcode.Map16, code == msgpcode.Map32:
			values += 2 * max(0, topField(r, r.d.DecodeMapLen))
		default:
			r.err = r.d.Skip()
		}
	}
}

func (r *topReader) question() (q topQuestion) {
	r.record(1, func() { q.Limit = topField(r, r.d.DecodeString) })
	return q
}

func (r *topReader) answer() (a topAnswer) {
	r.record(1, func() { a.Limits = topList(r, r.limit) })
	return a
}

func (r *topReader) limit() (l topLimit) {
	r.record(3, func() { l.Name, l.Used, l.Refused = topField(r, r.d.DecodeString), r.counts(), r.counts() })
	return l
}

func (r *topReader) counts() (c topCounts) {
	r.record(4, func() {
		c.Span, c.Sample, c.Floor = topField(r, r.d.DecodeInt64), topField(r, r.d.DecodeInt64), topField(r, r.d.DecodeInt64)
		c.Keys = topList(r, r.count)
	})
	return c
}

func (r *topReader) count() (c topCount) {
	r.record(3, func() {
		c.Key, c.Count, c.Error = topField(r, r.d.DecodeString), topField(r, r.d.DecodeInt64), topField(r, r.d.DecodeInt64)
	})
	return c
}

func countsOf(s *topk.Summary) topCounts {
	c := topCounts{Span: int64(s.Span), Sample: s.Sample, Floor: s.Floor}
	for _, x := range s.Items {
		c.Keys = append(c.Keys, topCount{x.Key, x.Count, x.Error})
	}
	return c
}

func (c *topCounts) summary() topk.Summary {
	s := topk.Summary{Span: time.Duration(c.Span), Sample: c.Sample, Floor: c.Floor}
	for _, x := range c.Keys {
		s.Items = append(s.Items, topk.Item{Key: x.Key, Count: x.Count, Error: x.Error, Rate: float64(x.Count) / s.Span.Seconds()})
	}
	return s
}

var errTop = errors.New("what it counted cannot be read")

// readTop reads what answerTop wrote, and refuses what it cannot have written.
func readTop(b []byte, limit string) (a topAnswer, err error) {
	r := newTopReader(b)
	if a = r.answer(); r.err != nil {
		return topAnswer{}, fmt.Errorf("%w: %w: %w", ErrAnswer, errTop, r.err)
	}
	seen := map[string]bool{}
	for i := range a.Limits {
		l := &a.Limits[i]
		if seen[l.Name] || l.Name == "" || limit != "" && l.Name != limit || !l.Used.valid() || !l.Refused.valid() {
			return a, fmt.Errorf("%w: %w", ErrAnswer, errTop)
		}
		seen[l.Name] = true
	}
	return a, nil
}

func (c *topCounts) valid() bool {
	if c.Span <= 0 || c.Span > int64(topk.Window) || c.Sample < 1 || c.Floor < 0 || len(c.Keys) > 2*topk.Keys {
		return false
	}
	seen := map[string]bool{}
	for _, x := range c.Keys {
		if x.Key == "" || len(x.Key) > MaxKey || seen[x.Key] || x.Count < 0 || x.Error < 0 {
			return false
		}
		seen[x.Key] = true
	}
	return true
}
