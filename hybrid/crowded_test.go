package hybrid

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// A key that uses more than a log remembers is said once, and counted.
func TestALogThatIsTooSmallIsSaid(t *testing.T) {
	var out strings.Builder
	e := New(Config{Node: "n", Logger: slog.New(slog.NewTextHandler(&out, nil))})
	r := bucket.Per(100, time.Hour)
	l, err := e.Define(Spec{Name: "api", Rate: r, Burst: 100, Rule: &bucket.Spec{Algorithm: "sliding_log", Rates: []bucket.Rate{r}, MaxLog: 8}})
	if err != nil {
		t.Fatal(err)
	}
	at := int64(1)
	e.clock = func() int64 { at += ms; return at }
	for range 20 {
		if d, _ := l.Begin("k", 1); !d.OK {
			t.Fatalf("%+v", d)
		}
	}
	for range 3 {
		e.Tick(e.now(), 0)
	}
	if n := strings.Count(out.String(), "raise max_log"); n != 1 {
		t.Errorf("said %d times:\n%s", n, out.String())
	}
	if s := e.Stats().Limits[0]; s.Merged == 0 || s.Keys != 1 {
		t.Errorf("%+v, want merged logs and one key", s)
	}
}
