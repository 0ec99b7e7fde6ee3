package httpapi

import (
	"math"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
)

// twinDecision is appendDecision without anything prepared: each decision is written from its definition.
func twinDecision(b []byte, t *jatah.Terms, d *jatah.Decision, echo []byte, cost int64) []byte {
	retry := d.RetryAfter
	if d.OK {
		retry = 0
	}
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.OK)
	b = append(b, `,"limit":`...)
	b = appendJSON(b, t.Name)
	b = append(b, `,"key":`...)
	b = appendEcho(b, echo)
	if t.Plan != "" {
		b = append(b, `,"plan":`...)
		b = appendJSON(b, t.Plan)
	}
	b = append(b, `,"cost":`...)
	b = strconv.AppendInt(b, cost, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, d.Remaining, 10)
	b = append(b, `,"retry_after_ms":`...)
	b = appendMillis(b, retry)
	b = append(b, `,"reset_after_ms":`...)
	b = appendMillis(b, d.ResetAfter)
	if d.Delay > 0 {
		b = append(b, `,"delay_ms":`...)
		b = appendMillis(b, d.Delay)
	}
	b = append(b, `,"mode":"`...)
	b = append(b, d.Mode.String()...)
	b = append(b, `","source":"`...)
	b = append(b, d.Source.String()...)
	b = append(b, '"')
	if d.DryRun {
		b = append(b, `,"dry_run":true`...)
	}
	if retry == jatah.Never {
		b = append(b, `,"reason":`...)
		b = appendJSON(b, neverReason(&t.Limit, cost))
	}
	return append(b, '}')
}

// twinHeads are the headers of a decision, each rendered from the definition.
func twinHeads(c *Config, t *jatah.Terms, d *jatah.Decision, length int, wall func() time.Time) *fields.Values {
	retry := max(1, d.RetryAfter)
	if d.OK {
		retry = 0
	}
	var s fields.Set
	s.Begin(length, retry)
	s.Add(c.fields(), wall, fields.Item{Limit: &t.Limit, Decision: d})
	return s.Values()
}

// anyOf is one of some values, or anything.
func anyOf[T ~int64](rng *rand.Rand, some ...T) T {
	if i := rng.IntN(len(some) + 2); i < len(some) {
		return some[i]
	}
	return T(rng.Int64() >> rng.IntN(63))
}

func anyTerms(rng *rand.Rand) *jatah.Terms {
	pick := func(s ...string) string { return s[rng.IntN(len(s))] }
	rate := func() jatah.Rate {
		return jatah.Rate{Count: anyOf[int64](rng, 0, 1, 5, 1000), Per: max(1, anyOf(rng, time.Nanosecond, time.Second, time.Minute, 24*time.Hour))}
	}
	t := &jatah.Terms{Plan: pick("", "", "pro", `a"b\`, "é")}
	t.Limit = jatah.Limit{Name: pick("api", "a/b:c.d-e_1", `od"d\`, "é\x01"), Rate: rate(), Burst: anyOf[int64](rng, 0, 1, 20),
		Algorithm: pick("", jatah.TokenBucket, jatah.FixedWindow, jatah.SlidingLog, jatah.LeakyBucket, jatah.Concurrency, jatah.BurstAverage),
		Queue:     anyOf[int64](rng, 0, 0, 3), MaxWait: anyOf(rng, 0, 0, time.Second), Max: anyOf[int64](rng, 0, 4)}
	for range max(0, rng.IntN(6)-3) {
		t.Rates = append(t.Rates, rate())
	}
	return t
}

func anyDecision(rng *rand.Rand) *jatah.Decision {
	wait := func() time.Duration {
		return anyOf(rng, 0, 0, 1, time.Millisecond, time.Millisecond+1, time.Second, time.Hour, jatah.Never)
	}
	return &jatah.Decision{OK: rng.IntN(2) == 0, Remaining: anyOf[int64](rng, 0, 1, 9, 10, 12345, -7, 999_999_999_999_999, 1_000_000_000_000_000, math.MaxInt64),
		RetryAfter: wait(), ResetAfter: wait(), Delay: wait(), DryRun: rng.IntN(3) == 0, Mode: jatah.Mode(rng.IntN(3)), Source: jatah.Source(rng.IntN(6))}
}

func TestPreparedAnswersAreThoseOfTheTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	echoes := []string{`"u1"`, `""`, `"\u0000é"`, "\"\xff\xe9\"", `["a", "b"]`, "[\n\"a\\\"\",\t\"\xc3\"]"}
	wall := func() time.Time { return time.Unix(1_000_000, 1) }
	var s fields.Set // used again, as in a handler
	for range 30_000 {
		terms, d := anyTerms(rng), anyDecision(rng)
		f, echo, cost := newFace(terms), []byte(echoes[rng.IntN(len(echoes))]), anyOf[int64](rng, 0, 1, 2, math.MaxInt64)
		got, want := appendDecision([]byte("x"), f, d, echo, cost), twinDecision([]byte("x"), terms, d, echo, cost)
		if string(got) != string(want) {
			t.Fatalf("%+v\ngot  %s\nwant %s", terms, got, want)
		}
		flip := func() bool { return rng.IntN(3) == 0 }
		c := Config{OmitRateLimit: flip(), OmitXRateLimit: flip(), Legacy: flip(), ResetEpoch: flip()}
		c.decisionHeads(&s, f, d, len(got), wall)
		head, twin := http.Header{}, http.Header{}
		s.Values().Put(head, c.fields())
		twinHeads(&c, terms, d, len(got), wall).Put(twin, c.fields())
		if !reflect.DeepEqual(head, twin) {
			t.Fatalf("%+v\n%+v %+v\ngot  %v\nwant %v", c, terms, d, head, twin)
		}
	}
}
