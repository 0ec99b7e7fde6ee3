package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// Everywhere drops on all links, in both directions.
func (l *Lab) Everywhere(loss float64) (all []Drop) {
	for i := 1; i <= l.nodes; i++ {
		for j := 1; j < i; j++ {
			all = append(all, Drop{i, j, loss}, Drop{j, i, loss})
		}
	}
	return all
}

// Apply makes these the only faults; none: the network is whole. It returns how many packets the faults before have dropped.
func (l *Lab) Apply(drops ...Drop) (dropped uint64, err error) {
	var (
		mu      sync.Mutex
		failed  []error
		workers sync.WaitGroup
	)
	for i := 1; i <= l.nodes; i++ {
		workers.Go(func() {
			n, err := l.applyTo(i, drops)
			mu.Lock()
			defer mu.Unlock()
			dropped += n
			failed = append(failed, err)
		})
	}
	workers.Wait()
	return dropped, errors.Join(failed...)
}

func (l *Lab) applyTo(node int, drops []Drop) (dropped uint64, err error) {
	ns := l.namespace(node)
	rules := "*filter\n"
	for _, d := range drops {
		if d.To != node {
			continue
		}
		rules += fmt.Sprintf("-A INPUT -s 10.77.%d.0/24 ", d.From)
		if d.Loss < 1 {
			rules += fmt.Sprintf("-m statistic --mode random --probability %g ", d.Loss)
		}
		rules += "-j DROP\n"
	}
	counters, err := exec.Command("ip", "netns", "exec", ns, "iptables", "-nvxL", "INPUT").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("netlab: iptables in %s: %w: %s", ns, err, counters)
	}
	for line := range strings.Lines(string(counters)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "DROP" {
			n, err := strconv.ParseUint(fields[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("netlab: iptables counts %q: %w", line, err)
			}
			dropped += n
		}
	}
	cmd := exec.Command("ip", "netns", "exec", ns, "iptables-restore")
	cmd.Stdin = bytes.NewBufferString(rules + "COMMIT\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("netlab: iptables-restore in %s: %w: %s\n%s", ns, err, out, rules)
	}
	return dropped, nil
}
