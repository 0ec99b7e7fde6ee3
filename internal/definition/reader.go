package definition

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
)

// Reader reads limits from values. It has no state.
type Reader struct {
	// Problem gets each mistake: its value, the path of its field and a sentence without full stop.
	Problem func(at Value, path, text string)
	// Place says in words where a value stands, for sentences about two of them.
	Place func(Value) string
}

func (r Reader) problem(at Value, path, format string, args ...any) {
	r.Problem(at, path, fmt.Sprintf(format, args...))
}

// counting is a reader that knows whether it has found something.
func (r Reader) counting() (Reader, *int) {
	n, tell := new(int), r.Problem
	r.Problem = func(at Value, path, text string) {
		*n++
		tell(at, path, text)
	}
	return r, n
}

// Entry is a name and its value.
type Entry struct {
	Name  string
	At    Value // the name
	Value Value
}

// Entries are the members of a group, without those that are not names or are given twice, which are told. An empty value is an empty
// group: that is what remains when all lines under a heading are commented out.
func (r Reader) Entries(v Value, path string) (out []Entry) {
	switch v.Shape {
	case Null:
		return nil
	case Group:
	default:
		r.problem(v, path, "needs fields, one `name: value` a line; this is %s", v.Describe())
		return nil
	}
	first := make(map[string]Value, len(v.Members))
	for _, m := range v.Members {
		if m.Name.Shape != String {
			r.problem(m.Name, path, "a field's name must be a plain word; this is %s", m.Name.Describe())
			continue
		}
		if before, twice := first[m.Name.Text]; twice {
			r.problem(m.Name, Under(path, m.Name.Text), "is given twice, here and at %s: keep one", r.Place(before))
			continue
		}
		first[m.Name.Text] = m.Name
		out = append(out, Entry{Name: m.Name.Text, At: m.Name, Value: m.Value})
	}
	return out
}

// Values reads the value of a field, which must be of its kind: one unless that is List.
func (r Reader) Values(v Value, path string, k Kind, want string) ([]string, bool) {
	if k == List {
		return r.list(v, path, want)
	}
	value, ok := v.Scalar(k)
	if !ok {
		r.problem(v, path, "needs %s; this is %s", want, v.Describe()+v.Hint(k))
		return nil, false
	}
	return []string{value}, true
}

func (r Reader) list(v Value, path, want string) ([]string, bool) {
	switch v.Shape {
	case Null:
		return nil, false
	case Sequence:
	default:
		r.problem(v, path, "needs a list of %s, as in [a, b]; this is %s", want, v.Describe())
		return nil, false
	}
	out, ok := []string{}, true
	for _, item := range v.Items {
		value, isText := item.Scalar(Word)
		if !isText {
			value, isText = item.Joined, item.Joined != ""
		}
		if !isText {
			r.problem(item, path, "needs %s; this is %s", want, item.Describe())
			ok = false
			continue
		}
		out = append(out, value)
	}
	return out, ok
}

// Limit reads a limit; it is false if there was a problem.
func (r Reader) Limit(v Value, path string) (limit jatah.Limit, ok bool) {
	r, problems := r.counting()
	if v.Shape == Null {
		r.problem(v, path, "is empty: give it a name and a rate, or remove the dash")
		return limit, false
	}
	var costs []Entry
	var fits []fit
	given := map[string]bool{}
	entries := r.Entries(v, path)
	for _, e := range entries {
		given[e.Name] = true
		f := FieldOf(e.Name)
		at := Under(path, e.Name)
		switch {
		case f == nil:
			r.problem(e.At, at, "%s", UnknownField(e.Name, "a field of a limit", FieldNames(), nil))
		case e.Name == Costs:
			costs = r.costs(e.Value, at, &limit)
		case e.Name == Plans:
			fits = append(fits, r.plans(e.Value, path, &limit)...)
		case e.Name == Overrides:
			fits = append(fits, r.overrides(e.Value, path, &limit, planNames(entries))...)
		default:
			r.set(&limit, e.Value, at, f)
		}
	}
	if *problems > 0 {
		return limit, false
	}
	given["rate"] = given["rate"] || given["rates"]
	for _, name := range []string{"name", "rate"} {
		if !given[name] && (name == "name" || limit.Algorithm != jatah.Concurrency) { // of permits there is no rate
			r.problem(v, path, "has no %s: add `%s: ` with %s", name, name, FieldOf(name).Want)
			return limit, false
		}
	}
	if r.fitAmounts(fits, limit); *problems > 0 {
		return limit, false
	}
	if r.fitCosts(costs, Under(path, Costs), limit); *problems > 0 {
		return limit, false
	}
	if err := limit.Validate(); err != nil {
		r.blame(err, v, path, limit, entries)
	}
	return limit, *problems == 0
}

// blame tells a mistake of a whole limit at the field that it begins with, or else at the limit.
func (r Reader) blame(err error, v Value, path string, limit jatah.Limit, entries []Entry) {
	text := Verdict(err, limit.Name)
	if i := slices.IndexFunc(entries, func(e Entry) bool { return strings.HasPrefix(strings.TrimPrefix(text, "the "), e.Name+" ") }); i >= 0 {
		r.problem(entries[i].At, Under(path, entries[i].Name), "%s", text)
		return
	}
	r.problem(v, WholePath(path, limit.Name), "%s", text)
}

// WholePath is what a mistake of a limit as a whole is told under: its name, where it is one of a list.
func WholePath(path, name string) string {
	if list, _, ok := strings.Cut(path, "["); ok {
		return Under(list, name)
	}
	return path
}

// set gives a limit the value of one field, or each element of its list.
func (r Reader) set(limit *jatah.Limit, v Value, path string, f *Field) {
	items := []Value{v}
	if v.Shape == Sequence {
		items = v.Items
	}
	if f.Kind == List && (v.Shape == Null || len(items) == 0) {
		r.problem(v, path, "is empty: write a list of %s, or remove the line", f.Want)
		return
	}
	values, ok := r.Values(v, path, f.Kind, f.Want)
	if !ok {
		return
	}
	for i, value := range values {
		if err := f.Set(limit, value); err != nil {
			r.problem(items[i], path, "%s", Plain(err))
		}
	}
}
