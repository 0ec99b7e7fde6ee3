package definition

import (
	"fmt"
	"strings"
)

// Kind is what the value of a field must be.
type Kind int

const (
	Text     Kind = iota // a string in which anything may stand
	Word                 // a string with a form of its own, such as a rate
	Integer              // a whole number
	Number               // a whole number or a fraction
	Boolean              // true or false
	Duration             // a string such as 100ms
	List                 // a list of strings
	Table                // names with what belongs to them
)

// Shape is what a value is.
type Shape int

const (
	Odd       Shape = iota // nothing that a field can have; Text says what, in words
	Null                   // nothing
	String                 // Text
	Lines                  // Text, written over several lines
	Whole                  // the digits of a whole number are in Text
	Fraction               // those of another number
	NotNumber              // infinite, or none; Text is how it is written
	Bool                   // Text is true or false
	Sequence               // Items
	Group                  // Members
)

// Value is a piece of a document. A plain value; its slices are shared.
type Value struct {
	Shape   Shape
	Text    string
	Items   []Value
	Members []Member
	// Joined is the text that was meant by a group in a list, where the syntax takes a colon in it for that of a name; "": none.
	Joined string
	// At is where it stands, for whoever made it.
	At any
}

// Member is a name in a group and what belongs to it.
type Member struct {
	Name  Value // whose shape is String, or it is reported
	Value Value
}

// Scalar is the value as it is written, if it is of the kind.
func (v Value) Scalar(k Kind) (string, bool) {
	switch v.Shape {
	case String:
		return v.Text, k == Text || k == Word || k == Duration
	case Lines:
		return v.Text, k == Text || k == Word
	case Whole:
		return v.Text, k == Integer || k == Number
	case Fraction:
		return v.Text, k == Number
	case Bool:
		return v.Text, k == Boolean
	}
	return "", false
}

// Hint says how to write as text what was taken for something else; "": nothing to say.
func (v Value) Hint(k Kind) string {
	if k == Text && (v.Shape == Whole || v.Shape == Fraction || v.Shape == Bool) {
		return fmt.Sprintf(" (in quotes it is text: %q)", v.Text)
	}
	return ""
}

// Describe says in words what the value is.
func (v Value) Describe() string {
	switch v.Shape {
	case Null:
		return "empty"
	case String:
		return fmt.Sprintf("the text %q", Shorten(v.Text))
	case Lines:
		return "a text of several lines"
	case Whole, Fraction, NotNumber:
		return "the number " + Shorten(v.Text)
	case Bool:
		return v.Text
	case Sequence:
		return "a list"
	case Group:
		return "a group of fields"
	}
	return v.Text
}

// Shorten cuts what was taken for a word and may be a screenful.
func Shorten(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "..."
	}
	return s
}

// Under is the path of a field under another; "" is the whole.
func Under(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
