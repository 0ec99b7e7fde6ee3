package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
)

// probe asks the package that knows limits about one field alone, so that
// its verdict can be shown at that field's place.
func probe(l jatah.Limit) error {
	name := cmp.Or(l.Name, "probe")
	// The fastest rate, unless there is one: whether a burst takes too long to fill is judged with the limit's own.
	l.Name, l.Rate = name, cmp.Or(l.Rate, jatah.PerSecond(jatah.MaxPerSecond))
	err := l.Validate()
	if err == nil {
		return nil
	}
	return errors.New(verdict(err, name))
}

// verdict is what Validate says of a limit, without the limit's name and the words before it: the place says which limit it is, and
// the name may be a stand-in.
func verdict(err error, name string) string {
	text := plain(err)
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
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("%q is no algorithm: did you mean %q?", shorten(name), near)
	}
	return fmt.Errorf("%q is no algorithm; there are %s", shorten(name), strings.Join(known, ", "))
}

func setRate(at func(*jatah.Limit) *jatah.Rate) func(*jatah.Limit, string) error {
	return func(l *jatah.Limit, v string) (err error) {
		*at(l), err = jatah.ParseRate(v)
		return err
	}
}

// setSpan is setDuration for a limit.
func setSpan(least time.Duration, at func(*jatah.Limit) *time.Duration) func(*jatah.Limit, string) error {
	return func(l *jatah.Limit, v string) (err error) {
		*at(l), err = parseDuration(v, least)
		return err
	}
}
