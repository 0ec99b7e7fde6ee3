package httpapi

import (
	"context"
	"time"

	"github.com/jatah-io/jatah"
)

// Decided is a call that was decided, for [Config.Decided]: what a trace or an audit wants to know of it. It is the callee's only until that returns.
type Decided struct {
	Call  string // take, take-all, batch, acquire, refund or charge
	Began time.Time
	Takes []DecidedTake // without those of a batch that are bad
}

// DecidedTake is one of the decisions of a call.
type DecidedTake struct {
	Limit    string
	Key      string // valid until Config.Decided returns
	Cost     int64  // in tokens, or 1 for a permit
	Decision jatah.Decision
}

// observed is op with the program's hook.
func (h *Handler) observed(call string, op operation) operation {
	if h.cfg.Decided == nil {
		return op
	}
	return func(l *jatah.Limiter, ctx context.Context, key string, cost int64) jatah.Decision {
		began := time.Now()
		d := op(l, ctx, key, cost)
		h.tell(ctx, call, began, DecidedTake{l.Terms(key).Name, key, cost, d})
		return d
	}
}

func (h *Handler) tell(ctx context.Context, call string, began time.Time, takes ...DecidedTake) {
	h.cfg.Decided(ctx, &Decided{Call: call, Began: began, Takes: takes})
}

// now is the time where somebody wants to know it.
func (h *Handler) now() (t time.Time) {
	if h.cfg.Decided != nil {
		t = time.Now()
	}
	return t
}

// tellOfItems tells of a batch or take-all; ds are the decisions about the items that are not bad.
func (h *Handler) tellOfItems(ctx context.Context, call string, began time.Time, items []item, ds []jatah.Decision) {
	if h.cfg.Decided == nil {
		return
	}
	takes := make([]DecidedTake, 0, len(ds))
	for i := range items {
		if it := &items[i]; it.bad == nil && len(takes) < len(ds) {
			takes = append(takes, DecidedTake{it.face.Name, it.key, it.cost, ds[len(takes)]})
		}
	}
	h.tell(ctx, call, began, takes...)
}
