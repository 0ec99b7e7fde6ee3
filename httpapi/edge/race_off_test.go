//go:build !race

package edge_test

const raceEnabled = false
