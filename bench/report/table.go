package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// columns is how many cases fit beside each other in a table, and groups in a plot.
const columns = 4

// table is the part of a suite's results that is shown together: one unit, a few cases, all peers that have any of them.
type table struct {
	suite, unit string
	plain       bool
	cases       []string
	peers       []string
	cells       map[[2]string]Sample // by case and peer
}

// tables splits the values of a suite by unit and by cases.
func tables(s Set, suite string) []table {
	return split(s, suite, func(one Sample) bool { return len(one.Values) > 0 }, columns)
}

// curves splits the curves of a suite: one case each.
func curves(s Set, suite string) []table {
	return split(s, suite, func(one Sample) bool { return len(one.Points) > 0 }, 1)
}

func split(s Set, suite string, wanted func(Sample) bool, most int) []table {
	var all []table
	units := make(map[string][]string) // cases in their order
	var order []string
	of := s.All(suite)
	of = slices.DeleteFunc(of, func(one Sample) bool { return !wanted(one) })
	for _, one := range of {
		if !slices.Contains(order, one.Unit) {
			order = append(order, one.Unit)
		}
		if !slices.Contains(units[one.Unit], one.Case) {
			units[one.Unit] = append(units[one.Unit], one.Case)
		}
	}
	for _, unit := range order {
		for cases := range slices.Chunk(units[unit], most) {
			t := table{suite: suite, unit: unit, cases: cases, cells: make(map[[2]string]Sample)}
			for _, one := range of {
				if one.Unit != unit || !slices.Contains(cases, one.Case) {
					continue
				}
				if !slices.Contains(t.peers, one.Peer) {
					t.peers = append(t.peers, one.Peer)
				}
				t.cells[[2]string{one.Case, one.Peer}] = one
				t.plain = t.plain || one.Plain
			}
			all = append(all, t)
		}
	}
	return all
}

// markdown has a row for each peer and a column for each case: median, least to greatest, and how many times the baseline's median.
func (t table) markdown(baseline string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |\n|---|%s\n", t.unit, strings.Join(t.cases, " | "), strings.Repeat("---|", len(t.cases)))
	for _, peer := range t.peers {
		fmt.Fprintf(&b, "| %s |", peer)
		for _, c := range t.cases {
			fmt.Fprintf(&b, " %s |", t.cell(c, peer, baseline))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (t table) cell(c, peer, baseline string) string {
	one, ok := t.cells[[2]string{c, peer}]
	if !ok {
		return "–"
	}
	m := Median(one.Values)
	text := number(m)
	if least, most := slices.Min(one.Values), slices.Max(one.Values); least != most {
		text += fmt.Sprintf(" (%s–%s)", number(least), number(most))
	}
	if of, ok := t.cells[[2]string{c, baseline}]; ok && peer != baseline && !t.plain {
		if ratio := m / Median(of.Values); !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
			text += " **" + number(ratio) + "×**"
		}
	}
	return text
}

// points has a row for each peer and a column for each X, of which the widest tables show only some.
func (t table) points() string {
	c := t.cases[0]
	var xs []float64
	for _, peer := range t.peers {
		for _, p := range t.cells[[2]string{c, peer}].Points {
			if !slices.Contains(xs, p.X) {
				xs = append(xs, p.X)
			}
		}
	}
	slices.Sort(xs)
	xs = thin(xs, 10)
	var b strings.Builder
	fmt.Fprintf(&b, "| %s, %s at %s |", c, t.unit, t.label())
	for _, x := range xs {
		fmt.Fprintf(&b, " %s |", number(x))
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(xs)))
	for _, peer := range t.peers {
		fmt.Fprintf(&b, "| %s |", peer)
		for _, x := range xs {
			text := "–"
			for _, p := range t.cells[[2]string{c, peer}].Points {
				if p.X == x {
					text = number(p.Y)
				}
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// label is what the horizontal axis of a curve shows.
func (t table) label() string {
	for _, peer := range t.peers {
		if one, ok := t.cells[[2]string{t.cases[0], peer}]; ok && one.X != "" {
			return one.X
		}
	}
	return "x"
}

// thin leaves at most n of the values, evenly chosen, with the first and the last.
func thin(xs []float64, n int) []float64 {
	if len(xs) <= n {
		return xs
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = xs[i*(len(xs)-1)/(n-1)]
	}
	return out
}

// number has three digits that count, and spaces between thousands.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a >= 10_000:
		return spaced(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a > 0 && a < 0.0005:
		return "0.000"
	case a >= 1 || a == 0:
		return strconv.FormatFloat(v, 'g', 3, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

func spaced(digits string) string {
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "\u00a0" + digits[at:]
	}
	return digits
}
