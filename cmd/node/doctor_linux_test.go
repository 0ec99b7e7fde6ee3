package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestDoctorNamesAClosedDirection: a firewall that drops UDP from n1 to n2, and nothing else, as n3 sees it.
func TestDoctorNamesAClosedDirection(t *testing.T) {
	r := newRig(t, 3, nil, "--limit", "api=100/min")
	err := r.lab.in(nodeLabel(2), func() {
		drop := exec.Command("iptables", "-A", "INPUT", "-p", "udp", "-s", r.lab.address(1, 1), "-j", "DROP")
		if out, err := drop.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var v visit
	wait(t, "the diagnosis", func() bool {
		sleep(200 * time.Millisecond) // an answer is kept for a second
		v = visit{}
		if err := r.nodes[2].server().read("/v1/doctor", &v); err != nil {
			return false
		}
		for _, f := range v.Findings {
			if f.Check == "packets" && strings.HasPrefix(f.Problem, "UDP packets from n1 do not arrive at n2; TCP does.") &&
				strings.Contains(f.Advice, "Open UDP from "+r.nodes[0].server().bind+" to "+r.nodes[1].server().bind) {
				return true
			}
		}
		return false
	})
	for _, f := range v.Findings {
		if f.Check == "packets" && strings.Contains(f.Problem, "from n2 do") {
			t.Errorf("the other direction is open: %+v", f)
		}
	}
	b, err := json.Marshal(v)
	t.Logf("%s (%v)", b, err)
}
