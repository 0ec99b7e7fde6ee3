package definition

import (
	"slices"
	"strings"
	"testing"
)

// outline shows shapes and texts of a value.
func outline(v Value) string {
	switch v.Shape {
	case Null:
		return "null"
	case Sequence:
		var s []string
		for _, item := range v.Items {
			s = append(s, outline(item))
		}
		return "[" + strings.Join(s, " ") + "]"
	case Group:
		var s []string
		for _, m := range v.Members {
			s = append(s, m.Name.Text+":"+outline(m.Value))
		}
		return "{" + strings.Join(s, " ") + "}"
	}
	return map[Shape]string{String: "s", Whole: "i", Fraction: "f", Bool: "b"}[v.Shape] + v.Text
}

func TestFromJSON(t *testing.T) {
	for text, want := range map[string]string{
		` {"a":1,"b":[2.5,1e3,-4,"x\u00e9",true,null],"c":{},"d":[{"e":false}]} `: `{a:i1 b:[f2.5 f1e3 i-4 sxé btrue null] c:{} d:[{e:bfalse}]}`,
		`{"a":1,"a":"2"}`:                `{a:i1 a:s2}`,
		`"text"`:                         `stext`,
		`123456789012345678901234567890`: `i123456789012345678901234567890`,
	} {
		if v, err := FromJSON([]byte(text)); err != nil || outline(v) != want {
			t.Errorf("%s: %s, %v, want %s", text, outline(v), err, want)
		}
	}
	for text, want := range map[string]string{
		"":                         "it is not JSON, at line 1, column 1",
		"{\n \"a\": 1,\n}":         "it is not JSON, at line 3, column 1",
		"{} {}":                    "it is not JSON, at line 1, column 4",
		"\"\xff\"":                 "it is not UTF-8 text",
		strings.Repeat("[", 20000): "it is not JSON",
	} {
		if _, err := FromJSON([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
}

func TestFieldsGivenTwiceAreToldWithBothPlaces(t *testing.T) {
	text := []byte("{\"name\":\"é\",\n \"rate\":\"1/s\", \"rate\":\"2/s\"}")
	v, err := FromJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	r := Reader{Place: PlaceIn(text), Problem: func(at Value, path, text string) { got = append(got, PlaceIn([]byte("x"))(at)+" "+path+" "+text) }}
	entries := r.Entries(v, "")
	if len(entries) != 2 || len(got) != 1 || !strings.HasSuffix(got[0], "rate is given twice, here and at line 2, column 7: keep one") {
		t.Errorf("%d entries, %q", len(entries), got)
	}
	if names := FieldNames(); !slices.Contains(names, "rate") || FieldOf("none") != nil || FieldOf("rate").Kind != Word {
		t.Errorf("%q", names)
	}
}
