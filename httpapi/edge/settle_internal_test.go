package edge

import (
	"io"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/jatah-io/jatah"
)

// lone is a node with a limit of ten.
func lone(t *testing.T) (*jatah.Node, *jatah.Limiter) {
	t.Helper()
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(10)})
	if err != nil {
		t.Fatal(err)
	}
	return node, l
}

// What fallback allow let pass took nothing, so only what it cost beyond that is charged.
func TestWhatWasOnlyAllowedGivesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, l := lone(t)
		defer node.Close()
		l.Take(t.Context(), "k", 6)
		for _, c := range []struct {
			d      jatah.Decision
			actual int64
			left   float64
		}{
			{jatah.Decision{OK: true, Source: jatah.SourceAllow}, 0, 4},
			{jatah.Decision{OK: true, Source: jatah.SourceAllow}, 5, 4},
			{jatah.Decision{OK: true, Source: jatah.SourceAllow}, 7, 2},
			{jatah.Decision{OK: true, DryRun: true}, 0, 2},
			{jatah.Decision{OK: true, DryRun: true}, 9, 2},
			{jatah.Decision{OK: true, Source: jatah.SourceAhead}, 2, 5},
			{jatah.Decision{OK: true}, 11, -1},
		} {
			u := &Taken{limiter: l, Key: "k", Cost: 5, Decision: c.d}
			u.commit(t.Context(), c.actual)
			if s, err := l.Peek(t.Context(), "k"); err != nil || s.Balance != c.left {
				t.Errorf("%+v settled at %d: %v left, %v, want %v", c.d, c.actual, s.Balance, err, c.left)
			}
		}
	})
}

// When candidates are slow to answer, requests go on and are not measured.
func TestTooManyCandidatesAtOnceAreMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, _ := lone(t)
		defer node.Close()
		if _, err := node.Limit(jatah.Limit{Name: "other", Rate: jatah.PerDay(10)}); err != nil {
			t.Fatal(err)
		}
		e, err := New(node, Config{Rules: []Rule{{Uses: []Use{{Limit: "api", Key: []Part{Text("k")}, Candidates: []string{"other"}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		for range maxMeasuring {
			e.measuring <- struct{}{}
		}
		decide := func() bool {
			q, err := e.Describe(t.Context(), "GET", "x", "/", "203.0.113.7:1", nil)
			if err != nil {
				t.Fatal(err)
			}
			return e.Decide(t.Context(), q).OK
		}
		for range 2 {
			if !decide() {
				t.Error("refused")
			}
		}
		<-e.measuring
		if !decide() {
			t.Error("refused")
		}
		synctest.Wait()
		if r := e.Candidates()[0]; r.Requests != 1 || r.Missed != 2 || len(e.measuring) != maxMeasuring-1 {
			t.Errorf("%+v, %d under way", r, len(e.measuring))
		}
	})
}
