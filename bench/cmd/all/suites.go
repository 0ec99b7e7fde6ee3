package main

import (
	"slices"

	"github.com/jatah-io/jatah/bench/distributed"
	"github.com/jatah-io/jatah/bench/local"
	"github.com/jatah-io/jatah/bench/overhttp"
	"github.com/jatah-io/jatah/bench/report"
)

// suites are all that there are, in the order in which they run and stand in the report.
func suites() []report.Suite {
	return slices.Concat(
		local.Suites(),
		[]report.Suite{distributed.Speed(), distributed.Flood(), overhttp.Suite()},
	)
}
