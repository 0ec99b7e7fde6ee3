package hybrid

import (
	"fmt"
	"slices"
)

// CheckAll says what Define would say against each of several definitions, whose names differ, once all of them were defined and the limits
// named in gone were removed. So they can be defined all or none: it is nil if all are good, else it has an entry for each definition, nil
// where that is good. A name that is also among specs is removed first, so that it can become what it could not while it is in use. It changes nothing; the caller sees to it that nobody else defines or removes limits until it has done so itself.
func (e *Engine) CheckAll(specs []Spec, gone []string) []error {
	next := make(map[string]*Spec, len(specs)+len(gone))
	for _, name := range gone {
		next[name] = nil
	}
	for i := range specs {
		next[specs[i].Name] = &specs[i]
	}
	after := func(name string) *Spec {
		if s, ok := next[name]; ok {
			return s
		}
		return e.specOf(name)
	}
	var errs []error
	for i := range specs {
		now := e.specOf(specs[i].Name)
		if slices.Contains(gone, specs[i].Name) {
			now = nil
		}
		if err := check(&specs[i], now, after); err != nil {
			if errs == nil {
				errs = make([]error, len(specs))
			}
			errs[i] = err
		}
	}
	return errs
}

// check is about one that takes the place of now, nil: of none.
func check(s, now *Spec, after func(name string) *Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if _, _, err := compilePlans(*s); err != nil {
		return err
	}
	if now != nil {
		if err := checkChange(now, s); err != nil {
			return err
		}
	}
	return checkParents(s, after)
}

// checkChange refuses what a limit in use cannot become: permits are not tokens.
func checkChange(now, next *Spec) error {
	if now.permits() != next.permits() {
		return fmt.Errorf("%w %q: it cannot become concurrency, or stop being it, while it is in use; remove it first, or give the new one another name", ErrSpec, next.Name)
	}
	return nil
}
