package config

import (
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/internal/definition"
)

// The words that this package has in common with definition, in which limits are read.

func under(path, name string) string { return definition.Under(path, name) }

func shorten(s string) string { return definition.Shorten(s) }

func nearest(word string, known []string) string { return definition.Nearest(word, known) }

func unknownField(name, where string, known []string, others map[string]string) string {
	return definition.UnknownField(name, where, known, others)
}

func plain(err error) string { return definition.Plain(err) }

func probe(l jatah.Limit) error { return definition.Probe(l) }

func verdict(err error, name string) string { return definition.Verdict(err, name) }

func parseWhole(s string, least int64) (int64, error) { return definition.ParseWhole(s, least) }

func parseBool(s string) (bool, error) { return definition.ParseBool(s) }

func parseDuration(s string, least time.Duration) (time.Duration, error) {
	return definition.ParseDuration(s, least)
}
