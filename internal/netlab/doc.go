// Package netlab makes networks of Linux network namespaces, for tests and benchmarks that run real processes and break what is between
// them: one namespace for each node and one more, the hub, with the bridge that joins them. Nothing in a lab can reach, or be reached from,
// the network of the machine. What a test says to a node it says from the hub, which no fault touches.
//
//	node i: 10.77.i.1 and 10.77.i.2 on eth0   hub: 10.77.255.254 on br0
//
// It needs Linux, root, and the programs ip and iptables; [New] fails with [ErrUnavailable] where something of that is missing.
//
// # Guarantees
//
// A lab whose process ended without [Lab.Close] is removed by the next New with the same mark, and so are the processes that still run
// in it. One that is in use is never touched.
package netlab

import "errors"

// ErrUnavailable is wrapped by what New returns where this machine or user cannot make a lab; the text says what to do.
var ErrUnavailable = errors.New("netlab: no network namespaces here")

// Drop is that a part of the packets from one node to another is dropped. It goes one way. Nodes count from 1.
type Drop struct {
	From, To int
	Loss     float64 // above 0; 1: all of them
}

// Between drops on all links between two groups that have no node in common, in both directions.
func Between(a, b []int, loss float64) (all []Drop) {
	for _, i := range a {
		for _, j := range b {
			all = append(all, Drop{i, j, loss}, Drop{j, i, loss})
		}
	}
	return all
}

// Hub is the number of the hub for [Lab.In].
const Hub = 0
