package definition

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest finds the known word that a misspelt one was meant to be, or "".
// At most a third of the letters may differ, so that a word which means
// something else is not offered.
func Nearest(word string, known []string) string {
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with
// the neighbour (optimal string alignment) to make b of a.
func distance(a, b string) int {
	// A long word is no misspelling of a short one, and the table below would
	// cost a product of lengths that a file can choose.
	if max(len(a), len(b)) > 64 {
		return max(len(a), len(b))
	}
	var before, previous []int
	current := make([]int, len(b)+1)
	for j := range current {
		current[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, previous = previous, slices.Clone(current)
		current[0] = i
		for j := 1; j <= len(b); j++ {
			replace := previous[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			current[j] = min(replace, previous[j]+1, current[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
	}
	return current[len(b)]
}

// UnknownField says what a name that is no field was meant to be. Others maps the fields of other sections to their section.
func UnknownField(name, where string, known []string, others map[string]string) string {
	text := fmt.Sprintf("%q is not %s", Shorten(name), where)
	if section, ok := others[name]; ok {
		if section == "" {
			return text + ": it belongs at the top level, not indented"
		}
		return text + ": it belongs under " + section
	}
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf("%s: did you mean %q?", text, near)
	}
	return text + "; there are " + strings.Join(known, ", ")
}
