package jatah

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/hybrid"
)

// Never is the wait that says: no wait helps. As Config.Grace it means for ever.
const Never = bucket.Never

// MaxPerSecond is the fastest rate, in tokens per second.
const MaxPerSecond = bucket.MaxPerSecond

// Rate is a number of tokens per duration.
type Rate = bucket.Rate

// Per is n tokens per d.
func Per(n int64, d time.Duration) Rate { return bucket.Per(n, d) }

// PerSecond is n tokens per second.
func PerSecond(n int64) Rate { return bucket.Per(n, time.Second) }

// PerMinute is n tokens per minute.
func PerMinute(n int64) Rate { return bucket.Per(n, time.Minute) }

// PerHour is n tokens per hour.
func PerHour(n int64) Rate { return bucket.Per(n, time.Hour) }

// PerDay is n tokens per 24 hours.
func PerDay(n int64) Rate { return bucket.Per(n, 24*time.Hour) }

// ParseRate reads "100/min", "5/10s", "7/s", "5r/m" and the like.
func ParseRate(s string) (Rate, error) { return bucket.ParseRate(s) }

// Mode says who decides a request; see [Hybrid], [Strict], [Split].
type Mode = hybrid.Mode

// The modes of a limit.
const (
	Hybrid = hybrid.Hybrid // nodes spend credit that the key's owner granted; the default
	Strict = hybrid.Strict // the owner decides each request
	Split  = hybrid.Split  // every node has 1/K of the limit to itself
)

// ParseMode reads "hybrid", "strict" or "split".
func ParseMode(s string) (Mode, error) { return hybrid.ParseMode(s) }

// Fallback says how requests are decided that find no credit while their owner is silent, and so what a partition, a pause or a crash may
// let through beyond burst + rate*t: nothing with FallbackWait; at most one burst per event with FallbackShare, most of it owed and
// charged afterwards, and with FallbackDeny, whose new owners too start from what the heir kept; everything with FallbackAllow. A partition that outlasts Config.Grace gives each side the whole limit.
type Fallback = hybrid.Fallback

// The fallbacks of a limit.
const (
	FallbackShare = hybrid.FallbackShare // own share, and once ahead of it what was last seen; the default
	FallbackWait  = hybrid.FallbackWait  // own share, once its loan has run out: nothing beyond the limit, ever
	FallbackDeny  = hybrid.FallbackDeny  // refuse
	FallbackAllow = hybrid.FallbackAllow // admit
)

// ParseFallback reads "share", "wait", "deny" or "allow".
func ParseFallback(s string) (Fallback, error) { return hybrid.ParseFallback(s) }

// Source says how a decision was made: local, owner, share, ahead, deny or allow.
type Source = hybrid.Source

// The sources of a decision.
const (
	SourceLocal = hybrid.SourceLocal // in this node's memory: credit, the bare bucket, a denial that stands
	SourceOwner = hybrid.SourceOwner // the owner, for this request
	SourceShare = hybrid.SourceShare // the owner is silent: from this node's own share
	SourceAhead = hybrid.SourceAhead // the owner is silent: ahead of the share, owed
	SourceDeny  = hybrid.SourceDeny  // the owner is silent, fallback deny
	SourceAllow = hybrid.SourceAllow // the owner is silent, fallback allow
)

// Decision is the answer to one request: OK; Remaining tokens; RetryAfter (Never: no wait helps) and ResetAfter; Source and Mode; AsOf, when the
// state it rests on was known; MaxExcess in tokens; DryRun; Err. For the fields: go doc github.com/jatah-io/jatah/hybrid.Decision
type Decision = hybrid.Decision

// TokenBucket is the name of the only algorithm so far.
const TokenBucket = "token_bucket"

// Limit is the definition of one rule. It is a plain value; two that are Equal mean the same.
type Limit struct {
	Name      string   // 1 to 64 of letters, digits and _ . - / :
	Rate      Rate     // count 0: deny everything
	Burst     int64    // tokens that a full key holds; 0: Rate.Count
	Algorithm string   // "" or TokenBucket
	Mode      Mode     // zero: Hybrid
	Overshoot float64  // phi, 0 to 1: the part of the burst that may be exceeded to save waiting
	Fallback  Fallback // zero: FallbackShare
	DryRun    bool     // count what would be denied, deny nothing

	// Costs are in tokens, 0 to Burst, by route; see Limiter.Cost. A key ending in "*" is for all routes that begin with what stands before
	// it. Nil: every route costs 1. The map of a definition that a node returns is for reading only.
	Costs map[string]int64
}

// Equal says whether two definitions are the same, field by field. No costs and an empty map of costs are the same.
func (l Limit) Equal(o Limit) bool {
	if !maps.Equal(l.Costs, o.Costs) {
		return false
	}
	l.Costs, o.Costs = nil, nil
	return reflect.DeepEqual(l, o)
}

var limitName = regexp.MustCompile(`^[A-Za-z0-9_.\-/:]{1,64}$`)

// Validate says what is wrong with the definition; the error wraps ErrLimit.
func (l Limit) Validate() error {
	_, err := l.spec()
	return err
}

func (l Limit) spec() (hybrid.Spec, error) {
	if !limitName.MatchString(l.Name) {
		return hybrid.Spec{}, fmt.Errorf("%w: the name %.80q must be 1 to 64 characters out of letters, digits and _.-/: without spaces", ErrLimit, l.Name)
	}
	if l.Algorithm != "" && l.Algorithm != TokenBucket {
		return hybrid.Spec{}, fmt.Errorf("%w %q: algorithm %q does not exist; there is %s", ErrLimit, l.Name, l.Algorithm, TokenBucket)
	}
	s := hybrid.Spec{Name: l.Name, Rate: l.Rate, Burst: l.Burst, Mode: l.Mode, Fallback: l.Fallback, Overshoot: l.Overshoot, DryRun: l.DryRun}
	if s.Burst == 0 {
		s.Burst = l.Rate.Count
	}
	if err := s.Validate(); err != nil {
		return s, err
	}
	return s, l.checkCosts(s.Burst)
}

func limitOf(s hybrid.Spec) Limit {
	return Limit{Name: s.Name, Rate: s.Rate, Burst: s.Burst, Algorithm: TokenBucket, Mode: s.Mode, Overshoot: s.Overshoot, Fallback: s.Fallback, DryRun: s.DryRun}
}
