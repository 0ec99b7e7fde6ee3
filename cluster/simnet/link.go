package simnet

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Link names one direction between two addresses.
type Link struct{ From, To string }

// Stats counts what became of the packets and streams of one link, or of all. Every
// packet handed in, and every second copy, ends in exactly one of Delivered, Lost, Cut,
// Overflow, Nobody and Muted, or is still InFlight:
//
//	Packets + Duplicated = Delivered + Lost + Cut + Overflow + Nobody + Muted + InFlight
type Stats struct {
	Packets     uint64 // handed in
	Bytes       uint64 // of these packets
	Duplicated  uint64 // second copies made
	Delivered   uint64 // put into a socket buffer
	Lost        uint64 // by Conditions.Loss
	Cut         uint64 // by Cut, Partition or Isolate
	Overflow    uint64 // by a full socket buffer
	Nobody      uint64 // by the lack of a host at the address
	Muted       uint64 // sent by a paused host
	InFlight    uint64 // on their way
	Dials       uint64 // connections asked for
	Connected   uint64 // of these, established
	StreamBytes uint64 // written to streams in this direction
}

// Dropped is the number of packets and copies that were not delivered and never will be.
func (s Stats) Dropped() uint64 { return s.Lost + s.Cut + s.Overflow + s.Nobody + s.Muted }

func (s *Stats) add(o Stats) {
	s.Packets += o.Packets
	s.Bytes += o.Bytes
	s.Duplicated += o.Duplicated
	s.Delivered += o.Delivered
	s.Lost += o.Lost
	s.Cut += o.Cut
	s.Overflow += o.Overflow
	s.Nobody += o.Nobody
	s.Muted += o.Muted
	s.InFlight += o.InFlight
	s.Dials += o.Dials
	s.Connected += o.Connected
	s.StreamBytes += o.StreamBytes
}

// Stats is the sum over all links.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	var sum Stats
	for _, l := range n.links {
		sum.add(l.stats)
	}
	return sum
}

// LinkStats is what became of what from sent to to.
func (n *Network) LinkStats(from, to string) Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[Link{canonical(from), canonical(to)}]; l != nil {
		return l.stats
	}
	return Stats{}
}

// Links are the directions that were ever used or named, sorted.
func (n *Network) Links() []Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	links := make([]Link, 0, len(n.links))
	for key := range n.links {
		links = append(links, key)
	}
	slices.SortFunc(links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return links
}

// link is the state of one direction, guarded by the network's mutex.
type link struct {
	Link
	own     *Conditions // nil: the network's
	cut     bool
	stats   Stats
	packets *rand.Rand // decides about packets
	stream  *rand.Rand // decides about streams
}

// fate is what will become of one packet.
type fate struct {
	lost, twice   bool
	delay, delay2 time.Duration // of the packet and its second copy
}

// draw decides about the next packet. It always takes the same number of random values, so
// that a change of the conditions does not shift the fate of all later packets.
func (l *link) draw(c Conditions) fate {
	return fate{
		lost:   l.packets.Float64() < c.Loss,
		twice:  l.packets.Float64() < c.Duplicate,
		delay:  c.delay(l.packets),
		delay2: c.delay(l.packets),
	}
}

func (c Conditions) delay(r *rand.Rand) time.Duration {
	d := between(r, c.DelayMin, c.DelayMax)
	late, by := r.Float64() < c.Straggle, between(r, c.StraggleMin, c.StraggleMax)
	if late {
		d += by
	}
	return d
}

// streamDelay is how long a piece of a stream takes, with the resending of lost copies.
func (l *link) streamDelay(c Conditions) time.Duration {
	d := between(l.stream, c.DelayMin, c.DelayMax)
	for rto := minRTO; l.stream.Float64() < c.Loss && rto < maxRTO; rto *= 2 {
		d += rto
	}
	return d
}

func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.Float64()*float64(hi-lo))
}
