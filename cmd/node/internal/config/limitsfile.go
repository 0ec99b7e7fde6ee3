package config

import (
	"errors"

	"github.com/goccy/go-yaml/ast"

	"github.com/jatah-io/jatah"
)

// readLimits reads a file of limits_dir.
func (l *loader) readLimits(name string, data []byte) {
	before, found := len(l.problems), false
	l.readYAML(name, data, func(w *walker, body ast.Node) { found = w.limitsFile(body) })
	if !found && len(l.problems) == before {
		l.problem(place{inFile, name, 1, 1}, limitsPath, "is missing: write a list of limits under `limits:`, `limits: []` if there are to be none, or remove the file")
	}
}

// limitsFile reads what a file of limits_dir may have: a list of limits. It says whether that was there, which it is not where a file is being
// written: half of a file must not be taken for one that has no limits any more.
func (w *walker) limitsFile(body ast.Node) (found bool) {
	for _, e := range w.entries(body, "") {
		_, empty := e.value.(*ast.NullNode)
		switch {
		case e.key != limitsPath:
			w.problem(e.node, e.key, "does not belong here: a file of limits_dir has limits only, under `limits:`; what is about the node stands in the configuration file")
		case empty:
			found = true
			w.problem(e.node, limitsPath, "is empty: write a list, or `limits: []` if there are to be none")
		default:
			found = true
			w.limits(e.value)
		}
	}
	return found
}

// Blame says where the limits were written that [jatah.Node.SetLimits] refused: what it returned becomes [Problems]. Other errors stay
// as they are. Call Config before.
func (s *Sources) Blame(err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var ps Problems
	for _, one := range all {
		var of *jatah.LimitError
		if !errors.As(one, &of) {
			return err
		}
		at := s.limitAt[of.Limit]
		ps = append(ps, Problem{Source: at.source, Line: at.line, Column: at.column, Field: limitsPath + "." + of.Limit, Text: verdict(of.Err, of.Limit)})
	}
	return ps
}
