package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
)

// A daily quota that is half used is half used after all nodes were stopped and started again.
func TestQuotaOutlivesAFullStop(t *testing.T) {
	besideOthers(t)
	dir := t.TempDir()
	binds := lastingPorts(t, 3) // the same in both lives: the nodes are each other's seeds
	begin := func() (all []*server) {
		for i, bind := range binds {
			name := fmt.Sprintf("n%d", i+1)
			all = append(all, startServer(t, "--node", name, "--bind", bind, "--join", binds[0]+","+binds[1]+","+binds[2], "--state-dir", filepath.Join(dir, name),
				"--limit", "hybrid=100/d,burst=100", "--limit", "strict=100/d,burst=100,mode=strict", "--limit", "split=90/d,burst=90,mode=split"))
		}
		for _, s := range all {
			s.waitReady()
			wait(t, "all members being seen", func() bool { return len(s.members("alive")) == len(binds) })
		}
		return all
	}
	limits := []string{"hybrid", "strict", "split"}
	admitted, ahead := map[string]int{}, map[string]int{}
	take := func(s *server, limit string) bool {
		d, err := s.ask(http.DefaultClient, limit, "user")
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted[limit]++
		}
		ahead[limit] += spentAhead(d)
		return d.Allowed
	}
	first := begin()
	for _, limit := range limits {
		s := first[0]
		if limit == "hybrid" { // elsewhere the owner knows at once what was used
			s = first[2]
		}
		for i := range 45 {
			if limit == "split" {
				s = first[i%3]
			}
			wait(t, "45 tokens of "+limit, func() bool { return take(s, limit) })
		}
	}
	for _, s := range first {
		terminate(t, s)
	}
	second := begin()
	for _, limit := range limits {
		before := admitted[limit]
		for _, s := range second {
			for take(s, limit) {
			}
		}
		rest, half := admitted[limit]-before, 55
		if limit == "split" {
			half = 45
		}
		// Credit that was out when a node left counts as spent, and shares bring whole tokens only. A machine that is busy with
		// something else may pause a node, which costs or gives a burst, or let an owner be late.
		if rest > half+1+ahead[limit]+100*paused(second) || rest < half-20 && paused(second) == 0 {
			t.Errorf("%s: %d tokens after the stop, %d were left", limit, rest, half)
		}
	}
	for _, s := range second {
		terminate(t, s)
	}
}
