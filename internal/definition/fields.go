package definition

import (
	"fmt"
	"strconv"
	"time"

	"github.com/jatah-io/jatah"
)

// Fields that are tables.
const (
	Costs     = "costs"
	Plans     = "plans"
	Overrides = "overrides"
)

// Field is one thing of a limit that can be set. Set takes the value as it is written; for a List it is called once for each element, and for a Table
// it is nil.
type Field struct {
	Name string
	Kind Kind
	Want string // what belongs here, for messages
	Set  func(l *jatah.Limit, value string) error
}

// fields are all of a limit. Never changed.
var fields = []*Field{
	{"name", Text, "a name such as api", func(l *jatah.Limit, v string) error {
		l.Name = v
		return Probe(jatah.Limit{Name: v})
	}},
	{"rate", Word, "a rate such as 100/min", setRate(func(l *jatah.Limit) *jatah.Rate { return &l.Rate })},
	{"burst", Integer, "a whole number of at least 1, such as 20", func(l *jatah.Limit, v string) (err error) {
		if l.Burst, err = ParseWhole(v, 1); err != nil {
			return err
		}
		return Probe(jatah.Limit{Burst: l.Burst})
	}},
	{"algorithm", Word, "the name of an algorithm, such as token_bucket", func(l *jatah.Limit, v string) error {
		l.Algorithm = v
		return checkAlgorithm(v)
	}},
	{"max", Integer, "a whole number of at least 1, such as 10; of algorithm concurrency", func(l *jatah.Limit, v string) (err error) {
		l.Max, err = ParseWhole(v, 1)
		return err
	}},
	{"ttl", Duration, "a duration, such as 30s; of algorithm concurrency", setSpan(time.Millisecond, func(l *jatah.Limit) *time.Duration { return &l.TTL })},
	{"mode", Word, "hybrid, strict or split", func(l *jatah.Limit, v string) (err error) {
		l.Mode, err = jatah.ParseMode(v)
		return err
	}},
	{"overshoot", Number, "a fraction of the burst, such as 0.1", func(l *jatah.Limit, v string) (err error) {
		if l.Overshoot, err = strconv.ParseFloat(v, 64); err != nil {
			return fmt.Errorf("%q is not a number: write a fraction of the burst, such as 0.1", v)
		}
		return Probe(jatah.Limit{Overshoot: l.Overshoot})
	}},
	{"fallback", Word, "share, wait, deny or allow", func(l *jatah.Limit, v string) (err error) {
		l.Fallback, err = jatah.ParseFallback(v)
		return err
	}},
	{"dry_run", Boolean, "true or false", func(l *jatah.Limit, v string) (err error) {
		l.DryRun, err = ParseBool(v)
		return err
	}},
	{"rates", List, "rates such as 10/s", func(l *jatah.Limit, v string) error {
		r, err := jatah.ParseRate(v)
		l.Rates = append(l.Rates, r)
		return err
	}},
	{"calendar", Word, "hour, day, week, month or year", func(l *jatah.Limit, v string) error {
		l.Calendar = v
		return Probe(jatah.Limit{Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(0), Calendar: v})
	}},
	{"timezone", Word, "the name of a time zone, such as Europe/Berlin", func(l *jatah.Limit, v string) error {
		l.Timezone = v
		return Probe(jatah.Limit{Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(0), Calendar: "day", Timezone: v})
	}},
	{"queue", Integer, "how many may wait, a whole number of at least 1, such as 20", func(l *jatah.Limit, v string) (err error) {
		l.Queue, err = ParseWhole(v, 1)
		return err
	}},
	{"max_wait", Duration, "a duration such as 2s", setSpan(time.Microsecond, func(l *jatah.Limit) *time.Duration { return &l.MaxWait })},
	{"burst_rate", Word, "a rate such as 8/s", setRate(func(l *jatah.Limit) *jatah.Rate { return &l.BurstRate })},
	{"burst_threshold", Word, "a rate such as 1/s", setRate(func(l *jatah.Limit) *jatah.Rate { return &l.BurstThreshold })},
	{"burst_time", Duration, "a duration such as 16s", setSpan(16*time.Millisecond, func(l *jatah.Limit) *time.Duration { return &l.BurstTime })},
	{"max_log", Integer, "how many requests to remember for each key, a whole number of at least 2, such as 1024", func(l *jatah.Limit, v string) error {
		n, err := ParseWhole(v, 2)
		l.MaxLog = int(n)
		return err
	}},
	{"parent", Text, "the name of another limit, such as total", func(l *jatah.Limit, v string) error {
		l.Parent = v
		return Probe(jatah.Limit{Name: v})
	}},
	{Costs, Table, `routes with their costs, such as {"/export": 100, "/search/*": 5}`, nil},
	{Plans, Table, "plans by name, such as {pro: {rate: 10/s, burst: 50}}", nil},
	{Overrides, Table, "a list of overrides, such as [{key: vip, plan: pro}]", nil},
}

// FieldOf finds a field by its name; nil: there is none.
func FieldOf(name string) *Field {
	for _, f := range fields {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// FieldNames lists all fields.
func FieldNames() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}
