package distributed

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/jatah-io/jatah/bench/internal/servers"
	"github.com/jatah-io/jatah/bench/report"
)

// needs skips a test that starts servers where it cannot.
func needs(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts Redis, gubernator and nodes; leave out -short to run it")
	}
	for _, program := range []string{servers.RedisProgram, "go"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s in PATH: %v", program, err)
		}
	}
}

// left says that a peer is left out of this build.
func left(peer string) bool { return !withGubernator && strings.HasPrefix(peer, "gubernator") }

// runShort runs a suite as CI does, and returns what it emitted.
func runShort(t *testing.T, s report.Suite) report.Set {
	t.Helper()
	needs(t)
	o := report.Options{Short: true, Rounds: 1, Dir: t.TempDir(), Log: t.Logf}
	samples, err := report.RunSuites(t.Context(), []report.Suite{s}, o)
	if err != nil {
		t.Fatal(err)
	}
	return report.Collect(samples)
}

var asked = []string{
	"jatah strict", "jatah hybrid", "jatah split", "jatah HTTP strict", "jatah HTTP strict, batches of 100", "jatah HTTP hybrid", "jatah HTTP hybrid, batches of 100",
	"redis_rate", "redis INCR+EXPIRE", "redis token bucket", "gubernator", "gubernator no batching", "gubernator GLOBAL",
}

func TestSpeedRunsInShortForm(t *testing.T) {
	set := runShort(t, Speed())
	for _, peer := range asked {
		if left(peer) {
			continue
		}
		for _, one := range []struct{ name, unit string }{
			{"latency p50", "µs"}, {"latency p99", "µs"}, {"decisions callers=64", "decisions/s"}, {"processor time of a decision callers=64", "µs"},
		} {
			if got, ok := set.Median("distributed", one.name, one.unit, peer); !ok || got <= 0 {
				t.Errorf("%s of %s: %v %s, emitted: %v", one.name, peer, got, one.unit, ok)
			} else {
				t.Logf("%-34s %-42s %12.1f %s", peer, one.name, got, one.unit)
			}
		}
		if got, ok := set.Find("distributed", "throughput against callers", "decisions/s", peer); !ok || len(got.Points) == 0 {
			t.Errorf("no curve of %s", peer)
		}
	}
}
