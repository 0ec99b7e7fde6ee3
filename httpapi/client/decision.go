package client

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Never is the wait that says: no wait helps.
const Never time.Duration = math.MaxInt64

// Decision is the answer to a take, refund or charge.
type Decision struct {
	Allowed bool
	Limit   string
	Key     Key
	Plan    string // whose amounts the decision is about; "": the limit's own, or an override's
	Cost    int64  // tokens, also where a route was asked for

	Remaining int64 // whole tokens left
	// RetryAfter: after this the same request passes, if nothing else comes. 0 if allowed; Never when no wait helps.
	RetryAfter time.Duration
	// ResetAfter is until the key is full again, if nothing else comes; Never if that is not known or never.
	ResetAfter time.Duration
	// Delay is what an allowed request must wait before it goes on: it has a place in the queue of a leaky bucket.
	Delay time.Duration

	Mode   string // of the limit: hybrid, strict, split
	Source string // how it was decided: local, owner, or by a fallback: share, ahead, deny, allow
	DryRun bool   // it would have been denied, were the limit not in dry run
	Reason string // why no wait helps; "": one does
}

// final says that a denial is for ever. One of a fallback is not: it ends when the owner answers again.
func (d *Decision) final() bool {
	return d.RetryAfter == Never && (d.Source == "local" || d.Source == "owner")
}

type decisionBody struct {
	Allowed      *bool  `json:"allowed"` // nil: this is no decision
	Limit        string `json:"limit"`
	Key          Key    `json:"key"`
	Plan         string `json:"plan"`
	Cost         int64  `json:"cost"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetAfterMS *int64 `json:"reset_after_ms"`
	DelayMS      int64  `json:"delay_ms"`
	Mode         string `json:"mode"`
	Source       string `json:"source"`
	DryRun       bool   `json:"dry_run"`
	Reason       string `json:"reason"`
	Permit       string `json:"permit"`
	ExpiresInMS  int64  `json:"expires_in_ms"`
}

// decision is what a body says; the key is what was asked for, byte for byte.
func (b *decisionBody) decision(key Key) Decision {
	return Decision{
		Allowed: *b.Allowed, Limit: b.Limit, Key: key, Plan: b.Plan, Cost: b.Cost, Remaining: b.Remaining,
		RetryAfter: wait(b.RetryAfterMS), ResetAfter: wait(b.ResetAfterMS), Delay: wait(&b.DelayMS),
		Mode: b.Mode, Source: b.Source, DryRun: b.DryRun, Reason: b.Reason,
	}
}

// wait is a wait in milliseconds; nil: Never.
func wait(ms *int64) time.Duration {
	if ms == nil || *ms > math.MaxInt64/int64(time.Millisecond) {
		return Never
	}
	return time.Duration(*ms) * time.Millisecond
}

// readDecision reads the answer to a call that makes one.
func readDecision(a answer) (b decisionBody, err error) {
	if err = a.read("a decision", &b); err == nil && b.Allowed == nil {
		err = notAn(a.addr, "a decision", nil)
	}
	return b, err
}

// read decodes an answer that should be what.
func (a *answer) read(what string, into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return notAn(a.addr, what, err)
	}
	return nil
}

func notAn(addr, what string, err error) error {
	if err == nil {
		return fmt.Errorf("%w: the answer of %s is not %s", ErrAnswer, addr, what)
	}
	return fmt.Errorf("%w: the answer of %s is not %s: %w", ErrAnswer, addr, what, err)
}
