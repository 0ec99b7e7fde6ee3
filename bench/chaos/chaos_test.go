package chaos

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/internal/envelope"
)

func TestASeedDrawsTheSameSchedule(t *testing.T) {
	draw := func(seed uint64) (all []string) {
		s := newSchedule(seed, Kinds(), 5, 20*time.Second)
		for range 100 {
			all = append(all, s.next().String())
		}
		return all
	}
	if a, b := draw(42), draw(42); !slices.Equal(a, b) {
		t.Errorf("seed 42 drew\n%s\nand then\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	if slices.Equal(draw(1), draw(2)) {
		t.Error("seeds 1 and 2 draw the same schedule")
	}
}

func TestEveryKindHasItsTurn(t *testing.T) {
	s := newSchedule(3, Kinds(), 3, 2*time.Second)
	for round := range 3 {
		seen := make(map[Kind]int)
		for range Kinds() {
			step := s.next()
			seen[step.Kind]++
			if step.For < shortest || step.For > 2*time.Second {
				t.Errorf("%v lasts less than %v or more than 2s", step, shortest)
			}
			if n := len(step.Nodes); step.Kind != Halves && n != traitOf(step.Kind).victims || step.Kind == Halves && n != 1 {
				t.Errorf("%v befalls %d nodes", step, n)
			}
			for i, n := range step.Nodes {
				if n < 0 || n > 2 || slices.Contains(step.Nodes[:i], n) {
					t.Errorf("%v befalls node %d", step, n)
				}
			}
		}
		if len(seen) != len(Kinds()) {
			t.Errorf("round %d has %d of %d kinds", round, len(seen), len(Kinds()))
		}
	}
}

func TestParseKinds(t *testing.T) {
	if got, err := ParseKinds("kill, one-way"); err != nil || !slices.Equal(got, []Kind{Kill, OneWay}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "kill,", "murder"} {
		if got, err := ParseKinds(bad); !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), "rolling") {
			t.Errorf("%q: %v, %v; want an error that lists the kinds", bad, got, err)
		}
	}
}

func TestOptionsThatShowNothingAreRefused(t *testing.T) {
	if err := Defaults().check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"duration": func(o *Options) { o.Duration = time.Second },
		"nodes":    func(o *Options) { o.Nodes = 2 },
		"quiet":    func(o *Options) { o.Quiet = 0 },
		"longest":  func(o *Options) { o.Longest = time.Minute },
		"rate":     func(o *Options) { o.Rate = 1 },
		"keys":     func(o *Options) { o.Keys = 1 },
		"soak":     func(o *Options) { o.Soak = -1 },
	} {
		o := Defaults()
		if change(&o); !errors.Is(o.check(), ErrOptions) {
			t.Errorf("%s: %v", name, o.check())
		}
	}
}

// What the judge would let pass must not be more than the table of the README gives.
func TestPromises(t *testing.T) {
	ruleOf := func(name string) rule {
		all := ruleSet(100)
		return all[slices.IndexFunc(all, func(r rule) bool { return r.name == name })]
	}
	for _, c := range []struct {
		limit string
		kind  Kind
		want  float64
	}{
		{"hybrid-wait", Kill, 0}, {"hybrid-wait", Isolate, 0}, {"hybrid-wait", Rolling, 0}, {"hybrid-wait", Loss, 0}, {"strict-wait", Halves, 0}, {"window", Corner, 0},
		{"hybrid-wait", Pause, 200}, {"hybrid-share", Kill, 200}, {"hybrid-share", Isolate, 200}, {"split", Join, 200},
		{"hybrid-share", Clock, 0}, {"hybrid-share", Disk, 0}, {"split", Reload, 0}, {"hybrid-share", Keys, 0},
	} {
		if got := ruleOf(c.limit).promise(event{kind: c.kind, times: 1}); got != c.want {
			t.Errorf("%s allows %s %.0f tokens, want %.0f", c.kind, c.limit, got, c.want)
		}
	}
}

// The judge finds a token too many where no event was, and lets pass what an event gives, once.
func TestTheJudgeFindsExcess(t *testing.T) {
	r := &run{o: Options{Log: func(string, ...any) {}}, load: newLoad(nil, nil), watch: newWatch(nil, nil)}
	share := rule{name: "s", mode: "hybrid", fallback: "share", rate: 10, burst: 20}
	at := func(n int, when time.Duration) (all []envelope.Admission) {
		for range n {
			all = append(all, envelope.Admission{Sent: when, Done: when + time.Millisecond})
		}
		return all
	}
	cut := event{from: 9 * time.Second, to: 12 * time.Second, kind: Isolate, step: 1, times: 1}
	for _, c := range []struct {
		name   string
		many   []envelope.Admission
		broken bool
	}{
		{"a burst", at(20, time.Second), false},
		{"three too many in quiet", at(23, time.Second), true},
		{"another burst in a cut", at(40, 10*time.Second), false},
		{"two more in a cut", at(60, 10*time.Second), true},
		{"a burst and one ahead, the second after the cut", slices.Concat(at(20, 8*time.Second), at(20, 12*time.Second)), false},
		{"the same long after", slices.Concat(at(20, 20*time.Second), at(20, 20*time.Second+100*time.Millisecond)), true},
	} {
		r.broken = nil
		tr := newTrack(share, "k")
		tr.admitted = c.many
		r.find(tr, []event{cut})
		if (len(r.broken) > 0) != c.broken {
			t.Errorf("%s: broken %v", c.name, r.broken)
		}
	}
}

func TestMostHeldAtOnce(t *testing.T) {
	held := []holding{{from: 1, to: 4}, {from: 2, to: 4}, {from: 4, to: 6}, {from: 5, to: 3}}
	if n, at := most(held, func(time.Duration) bool { return false }); n != 2 || at != 2 {
		t.Errorf("%d at %d, want 2 at 2", n, at)
	}
	if n, _ := most(held, func(at time.Duration) bool { return at == 2 }); n != 1 {
		t.Errorf("%d, want 1 where 2 is excused", n)
	}
}

func TestBadLinesOfLogs(t *testing.T) {
	for line, bad := range map[string]bool{
		"panic: runtime error: index out of range":      true,
		"fatal error: concurrent map writes":            true,
		"WARNING: DATA RACE":                            true,
		`level=INFO msg="a key called panic: is usual"`: false,
		`level=ERROR msg="the state file cannot be used; it is set aside, and keys start as if there were none"`: true,
		`level=ERROR msg="state not written"`: false,
	} {
		if badLine.MatchString(line) != bad {
			t.Errorf("%q: bad is %v, want %v", line, !bad, bad)
		}
	}
}

func TestMetricsAreCutAtTheirValue(t *testing.T) {
	if n, v, ok := cutLast(`jatah_table_entries{kind="a b"} 7`); !ok || n != `jatah_table_entries{kind="a b"}` || v != "7" {
		t.Errorf("%q %q %v", n, v, ok)
	}
	if _, _, ok := cutLast("# HELP x y"); ok {
		t.Error("a comment is no metric")
	}
}
