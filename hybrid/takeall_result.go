package hybrid

import (
	"slices"
)

// result counts and describes what was decided. A part that would have passed where the whole was refused counts as nothing: no
// token of it was used, and nobody refused it.
func (x *All) result() AllDecision {
	r := AllDecision{OK: x.ok, Decisions: make([]Decision, x.takes)}
	for i := range x.parts {
		p := &x.parts[i]
		switch {
		case p.refused():
			r.RetryAfter = max(r.RetryAfter, p.d.RetryAfter)
			if p.d.Err != nil {
				r.Err = p.d.Err
			} else if !slices.Contains(r.Violated, p.s.Name) {
				r.Violated = append(r.Violated, p.s.Name)
			}
		case !p.decided: // another part had an error: this one was not looked at
			p.d.Mode = p.s.Mode
		}
	}
	if r.Err != nil {
		r.OK, r.Violated = false, nil
	}
	for i := range x.parts {
		if p := &x.parts[i]; r.Err == nil && (x.ok || !p.d.OK) {
			if p.taken {
				p.d = p.l.countBare(p.s, p.key, p.cost, p.d)
			} else {
				p.d = p.l.count(p.s, p.key, p.d)
			}
		}
	}
	first := -1
	for _, k := range x.links { // the links of one take follow each other, its own key first
		if d := x.parts[k.part].d; k.take != first {
			first = k.take
			r.Decisions[k.take] = d
		} else {
			r.Decisions[k.take].Under(d)
		}
	}
	return r
}

// Under makes d, of a key, the decision of the key and its parent together.
func (d *Decision) Under(parent Decision) {
	switch {
	case d.Err != nil:
	case parent.Err != nil:
		d.OK, d.Err = false, parent.Err
	case !parent.OK && (d.OK || parent.RetryAfter > d.RetryAfter):
		d.OK, d.Source, d.asOf, d.MaxExcess = false, parent.Source, parent.asOf, parent.MaxExcess
	}
	d.Remaining = min(d.Remaining, parent.Remaining)
	d.RetryAfter = max(d.RetryAfter, parent.RetryAfter)
	d.ResetAfter = max(d.ResetAfter, parent.ResetAfter)
	if d.Delay = max(d.Delay, parent.Delay); !d.OK { // a parent that queues holds back all that is under it
		d.Delay = 0
	}
	d.DryRun = d.DryRun || parent.DryRun
}
