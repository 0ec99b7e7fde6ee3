package report

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrWrite is wrapped by every error about the files of a report.
var ErrWrite = errors.New("report: cannot write the results")

// Write renders the samples as dir/<date>-<commit>.md with plots in dir/<date>-<commit>/ and returns the name of the page. It makes dir, and replaces
// an earlier page of that name and its plots. Suites without samples are left out.
func Write(dir string, m Meta, suites []Suite, samples []Sample) (string, error) {
	if m.Commit == "" || strings.ContainsAny(m.Commit, `/\`) {
		return "", fmt.Errorf("%w: the commit %q cannot be part of a file's name", ErrWrite, m.Commit)
	}
	plots := filepath.Join(dir, m.Stem())
	if err := os.RemoveAll(plots); err != nil {
		return "", fmt.Errorf("%w: %w", ErrWrite, err)
	}
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return "", fmt.Errorf("%w: %w", ErrWrite, err)
	}
	var page strings.Builder
	m.head(&page)
	set := Collect(samples)
	for _, s := range suites {
		if len(set.All(s.Name)) == 0 {
			continue
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", s.Name, strings.TrimSpace(s.Doc))
		if err := s.body(&page, set, plots, m.Stem()); err != nil {
			return "", fmt.Errorf("%w: suite %s: %w", ErrWrite, s.Name, err)
		}
	}
	name := plots + ".md"
	if err := os.WriteFile(name, []byte(page.String()), 0o644); err != nil {
		return "", fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return name, nil
}

func (m Meta) head(b *strings.Builder) {
	fmt.Fprintf(b, "# Results of %s, commit %s\n\n", m.Start.UTC().Format("2006-01-02 15:04 UTC"), m.Commit)
	if m.Short {
		b.WriteString("**A short run: the numbers only show that everything works.**\n\n")
	}
	fmt.Fprintf(b, "`%s`; %d rounds in which all peers take turns; it took %v.\n\n", m.Command, m.Rounds, m.Took.Round(1e9))
	for _, row := range [][2]string{
		{"machine", fmt.Sprintf("%s, %d processors, memory %s", m.Processor, m.Processors, m.Memory)},
		{"system", m.Kernel + ", " + m.Go},
		{"load average before and after", m.LoadBefore + "; " + m.LoadAfter},
		{"measured", strings.Join(m.Versions, ", ")},
	} {
		fmt.Fprintf(b, "- %s: %s\n", row[0], cmp.Or(row[1], unknown))
	}
	b.WriteString("\nIn a cell: the median, (least–greatest), and in bold how many times the median of the suite's baseline it is.\n")
}

func (s Suite) body(b *strings.Builder, set Set, plots, link string) error {
	if s.Baseline != "" {
		fmt.Fprintf(b, "\nRatios are to %s.\n", s.Baseline)
	}
	for i, t := range tables(set, s.Name) {
		fmt.Fprintf(b, "\n%s", t.markdown(s.Baseline))
		if len(t.peers) < 2 || t.plain {
			continue
		}
		name := fmt.Sprintf("%s-%s-%d.svg", s.Name, fileName(t.unit), i+1)
		if err := t.drawValues(filepath.Join(plots, name)); err != nil {
			return err
		}
		fmt.Fprintf(b, "\n![%s](%s/%s)\n", t.unit, link, name)
	}
	for i, t := range curves(set, s.Name) {
		name := fmt.Sprintf("%s-curve-%s-%d.svg", s.Name, fileName(t.cases[0]), i+1)
		if err := t.drawCurves(filepath.Join(plots, name)); err != nil {
			return err
		}
		fmt.Fprintf(b, "\n%s\n![%s](%s/%s)\n", t.points(), t.cases[0], link, name)
	}
	s.notes(b, set)
	return nil
}

// notes lists each peer's, each once.
func (s Suite) notes(b *strings.Builder, set Set) {
	var lines []string
	for _, one := range set.All(s.Name) {
		if line := fmt.Sprintf("- %s: %s\n", one.Peer, one.Note); one.Note != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s", strings.Join(lines, ""))
	}
}

// fileName leaves letters and digits.
func fileName(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		case r == 'µ':
			return 'u'
		}
		return '-'
	}, s), "-")
}
