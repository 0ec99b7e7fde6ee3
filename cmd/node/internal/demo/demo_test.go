package demo

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jatah-io/jatah"
)

const second = time.Second

// played is a run of ten seconds with a kill at 4 s and a return at 8 s, in
// which the hot key was admitted perSecond tokens a second after the burst.
func played(fallback jatah.Fallback, admittedPerSecond int, extra ...record) *show {
	s := &show{Options: Options{
		Limit:    jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 10, Mode: jatah.Strict, Fallback: fallback},
		Duration: 10 * second,
	}, length: 10 * second}
	for _, name := range []string{"n1", "n2", "n3"} {
		s.processes = append(s.processes, &process{name: name})
	}
	s.journal = newJournal(users)
	s.load = &load{}
	s.fault = fault{killed: 4 * second, back: 8 * second}
	for range 10 {
		s.journal.add(record{key: 0, outcome: admitted})
	}
	for at := second / time.Duration(admittedPerSecond); at < 10*second; at += second / time.Duration(admittedPerSecond) {
		s.journal.add(record{sent: at, done: at, key: 0, outcome: admitted})
		s.journal.add(record{sent: at, done: at + time.Millisecond, key: 0, outcome: refused})
	}
	for _, r := range extra {
		s.journal.add(r)
	}
	return s
}

func TestVerdictKeepsWhatIsWithinThePromise(t *testing.T) {
	v := judge(played(jatah.FallbackShare, 10))
	text := strings.Join(v.lines, "\n")
	if !v.kept {
		t.Errorf("not kept:\n%s", text)
	}
	for _, want := range []string{"the limit allows b + r·t = 10 + 10·10.0 = 110", "before the kill: 0, promised at most 0: kept",
		"the kill and the return: 0, promised at most 20: kept", "The promise was kept."} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

func TestVerdictIsBrokenByAnExcessBeforeTheKill(t *testing.T) {
	v := judge(played(jatah.FallbackShare, 20))
	if text := strings.Join(v.lines, "\n"); v.kept || !strings.Contains(text, "BROKEN") {
		t.Errorf("kept:\n%s", text)
	}
}

// Fifteen tokens at once while the node is gone.
func TestVerdictKnowsWhatAFallbackMayLetThrough(t *testing.T) {
	var ahead []record
	for range 15 {
		ahead = append(ahead, record{sent: 5 * second, done: 5 * second, key: 0, outcome: admitted, elsewhere: true})
	}
	if v := judge(played(jatah.FallbackShare, 10, ahead...)); !v.kept {
		t.Errorf("share: not kept:\n%s", strings.Join(v.lines, "\n"))
	}
	if v := judge(played(jatah.FallbackWait, 10, ahead...)); v.kept {
		t.Errorf("wait: kept:\n%s", strings.Join(v.lines, "\n"))
	}
	if v := judge(played(jatah.FallbackAllow, 10, ahead...)); !v.kept || !strings.Contains(strings.Join(v.lines, "\n"), "not judged") {
		t.Errorf("allow:\n%s", strings.Join(v.lines, "\n"))
	}
}

func TestVerdictJudgesEveryUser(t *testing.T) {
	var other []record
	for range 12 {
		other = append(other, record{sent: second, done: second, key: 3, outcome: admitted})
	}
	if v := judge(played(jatah.FallbackShare, 10, other...)); v.kept {
		t.Errorf("an excess of another user is not seen:\n%s", strings.Join(v.lines, "\n"))
	}
}

func TestVerdictTakesAPauseForAFault(t *testing.T) {
	s := played(jatah.FallbackShare, 11) // up to 4 tokens too many before the kill
	s.fault.pauses, s.fault.pausesBefore = 1, 1
	if v := judge(s); !v.kept || !strings.Contains(strings.Join(v.lines, "\n"), "1 pause\n") {
		t.Errorf("not kept:\n%s", strings.Join(v.lines, "\n"))
	}
}

// An owner whose answers are late, without a pause: what was spent ahead may be too much, a token for a token.
func TestVerdictTakesATokenAheadForOneThatMayBeTooMany(t *testing.T) {
	for n, kept := range map[int]bool{12: true, 3: false} {
		var ahead []record
		for i := range 12 { // all at once, when the bucket holds one or so
			ahead = append(ahead, record{sent: second, done: second, key: 0, outcome: admitted, elsewhere: true, ahead: i < n})
		}
		v := judge(played(jatah.FallbackShare, 10, ahead...))
		if text := strings.Join(v.lines, "\n"); v.kept != kept || !strings.Contains(text, fmt.Sprintf("got %d tokens ahead", n)) {
			t.Errorf("%d ahead, kept %v:\n%s", n, v.kept, text)
		}
	}
}

// Of 110 tokens that the limit allows 20 are promised for the kill and the
// return, and 10 more for each pause: with four pauses that is half of them.
func TestVerdictSaysWhenItProvesLittle(t *testing.T) {
	for pauses, little := range map[int]bool{0: false, 3: false, 4: true} {
		s := played(jatah.FallbackShare, 10)
		s.fault.pauses = pauses
		v := judge(s)
		text := strings.Join(v.lines, "\n")
		if !v.kept || strings.Contains(text, "paused 4 times; the promise allows a burst for each") != little ||
			strings.Contains(text, "kept. (But this run proves little") != little {
			t.Errorf("%d pauses:\n%s", pauses, text)
		}
	}
	s := played(jatah.FallbackWait, 10)
	s.fault.pauses = 100 // with wait a pause costs nothing
	if v := judge(s); v.weak {
		t.Errorf("wait:\n%s", strings.Join(v.lines, "\n"))
	}
}

// The node was ready again at the very end, or a moment after it.
func TestVerdictOfATimeWithoutRequestsIsADash(t *testing.T) {
	for _, back := range []time.Duration{10 * second, 10*second + time.Millisecond} {
		s := played(jatah.FallbackShare, 10)
		s.fault.back = back
		if text := strings.Join(judge(s).lines, "\n"); !strings.Contains(text, "while n1 was gone, - after\n") {
			t.Errorf("back at %v:\n%s", back, text)
		}
	}
}

func TestSummaryCountsAndRanks(t *testing.T) {
	var records []record
	for i := range 100 {
		records = append(records, record{done: time.Duration(i+1) * time.Millisecond, outcome: outcome(i % 2)})
	}
	records = append(records, record{done: time.Hour, outcome: failed})
	s := summarize(records, func(record) bool { return true })
	want := summary{admitted: 50, refused: 50, failed: 1, p50: 51 * time.Millisecond, p99: 100 * time.Millisecond, slowest: 100 * time.Millisecond}
	if s != want || s.offered() != 101 {
		t.Errorf("got %+v, want %+v", s, want)
	}
	if s := summarize(records, func(record) bool { return false }); s != (summary{}) {
		t.Errorf("of nothing: %+v", s)
	}
}

func TestRecentRecordsAreFoundThoughOutOfOrder(t *testing.T) {
	j := newJournal(users)
	for _, ms := range []int{0, 500, 990, 1010, 1005, 1500} {
		j.add(record{done: time.Duration(ms) * time.Millisecond})
	}
	n := 0
	for _, r := range j.since(second) {
		if r.done >= second {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d records since 1 s, want 3", n)
	}
	if len(j.all()) != 6 {
		t.Errorf("%d records in all, want 6", len(j.all()))
	}
}

func TestLoadIsSkewedAndAvoidsADeadNode(t *testing.T) {
	l := &load{services: make([]*service, nodes), nodes: []float64{0.9, 0.05, 0.05}, keys: []float64{0.7, 0.3}}
	rng := rand.New(rand.NewPCG(1, 2))
	count := func() (counts [nodes]int) {
		for range 10_000 {
			counts[l.pick(rng).node]++
		}
		return counts
	}
	if c := count(); c[0] < 8800 || c[0] > 9200 || c[1] < 300 || c[2] < 300 {
		t.Errorf("requests per node %v, want about 9000, 500, 500", c)
	}
	l.down[0].Store(true)
	if c := count(); c[0] != 0 || c[1] < 9000 {
		t.Errorf("requests per node %v with node 0 dead", c)
	}
}

var samplePicture = picture{
	elapsed: 12 * second, total: 20 * second, fallbacks: 1234, lost: 56789,
	rows: []row{
		{name: "n1", state: "up", note: "90 % of the load", last: summary{12345, 12345, 12345, 99 * second, 99 * second, 0}},
		{name: "n2", state: "killed"}, {name: "n3", state: "starting", note: "owns ada"},
	},
	hot: gauge{user: "ada", admitted: 123456, allowed: 234567, lastSecond: 1234, rate: "1000/s"},
}

var escape = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

func TestPictureFitsATerminal(t *testing.T) {
	for _, line := range drawPicture(samplePicture) {
		if n := utf8.RuneCountInString(escape.ReplaceAllString(line, "")); n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestPlainScreenHasNoEscapeCodes(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, false)
	s.note("a note")
	s.show(samplePicture)
	s.settle()
	s.close()
	if text := out.String(); strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 2 || !strings.Contains(text, "n2 killed") {
		t.Errorf("printed %q", text)
	}
}

// A tiny terminal: it knows the codes that the screen uses, and what is left
// on it must be the notes, then the last picture, then what was said after.
func TestTerminalScreenRedrawsInPlaceAndKeepsNotes(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, true)
	s.note("first")
	s.show(samplePicture)
	s.note("second")
	s.show(samplePicture)
	s.settle()
	s.note("verdict")
	s.close()
	if !strings.HasSuffix(out.String(), showCursor) {
		t.Error("the cursor stays hidden")
	}
	want := append([]string{"first", "second"}, drawPicture(samplePicture)...)
	want = append(want, "verdict")
	for i := range want {
		want[i] = strings.TrimRight(escape.ReplaceAllString(want[i], ""), " ")
	}
	got := playTerminal(t, out.String())
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("on the screen:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// playTerminal is what a terminal shows of the text. The screen begins every
// line it writes at the left, so that a column need not be kept.
func playTerminal(t *testing.T, text string) []string {
	t.Helper()
	var lines []string
	row := 0
	var line strings.Builder
	put := func(clear bool) {
		for len(lines) <= row {
			lines = append(lines, "")
		}
		old := lines[row]
		if n := utf8.RuneCountInString(line.String()); !clear && n < utf8.RuneCountInString(old) {
			line.WriteString(string([]rune(old)[n:]))
		}
		lines[row] = strings.TrimRight(line.String(), " ")
	}
	cleared := false
	for len(text) > 0 {
		switch code := escape.FindString(text); {
		case strings.HasPrefix(text, clearLine):
			cleared, text = true, text[len(clearLine):]
		case strings.HasPrefix(text, clearBelow):
			lines, text = lines[:min(row, len(lines))], text[len(clearBelow):]
		case code != "" && strings.HasPrefix(text, code):
			if strings.HasSuffix(code, "A") {
				n := 0
				for _, d := range code[2 : len(code)-1] {
					n = 10*n + int(d-'0')
				}
				row -= n
				if row < 0 {
					t.Fatalf("the cursor goes above the first line")
				}
			}
			text = text[len(code):]
		case text[0] == '\n':
			put(cleared)
			row, cleared, text = row+1, false, text[1:]
			line.Reset()
		case text[0] == '\r':
			text = text[1:]
		default:
			r, n := utf8.DecodeRuneInString(text)
			line.WriteRune(r)
			text = text[n:]
		}
	}
	return lines
}
