package config

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is what every refused configuration is (errors.Is).
var ErrInvalid = errors.New("config: invalid")

// Problem is one mistake and what to do about it. A plain value.
type Problem struct {
	Source string // the file, or the variable or flag ("--http")
	Line   int    // 1-based; 0 for variables and flags
	Column int    // 1-based, in characters; 0 for variables and flags
	Field  string // path of the field, "" when it is not about one
	Text   string // a sentence without its full stop
}

// Error is "source:line:column: field: text", without the parts that are empty.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Source)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field)
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems are all mistakes of one configuration, in the order of the
// layers, then of the lines. It is an error, one line for each mistake.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Is makes errors.Is(err, ErrInvalid) true.
func (ps Problems) Is(target error) bool { return target == ErrInvalid }

// place is where a value was written.
type place struct {
	layer  layer
	source string
	line   int
	column int
}

func (p place) String() string {
	if p.line > 0 {
		return fmt.Sprintf("line %d of %s", p.line, p.source)
	}
	return p.source
}

// layer orders the sources: a higher one beats a lower one.
type layer int

const (
	inFile layer = iota + 1
	inEnvironment
	inFlags
)
