package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// FromJSON is a JSON text as a value. At is where it ends, as an int in bytes from the beginning; see [PlaceIn]. Names that are given twice are
// there twice. The error is a sentence without full stop.
func FromJSON(b []byte) (Value, error) {
	if !utf8.Valid(b) {
		return Value{}, errors.New("it is not UTF-8 text")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(b, &whole); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return Value{}, fmt.Errorf("it is not JSON, at %s: %w", placeOf(b, int(syntax.Offset)), err)
		}
		return Value{}, fmt.Errorf("it is not JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return fromTokens(d), nil
}

// PlaceIn says where values of a JSON text stand.
func PlaceIn(b []byte) func(Value) string {
	return func(v Value) string { return placeOf(b, v.At.(int)) }
}

func placeOf(b []byte, end int) string {
	before := b[:min(end, len(b))]
	return fmt.Sprintf("line %d, column %d", 1+bytes.Count(before, []byte("\n")), max(1, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])))
}

// fromTokens reads one value of a text that is known to be well formed.
func fromTokens(d *json.Decoder) (v Value) {
	t, _ := d.Token()
	v.At = int(d.InputOffset())
	switch t := t.(type) {
	case nil:
		v.Shape = Null
	case string:
		v.Shape, v.Text = String, t
	case json.Number:
		if v.Shape, v.Text = Whole, t.String(); strings.ContainsAny(v.Text, ".eE") {
			v.Shape = Fraction
		}
	case bool:
		v.Shape, v.Text = Bool, fmt.Sprint(t)
	case json.Delim:
		if v.Shape = Sequence; t == '{' {
			v.Shape = Group
		}
		for d.More() {
			if v.Shape == Sequence {
				v.Items = append(v.Items, fromTokens(d))
				continue
			}
			name := fromTokens(d)
			v.Members = append(v.Members, Member{Name: name, Value: fromTokens(d)})
		}
		_, _ = d.Token()
	}
	return v
}
