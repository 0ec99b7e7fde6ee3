package hybrid

import (
	"errors"
	"fmt"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// Errors that a [Decision] or a call of this package may carry.
var (
	// ErrNegativeCost says that a cost, refund or charge was below zero.
	ErrNegativeCost = errors.New("hybrid: the cost must not be negative")
	// ErrClosed says that the engine has been closed.
	ErrClosed = errors.New("hybrid: the node is closed")
	// ErrSpec is wrapped by every error about the definition of a limit.
	ErrSpec = errors.New("hybrid: bad limit")
	// ErrUnreachable says that the owner of a key did not answer in time.
	ErrUnreachable = errors.New("hybrid: the owner of the key did not answer")
	// ErrOverflow says that a new key found no room in a full table.
	ErrOverflow = errors.New("hybrid: the table of keys is full")
)

// Mode says who decides a request. The zero value is Hybrid.
type Mode uint8

// The modes of a limit.
const (
	Hybrid Mode = iota // credit from the owner, spent locally
	Strict             // the owner decides each request
	Split              // a node's own share, without talking to anybody
)

// Fallback says how a request is decided that finds no credit while the
// owner of its key is silent. The zero value is FallbackShare.
type Fallback uint8

// The fallbacks of a limit.
const (
	FallbackShare Fallback = iota // the node's own share, and ahead of it what it last saw
	FallbackWait                  // the node's own share, once it is no longer lent
	FallbackDeny                  // refuse
	FallbackAllow                 // admit
)

// Source says how a decision was made.
type Source uint8

// The sources of a decision.
const (
	SourceLocal Source = iota // in local memory: credit, the bare bucket, or a standing denial
	SourceOwner               // by the owner, for this request
	SourceShare               // fallback: from the node's own share
	SourceAhead               // fallback: ahead of the share; owed to the owner
	SourceDeny                // fallback: deny
	SourceAllow               // fallback: allow, or no room for the key with OverflowAllow
	numSources
)

// Sources is the number of different sources, for tables indexed by Source.
const Sources = int(numSources)

var (
	modeNames     = [...]string{Hybrid: "hybrid", Strict: "strict", Split: "split"}
	fallbackNames = [...]string{FallbackShare: "share", FallbackWait: "wait", FallbackDeny: "deny", FallbackAllow: "allow"}
	sourceNames   = [...]string{SourceLocal: "local", SourceOwner: "owner", SourceShare: "share", SourceAhead: "ahead", SourceDeny: "deny", SourceAllow: "allow"}
)

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("invalid(%d)", i)
}

func parse(what string, names []string, s string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %s %q does not exist; use one of %v", ErrSpec, what, s, names)
}

func (m Mode) String() string     { return name(modeNames[:], int(m)) }
func (f Fallback) String() string { return name(fallbackNames[:], int(f)) }
func (s Source) String() string   { return name(sourceNames[:], int(s)) }

// ParseMode reads "hybrid", "strict" or "split".
func ParseMode(s string) (Mode, error) {
	i, err := parse("mode", modeNames[:], s)
	return Mode(i), err
}

// ParseFallback reads "share", "wait", "deny" or "allow".
func ParseFallback(s string) (Fallback, error) {
	i, err := parse("fallback", fallbackNames[:], s)
	return Fallback(i), err
}

// MarshalText writes the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what ParseMode reads.
func (m *Mode) UnmarshalText(b []byte) (err error) { *m, err = ParseMode(string(b)); return err }

// MarshalText writes the fallback's name.
func (f Fallback) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what ParseFallback reads.
func (f *Fallback) UnmarshalText(b []byte) (err error) {
	*f, err = ParseFallback(string(b))
	return err
}

// Spec is the definition of one limit. It is a plain value.
type Spec struct {
	Name      string
	Rate      bucket.Rate  // tokens per duration; count 0 denies everything
	Burst     int64        // tokens that a full key holds: the largest cost
	Rule      *bucket.Spec // another rule than a token bucket of Rate and Burst, of which Rate is the first rate and Burst the capacity; nil: none. Not changed afterwards
	Mode      Mode
	Fallback  Fallback
	Overshoot float64       // phi: the part of the burst that may be exceeded to save waiting; 0 to 1
	TTL       time.Duration // of a permit, where the rule is concurrency: the longest life without being renewed
	DryRun    bool          // count what would be denied, deny nothing

	Plans     map[string]Amounts // other amounts, which a caller names, or an override
	Overrides []Override
	Parent    string // the limit that every take is under too, which has one key for all its children; "": none
}

// Decision is the answer to one request. A denial is a Decision, not an error. It is copied with each request, so it is kept small.
type Decision struct {
	OK         bool
	DryRun     bool // OK only because the limit is in dry run
	Source     Source
	Mode       Mode
	Remaining  int64         // whole tokens left for the key, as far as known here
	RetryAfter time.Duration // shortest wait that helps; bucket.Never when none does; 0 when OK, unless that is for DryRun only
	ResetAfter time.Duration // until the key is full again if nothing else comes
	MaxExcess  int64         // tokens that the limit's mode and overshoot may let through beyond burst + rate*t in the worst moment: without faults, or where the decision was made by fallback, in that fault
	Delay      time.Duration // OK, but not before this is over: a queue spaces its departures. The caller waits
	Err        error         // the request could not be decided: bad cost, closed, context ended, table full

	asOf int64 // Unix time, ns; 0: see AsOf
}

// AsOf is when the state that the decision rests on was known here; the zero time: at the time of the decision, as on a node alone.
func (d Decision) AsOf() time.Time {
	if d.asOf == 0 {
		return time.Time{}
	}
	return time.Unix(0, d.asOf)
}

// State is what is known of one key: at its owner where it can be reached.
type State struct {
	Limit, Key  string
	Plan        string // whose amounts these are: what the key has at its owner; where this node decides alone or in mode split, what the caller names. "": the limit's own
	Owner       string
	Mode        Mode
	Source      Source
	Balance     float64 // tokens in the pool; negative: debt
	Burst       int64
	Outstanding int64         // credit that nodes hold
	Held        int64         // permits that are held, where the rule is concurrency
	Credit      int64         // credit that this node holds
	Remaining   int64         // whole tokens in the pool and out as credit, at least 0
	RetryAfter  time.Duration // wait for one token
	ResetAfter  time.Duration
	Age         time.Duration // since this node last heard of the key's balance
}
