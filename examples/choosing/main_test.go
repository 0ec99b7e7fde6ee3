package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

const docs = "../../docs"

func readPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(docs, "choosing.md"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(page), "\r\n", "\n")
}

func playLoad(t *testing.T) map[string]result {
	t.Helper()
	all, err := playAll(contenders(), load())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]result{}
	for _, r := range all {
		byName[r.name] = r
	}
	return byName
}

func TestThePageAndItsPicturesAreWhatTheProgramMakes(t *testing.T) {
	made, err := files([]byte(readPage(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range made {
		have, err := os.ReadFile(filepath.Join(docs, filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
			continue
		}
		if have = bytes.ReplaceAll(have, []byte("\r\n"), []byte("\n")); !bytes.Equal(have, want) {
			t.Errorf("docs/%s is not what the program makes: go run ./examples/choosing, look at it, and commit it", name)
		}
		if !strings.Contains(readPage(t), "("+name+")") && name != "choosing.md" {
			t.Errorf("the page does not show %s", name)
		}
	}
	again, err := files([]byte(readPage(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name := range made {
		if !bytes.Equal(made[name], again[name]) {
			t.Errorf("%s differs between two runs", name)
		}
	}
}

func TestPicturesAreXMLAndStayInside(t *testing.T) {
	made, err := files([]byte(readPage(t)))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range made {
		if !strings.HasSuffix(name, ".svg") {
			continue
		}
		width, height := 0.0, 0.0
		for dec := xml.NewDecoder(bytes.NewReader(content)); ; {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			at := map[string]float64{}
			for _, a := range e.Attr {
				if v, err := strconv.ParseFloat(a.Value, 64); err == nil {
					at[a.Name.Local] = v
				}
			}
			if e.Name.Local == "svg" {
				width, height = at["width"], at["height"]
			} else if at["x"] < 0 || at["y"] < 0 || at["width"] < 0 || at["height"] < 0 || at["x"]+at["width"] > width || at["y"]+at["height"] > height {
				t.Errorf("%s: %v is outside of %g x %g", name, e, width, height)
			}
		}
		if width == 0 || height == 0 {
			t.Errorf("%s has no size", name)
		}
	}
}

// TestTheWordsOfThePageAreTrue computes each number that the text quotes, and looks for the sentence.
func TestTheWordsOfThePageAreTrue(t *testing.T) {
	r := playLoad(t)
	at := func(seconds float64) int64 { return int64(seconds * 1e9) }
	count := func(name string, from, to float64) int { return between(r[name].passed, at(from), at(to)) }
	for name, one := range r {
		if got := one.admittedIn(load()[0]); got != 24 {
			t.Errorf("%s admits %d of the steady 24", name, got)
		}
	}
	page := strings.Join(strings.Fields(readPage(t)), " ")
	quote := func(format string, args ...any) {
		t.Helper()
		if s := fmt.Sprintf(format, args...); !strings.Contains(page, s) {
			t.Errorf("the page should say: %s", s)
		}
	}
	quote("What passes of the same %d requests under eight algorithms", r["token_bucket"].asked)
	fixed := r["fixed_window"]
	quote("passes %d at the end of one window and %d at the begin of the next: %d within 2.75 s. Then nothing, until 15 s",
		count("fixed_window", 8.5, 10), count("fixed_window", 10, 11.25), fixed.most(2750*time.Millisecond))
	if got := count("fixed_window", 11.25, 15); got != 0 {
		t.Errorf("fixed_window passes %d between 11.25 s and 15 s", got)
	}
	quote("never passes more than %d in 5 s", r["sliding_log"].most(busiest))
	for from := 8.5; from < 18; from += 5 {
		if on, off := count("sliding_log", from, from+1.25), count("sliding_log", from+1.25, from+5); on != 50 || off != 0 {
			t.Errorf("sliding_log from %g s: %d in 1.25 s, then %d in 3.75 s", from, on, off)
		}
	}
	quote("1.25 s on, 3.75 s off")
	quote("The price is the estimate: %d in 5 s", r["sliding_window"].most(busiest))
	queue := r["leaky_bucket (queue)"]
	quote("the last ones wait for %.0f s, and are served when the load is already over", queue.longest.Seconds())
	if last := queue.passed[len(queue.passed)-1]; last <= at(20) || last > at(25) {
		t.Errorf("the last departure of the queue is at %d", last)
	}
	if before, then, after := count("burst_average", 11.5, 12), count("burst_average", 12, 12.5), count("burst_average", 12.5, 13); before != 5 || then != 15 || after != 5 {
		t.Errorf("burst_average around 12 s: %d, %d, %d in half a second each", before, then, after)
	}
	quote("At 12 s the first burst leaves the average, and there is half a second more")
}

// TestTheLimitsHold checks each promise of the page on its run, with sums of its own.
func TestTheLimitsHold(t *testing.T) {
	r := playLoad(t)
	for _, c := range []struct {
		name  string
		burst int
		gap   time.Duration // between tokens in the long run
	}{
		{"token_bucket", 50, 100 * time.Millisecond}, {"leaky_bucket (meter)", 10, 100 * time.Millisecond},
		{"leaky_bucket (queue)", 1, 100 * time.Millisecond}, {"several rates", 20, 50 * time.Millisecond}, {"several rates", 50, 100 * time.Millisecond},
	} {
		passed := r[c.name].passed
		for i := range passed {
			for j := i; j < len(passed); j++ { // j-i+1 <= burst + (t_j - t_i)/gap
				if int64(j-i+1-c.burst)*int64(c.gap) > passed[j]-passed[i] {
					t.Fatalf("%s: %d pass in %d ns", c.name, j-i+1, passed[j]-passed[i])
				}
			}
		}
	}
	for w := range int64(5) {
		if n := between(r["fixed_window"].passed, w*5e9, (w+1)*5e9); n > 50 {
			t.Errorf("fixed_window passes %d in window %d", n, w)
		}
	}
	if n := r["sliding_log"].most(busiest); n > 50 {
		t.Errorf("sliding_log passes %d in 5 s", n)
	}
}

func TestTheAverageBurstsAsThePageSays(t *testing.T) {
	r, err := play(averageExample(), averageLoad())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from int64
		fast int // seconds at 8/s
	}{{0, 2}, {21, 1}, {48, 2}} {
		for i := range int64(5) {
			want := 2
			if i < int64(c.fast) {
				want = 8
			}
			if n := between(r.passed, (c.from+i)*1e9, (c.from+i+1)*1e9); n != want {
				t.Errorf("second %d: %d pass, want %d", c.from+i, n, want)
			}
		}
	}
	s := averageExample().spec
	page := strings.Join(strings.Fields(readPage(t)), " ")
	for _, want := range []string{
		"T = threshold * time / burst_rate",
		fmt.Sprintf("a full load passes at %s for %.0f s, then at %s", s.BurstRate, bucket.AverageBurst(s.BurstThreshold, s.BurstRate, s.BurstTime).Seconds(), s.Rates[0]),
		"at 21 s, some of the first load is still in the average, and 1 s is left; after 18 s of rest all of the 2 s are back",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page should say: %s", want)
		}
	}
}

// row finds a line of the page's first table by the algorithm and what stands beside it.
var row = regexp.MustCompile("(?m)^\\| `?([^|`]+)`?( as a meter| as a queue)? \\|[^|]*\\|[^|]*\\|([^|]*)\\|[^|]*\\|$")

func TestTheMemoryOfAKeyIsAboutWhatThePageSays(t *testing.T) {
	said := map[string]int{}
	for _, m := range row.FindAllStringSubmatch(readPage(t), -1) {
		if b := regexp.MustCompile(`(\d+) B`).FindStringSubmatch(m[3]); b != nil {
			said[m[1]+m[2]], _ = strconv.Atoi(b[1])
		}
	}
	specs := map[string]bucket.Spec{}
	for _, c := range contenders() {
		name := strings.NewReplacer(" (", " as a ", ")", "").Replace(c.name)
		specs[name] = c.spec
	}
	for _, name := range bucket.Algorithms() {
		if name == "concurrency" { // what passes depends on how long it is held
			continue
		}
		if !slices.ContainsFunc(contenders(), func(c contender) bool { return c.spec.Algorithm == name }) {
			t.Errorf("the program does not play %s", name)
		}
	}
	for name, spec := range specs {
		got, want := memory(t, spec), said[name]
		if want == 0 {
			t.Errorf("the page has no line with the memory of %s (%d B)", name, got)
		} else if got < want*7/10 || got > want*13/10 {
			t.Errorf("%s: %d B per key, the page says %d", name, got, want)
		}
	}
}

// memory is what a key takes in bytes, out of many that were used once.
func memory(t *testing.T, spec bucket.Spec) int {
	t.Helper()
	a, err := bucket.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	const n = 30000
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	keys := bucket.NewMeterTable(a, n)
	for i := range int64(n) {
		keys.Take(fmt.Sprintf("user%06d", i), i, 1)
	}
	after := heap()
	if keys.Len() != n {
		t.Fatalf("only %d of %d keys are stored", keys.Len(), n)
	}
	return int(after-before) / n
}

func TestAPageWithoutMarksIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := run(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "-docs") {
		t.Errorf("no page: %v", err)
	}
	path := filepath.Join(dir, "choosing.md")
	if err := os.WriteFile(path, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(dir); err == nil || !strings.Contains(err.Error(), "lacks the marks") {
		t.Errorf("no marks: %v", err)
	}
	if err := os.WriteFile(path, []byte("words\n"+tableBegins+"old\n"+tableEnds+"more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(page), "words\n") || !strings.HasSuffix(string(page), "more\n") ||
		strings.Contains(string(page), "old") || !strings.Contains(string(page), "`sliding_log`") {
		t.Errorf("%v, %q", err, page)
	}
}
