// Package fields writes the header fields that tell a client of its limits: Retry-After, RateLimit and RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers-10), X-RateLimit-Limit, -Remaining, -Reset, and these three without the X.
//
// Waits are rounded up, so that a client that waits as long as it was told is not too early. Nothing is kept but the
// buffer of a [Set], which its owner reuses.
package fields

import (
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/jatah-io/jatah"
)

// Options says which fields there are. The zero value is all but the older ones.
type Options struct {
	OmitRateLimit  bool // RateLimit and RateLimit-Policy
	OmitXRateLimit bool // X-RateLimit-Limit, -Remaining, -Reset
	Legacy         bool // with RateLimit-Limit, -Remaining, -Reset
	ResetEpoch     bool // resets are Unix times in seconds, not seconds from now
}

// Item is what is told of one limit: its definition as it holds for the key, and what was decided.
type Item struct {
	Limit    *jatah.Limit
	Decision *jatah.Decision
}

// The values of an answer, as indexes of Values.
const (
	Length     = iota // Content-Length
	RetryAfter        // Retry-After
	RateLimit         // RateLimit
	Policy            // RateLimit-Policy
	Limit             // X-RateLimit-Limit, RateLimit-Limit
	Remaining         // X-RateLimit-Remaining, RateLimit-Remaining
	Reset             // X-RateLimit-Reset, RateLimit-Reset
	Num
)

// Names are canonical in the sense of net/http, so that they can be set in a header map as they are. Those of Limit and what follows are in
// XNames and LegacyNames.
var Names = [Limit]string{Length: "Content-Length", RetryAfter: "Retry-After", RateLimit: "Ratelimit", Policy: "Ratelimit-Policy"}

// XNames and LegacyNames are the names of Limit, Remaining and Reset, which have the same values in both families.
var (
	XNames      = [Num - Limit]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	LegacyNames = [Num - Limit]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}
)

// Values are the values of an answer; an empty one is left out. They are parts of one string, but for those of a Fixed.
type Values [Num]string

// block is values with room for what most answers say, so that they take one allocation.
type block struct {
	vals Values
	text [64]byte
}

// Set collects values in one buffer, to make them one string at the end. The zero value is ready; it is for one goroutine.
type Set struct {
	b             []byte
	end           [Num]int
	policy, limit string // those that are made already; "": see end
}

func (s *Set) done(i int) { s.end[i] = len(s.b) }

// Values cuts the values out of a single string. They belong to the caller.
func (s *Set) Values() *Values {
	all, vals := s.cut()
	from := 0
	for i, end := range s.end {
		if end > from {
			vals[i], from = all[from:end], end
		}
	}
	if s.policy != "" {
		vals[Policy] = s.policy
	}
	if s.limit != "" {
		vals[Limit] = s.limit
	}
	return vals
}

// cut copies what was collected.
func (s *Set) cut() (all string, vals *Values) {
	if len(s.b) == 0 || len(s.b) > len(block{}.text) {
		return string(s.b), new(Values)
	}
	to := new(block)
	copy(to.text[:], s.b)
	return unsafe.String(&to.text[0], len(s.b)), &to.vals // nobody writes into the text any more
}

// Begin forgets what was collected, and takes what is not about limits: length, that of the body (-1: not told), and retry, how long to wait
// (0 or jatah.Never: not told).
func (s *Set) Begin(length int, retry time.Duration) {
	*s = Set{b: s.b[:0]}
	if length >= 0 {
		s.b = strconv.AppendInt(s.b, int64(length), 10)
		s.done(Length)
	}
	if retry > 0 && retry != jatah.Never {
		s.b = strconv.AppendInt(s.b, max(1, CeilSeconds(retry)), 10)
		s.done(RetryAfter)
	}
}

// Add takes what is told of the limits: in the lists of all of them, in the other fields of the one that is tightest. It is called once after
// Begin. Of several items with one name the tightest is told. wall is when they were decided.
func (s *Set) Add(o Options, wall func() time.Time, items ...Item) {
	if len(items) == 0 {
		return
	}
	if !o.OmitRateLimit {
		s.lists(items)
	}
	if o.OmitXRateLimit && !o.Legacy {
		return
	}
	one := items[0]
	for _, item := range items[1:] {
		if Tighter(item.Decision, one.Decision) {
			one = item
		}
	}
	s.b = strconv.AppendInt(s.b, one.Limit.Capacity(), 10)
	s.done(Limit)
	s.left(o, wall, one.Decision)
}

// left takes what was decided of the one limit that the fields besides the lists tell of.
func (s *Set) left(o Options, wall func() time.Time, d *jatah.Decision) {
	s.b = strconv.AppendInt(s.b, d.Remaining, 10)
	s.done(Remaining)
	if d.ResetAfter == jatah.Never {
		return
	}
	if o.ResetEpoch {
		at := wall().Add(d.ResetAfter)
		s.b = strconv.AppendInt(s.b, at.Add(time.Second-1).Unix(), 10)
	} else {
		s.b = strconv.AppendInt(s.b, CeilSeconds(d.ResetAfter), 10)
	}
	s.done(Reset)
}

func (s *Set) lists(items []Item) {
	for n, field := range [...]int{RateLimit, Policy} {
		first := true
		for i := range items {
			if hidden(items, i) {
				continue
			}
			if !first {
				s.b = append(s.b, ", "...)
			}
			first = false
			l := items[i].Limit
			if n == 0 {
				s.b = appendLimitItem(s.b, l.Name, items[i].Decision)
			} else {
				s.b = AppendPolicy(s.b, l)
			}
		}
		s.done(field)
	}
}

// hidden says that a tighter item of the same limit stands for this one: for a client that has used a limit by two keys it is one policy.
func hidden(items []Item, i int) bool {
	for j := range items {
		if j == i || items[j].Limit.Name != items[i].Limit.Name {
			continue
		}
		if Tighter(items[j].Decision, items[i].Decision) || j < i && !Tighter(items[i].Decision, items[j].Decision) {
			return true
		}
	}
	return false
}

// Tighter says that a client must heed d more than the other: of two refusals the longer one, of a refusal and an admission the refusal, of two
// admissions the one with less left.
func Tighter(d, than *jatah.Decision) bool {
	switch {
	case d.OK != than.OK:
		return than.OK
	case d.OK:
		return d.Remaining < than.Remaining
	}
	return d.RetryAfter > than.RetryAfter
}

// Put sets the fields, in place of those with the same names. The header map shares the values, which nobody changes in place.
func (v *Values) Put(head http.Header, o Options) {
	for i, name := range Names {
		if v[i] != "" {
			head[name] = v[i : i+1 : i+1]
		}
	}
	if !o.OmitXRateLimit {
		v.put(head, &XNames)
	}
	if o.Legacy {
		v.put(head, &LegacyNames)
	}
}

func (v *Values) put(head http.Header, names *[Num - Limit]string) {
	for i, name := range names {
		if at := Limit + i; v[at] != "" {
			head[name] = v[at : at+1 : at+1]
		}
	}
}
