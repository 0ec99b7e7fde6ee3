package simnet_test

import (
	"fmt"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// A network works in real time as well. In tests with time, use a synctest bubble: see the
// package comment.
func Example() {
	n := simnet.New(1)
	defer n.Close()
	a, err := n.Transport("10.0.0.1:7946")
	if err != nil {
		panic(err)
	}
	b, err := n.Transport("10.0.0.2:7946")
	if err != nil {
		panic(err)
	}

	send := func(s string) {
		if _, err := a.WriteTo([]byte(s), b.Addr()); err != nil {
			panic(err)
		}
	}
	send("hello")
	p := <-b.PacketCh()
	fmt.Printf("%s from %s\n", p.Buf, p.From)

	n.Cut(a.Addr(), b.Addr())
	send("is anybody there?")
	n.Mend(a.Addr(), b.Addr())
	send("back again")
	p = <-b.PacketCh()
	fmt.Printf("%s\n", p.Buf)

	s := n.LinkStats(a.Addr(), b.Addr())
	fmt.Printf("%d sent, %d delivered, %d cut\n", s.Packets, s.Delivered, s.Cut)
	// Output:
	// hello from 10.0.0.1:7946
	// back again
	// 3 sent, 2 delivered, 1 cut
}

// Each direction of a link may have conditions of its own.
func ExampleNetwork_SetLink() {
	n := simnet.New(1)
	defer n.Close()
	err := n.SetLink("10.0.0.1:7946", "10.0.0.2:7946", simnet.Conditions{
		Loss:     0.1,                   // one packet in ten vanishes
		DelayMin: 10 * time.Millisecond, // the others take 10
		DelayMax: 30 * time.Millisecond, // to 30 ms
		Straggle: 0.01,                  // and one in a hundred
		// is late by up to a second more
		StraggleMax: time.Second,
	})
	fmt.Println(err)
	// A mistyped value is refused.
	fmt.Println(n.Set(simnet.Conditions{Loss: 10}))
	// Output:
	// <nil>
	// simnet: bad conditions: Loss 10, want a probability of 0 to 1
}
