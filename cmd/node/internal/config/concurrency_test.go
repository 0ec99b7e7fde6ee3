package config

import (
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func TestAConcurrencyLimitHasAMaxAndNoRate(t *testing.T) {
	want := jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 2, TTL: 30 * time.Second}
	file := &Document{"f.yaml", []byte("limits:\n  - name: jobs\n    algorithm: concurrency\n    max: 2\n    ttl: 30s\n")}
	fromFile, err := Merge(file, nil, nil)
	if err != nil || len(fromFile.Limits) != 1 || !fromFile.Limits[0].Equal(want) {
		t.Errorf("from a file: %+v, %v", fromFile.Limits, err)
	}
	fromVariable, err := Merge(nil, []string{"JATAH_LIMITS=jobs=algorithm=concurrency,max=2,ttl=30s"}, nil)
	if err != nil || len(fromVariable.Limits) != 1 || !fromVariable.Limits[0].Equal(want) {
		t.Errorf("from a variable: %+v, %v", fromVariable.Limits, err)
	}
	for limit, says := range map[string]string{
		"jobs=algorithm=concurrency":                 "max is 0",
		"jobs=5/s,algorithm=concurrency,max=2":       "rate has no meaning",
		"jobs=5/s,max=2":                             "max has no meaning",
		"jobs=5/s,ttl=30s":                           "only permits",
		"jobs=algorithm=concurrency,max=0":           "too small",
		"jobs=algorithm=concurrency,max=1,ttl=never": "not a duration",
	} {
		if _, err := Merge(nil, []string{"JATAH_LIMITS=" + limit}, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, which does not say %q", limit, err, says)
		}
	}
}
