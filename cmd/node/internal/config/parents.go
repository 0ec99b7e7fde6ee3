package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/jatah-io/jatah"
)

// orderLimits refuses parents that no limit is, and those that lead back to where they began; otherwise it puts every limit
// behind its parent, the order in which a node takes them. Among themselves they stay as they were written.
func (l *loader) orderLimits() {
	if !slices.ContainsFunc(l.cfg.Limits, func(x jatah.Limit) bool { return x.Parent != "" }) {
		return
	}
	byName, names := map[string]jatah.Limit{}, make([]string, len(l.cfg.Limits))
	for i, x := range l.cfg.Limits {
		byName[x.Name], names[i] = x, x.Name
	}
	depth := map[string]int{}
	for _, x := range l.cfg.Limits {
		path := []string{x.Name}
		for up := x; up.Parent != ""; {
			parent, ok := byName[up.Parent]
			if !ok {
				l.unknownParent(x, up, names)
				break
			}
			if parent.Algorithm == jatah.Concurrency && up.Name == x.Name {
				l.problem(l.limitAt[x.Name], parentOf(x), "%q has algorithm concurrency: permits are not tokens; name a limit that has a rate", shorten(parent.Name))
			}
			again := slices.Contains(path, parent.Name)
			if !again && len(path) == maxParents+1 {
				l.problem(l.limitAt[x.Name], parentOf(x), "there are more than %d parents above %q: %s; remove some of them", maxParents, x.Name, quoted(append(path, parent.Name)))
				break
			}
			if path = append(path, parent.Name); again {
				if parent.Name == x.Name { // one that leads into a circle is not in it: those in it are told
					l.problem(l.limitAt[x.Name], parentOf(x), "the parents lead back to %q: %s; remove one of them", x.Name, quoted(path))
				}
				break
			}
			up = parent
		}
		depth[x.Name] = len(path)
	}
	slices.SortStableFunc(l.cfg.Limits, func(a, b jatah.Limit) int { return depth[a.Name] - depth[b.Name] })
}

// maxParents is how long a chain of parents may be; a node refuses longer ones.
const maxParents = 8

func parentOf(x jatah.Limit) string { return limitsPath + "." + x.Name + ".parent" }

// unknownParent is told at the limit that names it only.
func (l *loader) unknownParent(x, up jatah.Limit, names []string) {
	if x.Name != up.Name {
		return
	}
	others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == x.Name })
	switch near := nearest(x.Parent, others); {
	case near != "":
		l.problem(l.limitAt[x.Name], parentOf(x), "no limit is named %q: did you mean %q?", shorten(x.Parent), near)
	case len(others) == 0:
		l.problem(l.limitAt[x.Name], parentOf(x), "no limit is named %q: define it too", shorten(x.Parent))
	default:
		l.problem(l.limitAt[x.Name], parentOf(x), "no limit is named %q: there are %s; define it too", shorten(x.Parent), strings.Join(others, ", "))
	}
}

func quoted(path []string) string {
	q := make([]string, len(path))
	for i, name := range path {
		q[i] = strconv.Quote(name)
	}
	return strings.Join(q, " under ")
}
