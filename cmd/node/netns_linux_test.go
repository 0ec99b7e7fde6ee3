package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jatah-io/jatah/internal/netlab"
)

// lab is a netlab.Lab of a test, which ends when something in it fails.
type lab struct {
	t   *testing.T
	lab *netlab.Lab
}

// hubLabel names where no node is.
const hubLabel = "hub"

// claiming is held while a lab is claimed: who looks for labs that are left over tries their locks.
var claiming sync.Mutex

// newLab makes the network, or skips the test where that is not possible.
func newLab(t *testing.T, nodes int) *lab {
	t.Helper()
	needProcesses(t)
	claiming.Lock()
	l, err := netlab.New("jatah-test", nodes)
	claiming.Unlock()
	switch {
	case errors.Is(err, netlab.ErrUnavailable):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &lab{t, l}
}

func nodeLabel(i int) string { return fmt.Sprintf("n%d", i) }

func (l *lab) address(i, which int) string { return l.lab.Address(i, which) }

// in runs f in the namespace with a label.
func (l *lab) in(label string, f func()) error {
	node := netlab.Hub
	if label != hubLabel {
		if _, err := fmt.Sscanf(label, "n%d", &node); err != nil {
			return fmt.Errorf("no namespace is called %q: %w", label, err)
		}
	}
	return l.lab.In(node, f)
}

func (l *lab) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return l.lab.Dial(ctx, network, address)
}

// fault is a netlab.Drop.
type fault struct {
	from, to int
	loss     float64
}

// apply makes these the only faults, and returns how many packets those before have dropped.
func (l *lab) apply(faults ...fault) (dropped uint64) {
	l.t.Helper()
	drops := make([]netlab.Drop, len(faults))
	for i, f := range faults {
		drops[i] = netlab.Drop{From: f.from, To: f.to, Loss: f.loss}
	}
	dropped, err := l.lab.Apply(drops...)
	if err != nil {
		l.t.Fatal(err)
	}
	return dropped
}

func between(a, b []int, loss float64) []fault { return faults(netlab.Between(a, b, loss)) }

func (l *lab) everywhere(loss float64) []fault { return faults(l.lab.Everywhere(loss)) }

func faults(drops []netlab.Drop) (all []fault) {
	for _, d := range drops {
		all = append(all, fault{d.From, d.To, d.Loss})
	}
	return all
}
