package fields

import (
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// Merge sets the fields of a response that may have some already, of a limiter around this one. RateLimit and RateLimit-Policy are lists: ours are
// appended, as lines of their own. What is there by the same name is kept, unless ours has less left. In the other families there is room for one
// limit: the one with the least left. A Retry-After that is there is replaced, since who refuses last refuses alone.
func (v *Values) Merge(head http.Header, o Options) {
	if head[Names[RateLimit]] == nil && head[Names[Policy]] == nil && head[XNames[1]] == nil && head[LegacyNames[1]] == nil {
		v.Put(head, o)
		return
	}
	rest := *v
	rest[RateLimit], rest[Policy] = "", ""
	other := o
	other.OmitXRateLimit = o.OmitXRateLimit || !rest.leastLeft(head, &XNames)
	other.Legacy = o.Legacy && rest.leastLeft(head, &LegacyNames)
	rest.Put(head, other)

	replaced := map[string]bool{}
	mergeList(head, Names[RateLimit], v[RateLimit], func(name, ours, theirs string) bool {
		replaced[name] = lessLeft(ours, theirs)
		return replaced[name]
	})
	mergeList(head, Names[Policy], v[Policy], func(name, _, _ string) bool { return replaced[name] })
}

// leastLeft says whether ours has less left than what the header says, or as little and refuses. Then it makes room.
func (v *Values) leastLeft(head http.Header, names *[Num - Limit]string) bool {
	if there := head[names[Remaining-Limit]]; len(there) > 0 {
		ours, theirs := number(v[Remaining]), number(there[0])
		if theirs < ours || theirs == ours && v[RetryAfter] == "" {
			return false
		}
	}
	for _, name := range names {
		delete(head, name)
	}
	return true
}

// mergeList appends our members to a list. better says whether our member takes the place of theirs with the same name.
func mergeList(head http.Header, field, list string, better func(name, ours, theirs string) bool) {
	if list == "" {
		return
	}
	lines, fresh := head[field], []string(nil)
	for name, ours := range members(list) {
		theirs, ok := find(lines, name)
		if ok && !better(name, ours, theirs) {
			continue
		}
		if ok {
			lines = without(lines, name)
		}
		fresh = append(fresh, ours)
	}
	if len(fresh) > 0 {
		lines = append(lines[:len(lines):len(lines)], strings.Join(fresh, ", ")) // the lines may be shared with whoever set them
	}
	head[field] = lines
}

func find(lines []string, name string) (member string, ok bool) {
	for _, line := range lines {
		for n, m := range members(line) {
			if n == name {
				return m, true
			}
		}
	}
	return "", false
}

func without(lines []string, name string) []string {
	var left []string
	for _, line := range lines {
		var kept []string
		for n, m := range members(line) {
			if n != name {
				kept = append(kept, m)
			}
		}
		if len(kept) > 0 {
			left = append(left, strings.Join(kept, ", "))
		}
	}
	return left
}

// lessLeft compares two members of RateLimit: fewer units, or as few and longer to wait.
func lessLeft(ours, theirs string) bool {
	r, than := param(ours, ";r="), param(theirs, ";r=")
	return r < than || r == than && param(ours, ";t=") > param(theirs, ";t=")
}

// param is a parameter of a member, after its name; the most there can be if it has none.
func param(member, key string) int64 {
	_, params, ok := strings.Cut(member[len(quoted(member)):], key)
	if !ok {
		return math.MaxInt64
	}
	if i := strings.IndexAny(params, "; \t"); i >= 0 {
		params = params[:i]
	}
	return number(params)
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64
	}
	return n
}

// members are those of a line of a list, each with its name as it is written, quotes and all. What does not begin with a string has no name.
func members(line string) iter.Seq2[string, string] {
	return func(yield func(name, member string) bool) {
		for line != "" {
			line = strings.TrimLeft(line, ", \t")
			name := quoted(line)
			end := len(name)
			for end < len(line) && line[end] != ',' {
				end += max(1, len(quoted(line[end:])))
			}
			if m := strings.TrimRight(line[:end], " \t"); m != "" && !yield(name, m) {
				return
			}
			line = line[end:]
		}
	}
}

// quoted is the string with which s begins, with its quotes; "": s begins otherwise. A string that does not end ends with s.
func quoted(s string) string {
	if s == "" || s[0] != '"' {
		return ""
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i+1]
		}
	}
	return s
}
