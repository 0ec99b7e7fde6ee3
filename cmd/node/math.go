package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jatah-io/jatah"
)

const mathHelp = `Works out what a limit does and what to ask of it, from the flags that are given. b is the
burst, r the rate, R the rate of arrivals, which come evenly. Needs no node.

  --burst --rate --arrivals                   how long a full bucket serves them, T = b / (R - r),
                                              how many that are, n = b * R / (R - r)
  --burst --rate                              how long an empty bucket takes to fill, b / r
  --cost --rate [--held] [--burst]            how long a cost has to wait, (cost - held) / r
  --requests --rate [--within]                the burst that serves them all, n - r * within
  --threshold --burst-rate --burst-time       how long a burst of burst_average lasts under full load,
                                              T = threshold * burst_time / burst_rate; a limit
                                              rounds it up to slices of burst_time / 16

for example:  jatah math --burst 100 --rate 10/s --arrivals 50/s
              jatah math --requests 50 --within 1s --rate 10/s

--json prints seconds (names that end in _s) and counts; null is never, or without end.`

// mathFlags are the numbers of the command line.
type mathFlags struct {
	burst, cost, held, requests          int64
	rate, arrivals, threshold, burstRate jatah.Rate
	within, burstTime                    time.Duration

	given map[string]bool
}

func (m *mathFlags) register(f *flagSet) {
	f.Int64Var(&m.burst, "burst", 0, "`tokens` of a full bucket")
	f.rate(&m.rate, "rate", "how fast it refills, such as 10/s or 100/min; `rate`")
	f.rate(&m.arrivals, "arrivals", "how fast requests come; `rate`")
	f.Int64Var(&m.cost, "cost", 0, "`tokens` of one request")
	f.Int64Var(&m.held, "held", 0, "`tokens` in the bucket now, below 0: debt; none if not given")
	f.Int64Var(&m.requests, "requests", 0, "`count` of requests that are to pass")
	f.DurationVar(&m.within, "within", 0, "`time` from the first of them to the last; all at once if not given")
	f.rate(&m.threshold, "threshold", "burst_threshold of a limit; `rate`")
	f.rate(&m.burstRate, "burst-rate", "burst_rate of a limit; `rate`")
	f.DurationVar(&m.burstTime, "burst-time", 0, "burst_time of a limit, such as 16s; `time`")
}

// rate defines a flag that is a rate.
func (f *flagSet) rate(at *jatah.Rate, name, usage string) {
	f.Func(name, usage, func(s string) (err error) {
		*at, err = jatah.ParseRate(s)
		if err != nil { // the flag's name says where, so the package need not
			return errors.New(strings.TrimPrefix(err.Error(), "bucket: "))
		}
		return nil
	})
}

func work(_ context.Context, c console, args []string) error {
	flags := newFlags("math", mathHelp)
	m := mathFlags{given: map[string]bool{}}
	m.register(flags)
	asJSON := flags.Bool("json", false, "print an object for programs")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	flags.Visit(func(one *flag.Flag) { m.given[one.Name] = true })
	if err := m.check(); err != nil {
		return usageError{"math", err}
	}
	found := m.answers()
	if *asJSON {
		return printJSON(c.out, found)
	}
	tab := tabwriter.NewWriter(c.out, 0, 0, 3, ' ', 0)
	for _, a := range found {
		fmt.Fprintf(tab, "%s\t%s\t%s\n", a.name, a.text(), a.formula)
	}
	return tab.Flush()
}

type companions struct{ flag, needs string }

// company lists what each flag means nothing without.
func company() []companions {
	return []companions{
		{"burst", "rate"}, {"arrivals", "burst rate"},
		{"cost", "rate"}, {"held", "cost rate"},
		{"requests", "rate"}, {"within", "requests rate"},
		{"threshold", "burst-rate burst-time"}, {"burst-rate", "threshold burst-time"}, {"burst-time", "threshold burst-rate"},
	}
}

// check refuses what cannot be answered, and flags that would be ignored.
func (m *mathFlags) check() error {
	for _, x := range company() {
		if !m.given[x.flag] {
			continue
		}
		for _, need := range strings.Fields(x.needs) {
			if !m.given[need] {
				return fmt.Errorf("--%s needs --%s too", x.flag, strings.ReplaceAll(x.needs, " ", " and --"))
			}
		}
	}
	switch {
	case !m.given["burst"] && !m.given["cost"] && !m.given["requests"] && !m.given["threshold"]:
		if m.given["rate"] {
			return errors.New("--rate alone asks nothing: add --burst, --cost or --requests")
		}
		return errors.New("nothing is asked: try --burst 100 --rate 10/s --arrivals 50/s")
	case m.given["burst"] && m.burst < 1:
		return fmt.Errorf("--burst %d: a bucket holds 1 token or more", m.burst)
	case m.given["cost"] && m.cost < 0:
		return fmt.Errorf("--cost %d is negative", m.cost)
	case m.given["burst"] && m.held > m.burst:
		return fmt.Errorf("--held %d is more than --burst %d, which is all that a bucket can hold", m.held, m.burst)
	case m.given["requests"] && m.requests < 1:
		return fmt.Errorf("--requests %d: ask for 1 or more", m.requests)
	case m.within < 0:
		return fmt.Errorf("--within %v is negative", m.within)
	case !m.given["threshold"]:
		return nil
	case m.burstTime <= 0:
		return fmt.Errorf("--burst-time %v: an average is taken over more than no time", m.burstTime)
	case !faster(m.burstRate, m.threshold):
		return fmt.Errorf("--threshold %s is not slower than --burst-rate %s: the burst would never end, and a limit refuses it", m.threshold, m.burstRate)
	case m.given["rate"] && !faster(m.burstRate, m.rate):
		return fmt.Errorf("--burst-rate %s is not faster than --rate %s: there would be no burst, and a limit refuses it", m.burstRate, m.rate)
	}
	return nil
}

// faster says whether a > b.
func faster(a, b jatah.Rate) bool {
	speed := func(r jatah.Rate) *big.Rat { return big.NewRat(r.Count, int64(max(r.Per, 1))) }
	return speed(a).Cmp(speed(b)) > 0
}

// denies is said instead of a formula: in a bucket without refill a burst would be there once, but not in a limit.
const denies = "a limit with a rate of 0 denies everything, whatever its burst"

// answer is one result: a duration or a count.
type answer struct {
	key, name, formula string

	count   bool
	n       int64         // of a count
	d       time.Duration // of a duration
	endless string        // not "": there is no number, and what to say instead
}

func (m *mathFlags) answers() []answer {
	var found []answer
	if m.given["arrivals"] {
		found = append(found, m.burstAnswers()...)
	}
	if m.given["burst"] {
		a := answer{key: "recovery_s", name: "from empty to full", d: jatah.Recovery(m.burst, m.rate)}
		a.formula = fmt.Sprintf("b / r = %d / %s", m.burst, m.rate)
		if m.rate.Count == 0 {
			a.endless, a.formula = "never", denies
		}
		found = append(found, a)
	}
	if m.given["cost"] {
		found = append(found, m.retryAnswer())
	}
	if m.given["requests"] {
		a := answer{key: "burst_needed", name: "burst needed", count: true, n: jatah.BurstNeeded(m.requests, m.within, m.rate)}
		a.formula = fmt.Sprintf("n - r * within = %d - %s * %v, rounded up, at least 1", m.requests, m.rate, m.within)
		if m.rate.Count == 0 {
			a.endless, a.formula = "none helps", denies
		}
		found = append(found, a)
	}
	if m.given["threshold"] {
		a := answer{key: "average_burst_s", name: "burst by average lasts", d: jatah.AverageBurst(m.threshold, m.burstRate, m.burstTime)}
		a.formula = fmt.Sprintf("T = threshold * burst_time / burst_rate = %s * %v / %s", m.threshold, m.burstTime, m.burstRate)
		found = append(found, a)
	}
	return found
}

func (m *mathFlags) burstAnswers() []answer {
	lasts := answer{key: "burst_duration_s", name: "burst lasts", d: jatah.BurstDuration(m.burst, m.rate, m.arrivals)}
	serves := answer{key: "burst_requests", name: "requests in it", count: true, n: jatah.BurstRequests(m.burst, m.rate, m.arrivals)}
	switch {
	case m.rate.Count == 0:
		lasts.d, lasts.formula = 0, denies
		serves.n, serves.formula = 0, denies
		return []answer{lasts, serves}
	case !faster(m.arrivals, m.rate):
		lasts.endless, serves.endless = "for ever", "unlimited"
		lasts.formula = fmt.Sprintf("R <= r: %s is no faster than %s", m.arrivals, m.rate)
		serves.formula = "all pass"
		return []answer{lasts, serves}
	}
	lasts.formula = fmt.Sprintf("T = b / (R - r) = %d / (%s - %s)", m.burst, m.arrivals, m.rate)
	serves.formula = fmt.Sprintf("n = b * R / (R - r) = %d * %s / (%s - %s)", m.burst, m.arrivals, m.arrivals, m.rate)
	return []answer{lasts, serves}
}

func (m *mathFlags) retryAnswer() answer {
	a := answer{key: "retry_after_s", name: "wait", d: jatah.RetryAfter(m.cost, m.held, m.rate)}
	a.formula = fmt.Sprintf("(cost - held) / r = (%d - %s) / %s", m.cost, bracketed(m.held), m.rate)
	switch {
	case m.given["burst"] && m.cost > m.burst:
		a.endless, a.formula = "never", fmt.Sprintf("a cost of %d is above the burst of %d", m.cost, m.burst)
	case m.rate.Count == 0:
		a.endless, a.formula = "never", denies
	case m.cost <= m.held:
		a.formula = fmt.Sprintf("the cost of %d is held", m.cost)
	}
	return a
}

// bracketed is a number that can follow a minus.
func bracketed(n int64) string {
	if n < 0 {
		return fmt.Sprintf("(%d)", n)
	}
	return fmt.Sprint(n)
}

// text is the value for people.
func (a answer) text() string {
	switch {
	case a.endless != "":
		return a.endless
	case a.count && a.n == math.MaxInt64:
		return fmt.Sprintf("above %d", a.n)
	case a.count:
		return fmt.Sprint(a.n)
	case a.d == jatah.Never:
		return "more than 292 years"
	case a.d >= 48*time.Hour:
		return fmt.Sprintf("%v (%.1f days)", a.d, a.d.Hours()/24)
	}
	return a.d.String()
}

// value is the value for programs.
func (a answer) value() any {
	switch {
	case a.endless != "", a.count && a.n == math.MaxInt64, !a.count && a.d == jatah.Never:
		return nil
	case a.count:
		return a.n
	}
	return a.d.Seconds()
}

func printJSON(w io.Writer, found []answer) error {
	object := make(map[string]any, len(found))
	for _, a := range found {
		object[a.key] = a.value()
	}
	return json.NewEncoder(w).Encode(object)
}
