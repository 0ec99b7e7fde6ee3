package bucket

import (
	"math"
	"time"
)

// Never is the wait that says: no wait helps.
const Never = time.Duration(math.MaxInt64)

// Result is what a bucket answers. It is a plain value.
type Result struct {
	// OK: the tokens were taken (Take), the look found the bucket not in debt
	// (Peek, Take of 0), or the change was made (Refund, Charge).
	OK bool

	// Overflow: the table has no room for this key; nothing was taken or
	// charged. RetryAfter is a time within which no other key can be forgotten, or 1 ns
	// if some may be by now and were not looked at yet. It is Never if the key is longer than any table takes (256 KiB).
	Overflow bool

	// Sealed: the bucket was replaced (see Bucket.Convert) and nothing happened.
	// Load its successor and ask again. A Table never answers this.
	Sealed bool

	// Remaining is the number of whole tokens left after the decision, in 0..burst.
	Remaining int64

	// RetryAfter is 0 if OK, otherwise the shortest wait after which the same request
	// passes if nothing else comes, or Never. After a Refund or Charge it is the
	// wait until the bucket is out of debt.
	RetryAfter time.Duration

	// ResetAfter is the shortest wait until the bucket is full: 0 if it is full
	// or denies all, Never if that takes longer than the clock runs.
	ResetAfter time.Duration

	// Delay is how long after the decision the tokens that were taken may depart: only a
	// leaky_bucket with a queue lets them wait.
	Delay time.Duration
}

// wait returns how long it is from now until the time t, or Never if t never comes.
func wait(t, now int64) time.Duration {
	if t == math.MaxInt64 {
		return Never
	}
	return time.Duration(max(t-max(now, 0), 0))
}
