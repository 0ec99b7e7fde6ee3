package fields

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func window(name string, n int64, per time.Duration) *jatah.Limit {
	return &jatah.Limit{Name: name, Algorithm: jatah.FixedWindow, Rate: jatah.Per(n, per)}
}

func left(n int64, reset time.Duration) *jatah.Decision {
	return &jatah.Decision{OK: true, Remaining: n, ResetAfter: reset}
}

func refused(wait time.Duration) *jatah.Decision {
	return &jatah.Decision{RetryAfter: wait, ResetAfter: wait}
}

// rendered is what a header map holds after the items, in the order of names.
func rendered(o Options, retry time.Duration, items ...Item) *Values {
	var s Set
	s.Begin(-1, retry)
	s.Add(o, func() time.Time { return time.Unix(1000, 1) }, items...)
	return s.Values()
}

func show(head http.Header, names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, strings.Join(head.Values(name), " + "))
	}
	return strings.Join(all, " | ")
}

func TestSeveralLimitsShareTheFields(t *testing.T) {
	burst, daily := window("burst", 100, time.Minute), window("daily", 1000, 24*time.Hour)
	for _, row := range []struct {
		o     Options
		retry time.Duration
		items []Item
		want  string
	}{
		{Options{}, 0, []Item{{burst, left(99, 50*time.Second)}, {daily, left(999, 86390*time.Second)}},
			`"burst";r=99;t=50, "daily";r=999;t=86390 | "burst";q=100;w=60, "daily";q=1000;w=86400 | 100 99 50 |  | `},
		{Options{Legacy: true}, 50 * time.Second, []Item{{burst, refused(50 * time.Second)}, {daily, left(0, time.Hour)}},
			`"burst";r=0;t=50, "daily";r=0;t=3600 | "burst";q=100;w=60, "daily";q=1000;w=86400 | 100 0 50 | 100 0 50 | 50`},
		{Options{OmitRateLimit: true, OmitXRateLimit: true}, time.Nanosecond, []Item{{burst, refused(1)}}, ` |  |  |  | 1`},
		{Options{OmitRateLimit: true, ResetEpoch: true}, jatah.Never, []Item{{burst, refused(jatah.Never)}, {daily, refused(time.Second)}}, ` |  | 100 0 |  | `},
		{Options{OmitRateLimit: true, ResetEpoch: true}, time.Second, []Item{{daily, refused(time.Second)}}, ` |  | 1000 0 1002 |  | 1`},
		{Options{}, 0, []Item{{burst, left(7, time.Second)}, {burst, left(3, 2*time.Second)}, {burst, left(3, 3*time.Second)}},
			`"burst";r=3;t=2 | "burst";q=100;w=60 | 100 3 2 |  | `},
		{Options{}, 0, nil, ` |  |  |  | `},
	} {
		head := http.Header{}
		rendered(row.o, row.retry, row.items...).Put(head, row.o)
		family := func(names *[Num - Limit]string) string {
			return strings.TrimSpace(strings.Join([]string{head.Get(names[0]), head.Get(names[1]), head.Get(names[2])}, " "))
		}
		got := show(head, "RateLimit", "RateLimit-Policy") + " | " + family(&XNames) + " | " + family(&LegacyNames) + " | " + head.Get("Retry-After")
		if got != row.want {
			t.Errorf("%+v\n got %s\nwant %s", row.o, got, row.want)
		}
	}
}

func TestMergeKeepsWhatIsThere(t *testing.T) {
	burst, daily := window("burst", 100, time.Minute), window("daily", 1000, 24*time.Hour)
	for _, row := range []struct {
		name  string
		there http.Header
		items []Item
		want  string // RateLimit | RateLimit-Policy | X-RateLimit-Limit | -Remaining | -Reset
	}{
		{"another limit with more left",
			http.Header{"Ratelimit": {`"daily";r=999;t=9`}, "Ratelimit-Policy": {`"daily";q=1000;w=86400`}, "X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"999"}, "X-Ratelimit-Reset": {"9"}},
			[]Item{{burst, left(5, time.Second)}},
			`"daily";r=999;t=9 + "burst";r=5;t=1 | "daily";q=1000;w=86400 + "burst";q=100;w=60 | 100 | 5 | 1`},
		{"another limit with less left",
			http.Header{"Ratelimit": {`"daily";r=4;t=9`}, "Ratelimit-Policy": {`"daily";q=1000;w=86400`}, "X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"4"}, "X-Ratelimit-Reset": {"9"}},
			[]Item{{burst, left(5, time.Second)}},
			`"daily";r=4;t=9 + "burst";r=5;t=1 | "daily";q=1000;w=86400 + "burst";q=100;w=60 | 1000 | 4 | 9`},
		{"the same limit with more left",
			http.Header{"Ratelimit": {`"burst";r=7;t=1, "daily";r=9;t=9`}, "Ratelimit-Policy": {`"burst";q=500;w=60, "daily";q=1000;w=86400`}},
			[]Item{{burst, left(5, time.Second)}},
			`"daily";r=9;t=9 + "burst";r=5;t=1 | "daily";q=1000;w=86400 + "burst";q=100;w=60 | 100 | 5 | 1`},
		{"the same limit with less left",
			http.Header{"Ratelimit": {`"burst";r=2;t=1`}, "Ratelimit-Policy": {`"burst";q=100;w=60`}},
			[]Item{{burst, left(5, time.Second)}, {daily, left(9, time.Second)}},
			`"burst";r=2;t=1 + "daily";r=9;t=1 | "burst";q=100;w=60 + "daily";q=1000;w=86400 | 100 | 5 | 1`},
		{"the same twice",
			http.Header{"Ratelimit": {`"burst";r=5;t=1`}, "Ratelimit-Policy": {`"burst";q=100;w=60`}},
			[]Item{{burst, left(5, time.Second)}},
			`"burst";r=5;t=1 | "burst";q=100;w=60 | 100 | 5 | 1`},
		{"what nobody can read",
			http.Header{"Ratelimit": {`limit=10, remaining=3`, `"a,b\"c" ;r=1`, `"open`}, "X-Ratelimit-Remaining": {"many"}},
			[]Item{{burst, left(5, time.Second)}},
			`limit=10, remaining=3 + "a,b\"c" ;r=1 + "open + "burst";r=5;t=1 | "burst";q=100;w=60 | 100 | 5 | 1`},
	} {
		shared := row.there["Ratelimit"]
		before := strings.Join(shared[:cap(shared)], "+")
		rendered(Options{}, 0, row.items...).Merge(row.there, Options{})
		if got := show(row.there, "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"); got != row.want {
			t.Errorf("%s\n got %s\nwant %s", row.name, got, row.want)
		}
		if strings.Join(shared[:cap(shared)], "+") != before {
			t.Errorf("%s: lines of another limiter were changed in place", row.name)
		}
	}
}

// A refusal with nothing left speaks for the whole, also where another limit has nothing left either.
func TestMergeTellsOfTheRefusal(t *testing.T) {
	head := http.Header{"X-Ratelimit-Limit": {"7"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"9"}}
	o := Options{Legacy: true}
	rendered(o, time.Minute, Item{window("burst", 100, time.Minute), refused(time.Minute)}).Merge(head, o)
	if got := show(head, "X-RateLimit-Limit", "X-RateLimit-Reset", "RateLimit-Limit", "Retry-After"); got != "100 | 60 | 100 | 60" {
		t.Error(got)
	}
}

func FuzzMembers(f *testing.F) {
	for _, s := range []string{"", `"a";r=1, "b";r=2`, `"a,b\"";r=1`, `"open`, `,, ,`, `x="a,b", y`, `"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var all []string
		for name, m := range members(line) {
			if m == "" || !strings.HasPrefix(m, strings.TrimRight(name, " \t")) || !strings.Contains(line, m) {
				t.Fatalf("%q: name %q, member %q", line, name, m)
			}
			param(m, ";r=")
			all = append(all, m)
		}
		var again []string
		for _, m := range members(strings.Join(all, ", ")) {
			again = append(again, m)
		}
		if strings.Join(all, "\n") != strings.Join(again, "\n") {
			t.Fatalf("%q: %q, read again %q", line, all, again)
		}
	})
}
