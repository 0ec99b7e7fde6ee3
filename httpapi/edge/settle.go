package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/jatah-io/jatah"
)

// settleCosts brings what was taken to what the request has cost, now that it is over. gone says that the client has left: it owes all the
// same. ctx does not end with it.
func (v *Verdict) settleCosts(ctx context.Context, o Outcome, gone bool) {
	if !v.OK || v.WouldRefuse || v.Err != nil {
		return // nothing was taken, and but for a dry run or FailOpen it would not have run
	}
	unsure := unproved(o, gone)
	if o.Status == 0 {
		o.Status = http.StatusOK
	}
	if o.Took == 0 && !v.began.IsZero() {
		o.Took = time.Since(v.began)
	}
	for _, i := range v.rule.tokens {
		u, t := &v.rule.Uses[i], &v.Takes[i]
		if !u.late() {
			continue
		}
		actual := t.Cost
		if u.Counts != nil && !unsure && !u.Counts(o.Status) {
			actual = 0
		}
		for _, after := range u.After {
			actual = saturating(actual, max(0, after(v.request, o)))
		}
		t.commit(ctx, actual)
		if v.rule.candidates != nil {
			v.measure(i, actual)
		}
	}
}

// unproved says that the status does not tell how the request went: the handler panicked, or the client left and the handler said nothing, or what
// programs and proxies say of that: 408, 499 or an error of theirs. Such a request counts, or hanging up at the right moment would be a try, and
// the work of it, for nothing.
func unproved(o Outcome, gone bool) bool {
	return o.Failed || gone && (o.Status == 0 || o.Status == http.StatusRequestTimeout || o.Status >= 499)
}

// commit settles a take at what the request really cost: see jatah.Reservation.Commit, which this does for takes of several limits too.
func (t *Taken) commit(ctx context.Context, actual int64) {
	switch {
	case t.Decision.DryRun:
	case actual > t.Cost:
		t.limiter.Charge(ctx, t.Key, actual-t.Cost)
	case actual < t.Cost && t.Decision.Source != jatah.SourceAllow:
		t.limiter.Refund(ctx, t.Key, t.Cost-actual)
	}
}
