package cluster

import "sync/atomic"

// Stats is a snapshot of counters since the start, and gauges. The counters are not read at one instant.
type Stats struct {
	Members, Lost int // in the view now, this node included

	PacketsIn, PacketsOut int64 // ours, not memberlist's; PacketsIn counts streams too
	StreamsOut            int64
	BytesIn, BytesOut     int64 // of packets and streams, without what seals them
	SendErrors            int64 // writes or streams that failed

	DropUnknown   int64 // from a process that is not a member
	DropStale     int64 // for or from another incarnation, or a request too old to tell whether it ran
	DropMalformed int64
	DropNewer     int64 // parts of packets, of kinds that this version does not know
	DropForeign   int64 // not from a process with our cluster's name and secret, or damaged on the way
	DropBusy      int64 // no room in a queue, or all handlers busy

	Calls, Resends, Timeouts int64 // Call, Transfer and our own; sent again; given up with their context
	Duplicates               int64 // requests that came again and were not run again

	Rejoins, RejoinErrors int64 // attempts to reach seeds and lost members after the start
	Strangers             int64 // exchanges of states because an unknown process, or one thought dead, spoke
	LookupErrors          int64 // of Config.Join
}

type counters struct {
	packetsIn, packetsOut, streamsOut, bytesIn, bytesOut, sendErrors        atomic.Int64
	dropUnknown, dropStale, dropMalformed, dropForeign, dropBusy, dropNewer atomic.Int64
	calls, resends, timeouts, duplicates                                    atomic.Int64
	rejoins, rejoinErrors, strangers, lookupErrors                          atomic.Int64
}

// Stats reads the counters.
func (c *Cluster) Stats() Stats {
	v := c.View()
	n := &c.n
	return Stats{
		Members: len(v.Members), Lost: len(v.Lost),
		PacketsIn: n.packetsIn.Load(), PacketsOut: n.packetsOut.Load(), StreamsOut: n.streamsOut.Load(),
		BytesIn: n.bytesIn.Load(), BytesOut: n.bytesOut.Load(), SendErrors: n.sendErrors.Load(),
		DropUnknown: n.dropUnknown.Load(), DropStale: n.dropStale.Load(),
		DropMalformed: n.dropMalformed.Load(), DropForeign: n.dropForeign.Load(), DropBusy: n.dropBusy.Load(), DropNewer: n.dropNewer.Load(),
		Calls: n.calls.Load(), Resends: n.resends.Load(), Timeouts: n.timeouts.Load(), Duplicates: n.duplicates.Load(),
		Rejoins: n.rejoins.Load(), RejoinErrors: n.rejoinErrors.Load(), Strangers: n.strangers.Load(), LookupErrors: n.lookupErrors.Load(),
	}
}
