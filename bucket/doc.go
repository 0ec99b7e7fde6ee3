// Package bucket keeps the tokens of one key, or of millions of keys, exactly,
// and for token buckets without locks.
//
// # Words and units
//
// A [Rate] is so many tokens per duration. A bucket holds at most burst tokens,
// starts full and refills continuously. Tokens are whole numbers at the door
// (cost, burst, Remaining) and fractions inside. Times are nanoseconds since an
// epoch of the caller's choice: now >= 0 on a clock that should not go back.
// Waits are time.Durations, rounded up to the nanosecond; [Never] says that no
// wait helps.
//
// [Params] are a rate and a burst compiled for arithmetic, [Bucket] is one key,
// [Table] is many keys with a bound on their number.
//
// # Algorithms
//
// Bucket and Table know the token bucket alone, and are the fastest. All algorithms, by the
// names that [Algorithms] returns: token_bucket, fixed_window, sliding_window, sliding_log,
// leaky_bucket, burst_average.
//
// A [Spec] defines a limit under one of them, with one rate or several; [Compile] makes
// an [Algorithm] of it. A [Meter] is what one key has used under an Algorithm, also where only a part of the limit
// may be used here; a [Delayer] is one that lets requests wait. [Resize] goes on with a Meter under another
// Algorithm. [MeterTable] is many keys, as Table is. What these guarantee is
// said with them.
//
// The limits of nodes (package jatah) have any of them.
//
// # Guarantees
//
// Of Params, Bucket and Table:
//
//   - In any interval of t nanoseconds at most burst + rate*t tokens are taken
//     (rate*(t+1) where the arithmetic is not exact, see below),
//     however many goroutines take and whatever their clocks say.
//   - A denied request, and a request of cost 0, change nothing.
//   - RetryAfter is the shortest wait after which the same request passes if
//     nothing else comes, ResetAfter the shortest until the bucket is full.
//   - Nothing overflows: debts, times and costs saturate, always towards denial.
//   - Errors of rounding do not add up. Where the reduced fraction of the rate
//     has a numerator of at most 7 tokens per so many nanoseconds (and the
//     burst fills within 3 years) the arithmetic is exact. Elsewhere the level
//     is within what refills in 1 ns of the exact one, for ever: a
//     decision differs from that of an exact bucket only if the exact decision
//     changes within 1 ns.
//   - A change of rate or burst keeps the tokens: a lower burst cuts them, a
//     higher one adds none, debt stays. No concurrent take, charge or refund
//     is lost or counted twice. Each conversion rounds down by less than
//     what refills in 1 ns at the new rate.
//   - When a clock goes back, time stands still: no tokens appear and none
//     disappear until it has caught up.
//   - Table: a key that is not full is never forgotten, not even to make
//     room for another one. What is forgotten was full.
//
// # No guarantees
//
//   - Nothing is fair: of two goroutines that want the last token either may get it.
//   - The clock may run for 75 years from its epoch (so Unix time in
//     nanoseconds will do for now). After that buckets no longer refill.
//   - A raised burst reaches a key that is not stored at once: nobody
//     remembers that it was full at a lower burst.
//   - Debt beyond the room of the word is forgotten; there is always room
//     for a debt of a whole burst, and for most limits for decades of refill.
//   - A table at its bound refuses new keys (Result.Overflow) while no key is full.
//     The first request of a new key, sweeping and live changes take short locks;
//     a request of a known key takes none. A new key looks at 1024 others for one
//     that is full, and if they are not, it is refused though there may be one: the
//     next new key looks on from there. Its RetryAfter never is too long: a time
//     before which no key is full, or a nanosecond if some of those not looked at may be.
//     A new key for which room is being made may be refused once more by a
//     concurrent request.
//   - Between two steps of a request its key may be forgotten or converted, and its place be
//     given to another key. That this is noticed rests on 64 random bits, which differ by all
//     odds: in each such race it goes unnoticed, and a decision is charged to another key, with a probability of 1 in 2^64.
//
// The algorithm of Bucket and Table is the generic cell rate algorithm of ATM (ITU-T I.371, annex A,
// virtual scheduling), which needs one number per key: the theoretical arrival time. Who keeps that number elsewhere finds the arithmetic
// on it in Params: Used, Level, TATOf and their neighbours.
package bucket
