package definition

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
)

// Plain is an error's text without the package prefixes: the place is what
// the reader of a configuration needs to see first.
func Plain(err error) string {
	s := err.Error()
	for _, prefix := range []string{"jatah: ", "bucket: ", "hybrid: ", "cluster: ", "clientip: ", "edge: ", "bad configuration: "} {
		s = strings.TrimPrefix(s, prefix)
	}
	return s
}

// ParseDuration reads a duration of at least so much.
func ParseDuration(s string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: write a number with its unit, such as 100ms, 2s or 1m", s)
	}
	if d < least {
		return 0, fmt.Errorf("%s is too short: write %v or more", s, least)
	}
	return d, nil
}

// ParseBool reads true or false.
func ParseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

// ParseWhole reads a whole number of at least so much.
func ParseWhole(s string, least int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is too large", s)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number: write digits only, such as 20", s)
	case n < least:
		return 0, fmt.Errorf("%d is too small: write %d or more, or leave it out for the default", n, least)
	}
	return n, nil
}

// Probe asks the package that knows limits about one field alone, so that
// its verdict can be shown at that field's place.
func Probe(l jatah.Limit) error {
	name := cmp.Or(l.Name, "probe")
	// The fastest rate, unless there is one: whether a burst takes too long to fill is judged with the limit's own.
	l.Name, l.Rate = name, cmp.Or(l.Rate, jatah.PerSecond(jatah.MaxPerSecond))
	err := l.Validate()
	if err == nil {
		return nil
	}
	return errors.New(Verdict(err, name))
}

// Verdict is what Validate says of a limit, without the limit's name and the words before it: the place says which limit it is, and
// the name may be a stand-in.
func Verdict(err error, name string) string {
	text := Plain(err)
	if _, after, ok := strings.Cut(text, fmt.Sprintf("%q: ", name)); ok {
		text = strings.TrimPrefix(after, "bucket: ")
	}
	return strings.TrimPrefix(text, "bad definition: ")
}

// checkAlgorithm judges the name alone: what else an algorithm needs may stand further down.
func checkAlgorithm(name string) error {
	known := jatah.Algorithms()
	if slices.Contains(known, name) {
		return nil
	}
	if near := Nearest(name, known); near != "" {
		return fmt.Errorf("%q is no algorithm: did you mean %q?", Shorten(name), near)
	}
	return fmt.Errorf("%q is no algorithm; there are %s", Shorten(name), strings.Join(known, ", "))
}

func setRate(at func(*jatah.Limit) *jatah.Rate) func(*jatah.Limit, string) error {
	return func(l *jatah.Limit, v string) (err error) {
		*at(l), err = jatah.ParseRate(v)
		return err
	}
}

// setSpan takes a duration of at least so much.
func setSpan(least time.Duration, at func(*jatah.Limit) *time.Duration) func(*jatah.Limit, string) error {
	return func(l *jatah.Limit, v string) (err error) {
		*at(l), err = ParseDuration(v, least)
		return err
	}
}
