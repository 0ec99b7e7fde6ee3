// Package cluster says who is alive and carries messages between the members. Who is alive it knows from memberlist, whose
// socket its packets share.
//
// # Words
//
//   - member: a process with a name, alive as far as this node can tell, that has finished joining.
//   - process: one run of a member. Each has an [Incarnation]: 40 random bits drawn at the
//     start and a counter that [Cluster.Renew] raises.
//   - view: the set of members as this node sees it, and the ring made from it. Immutable.
//   - lost: a member that failed, or that left in good order, and is still remembered.
//   - seed: an address from Config.Join. Not the hash seed, by which keys and partitions are placed (seed.go).
//
// # Guarantees
//
//   - Views are delivered in order, from one goroutine; Seq grows by one from each to the next.
//   - Same set of names, same ring, on every node.
//   - A name belongs to one process: a second one that joins while the first answers is
//     refused, and the others never see it in a view. If two come to be through a partition,
//     all nodes choose the same one, and the other shuts down and reports it with Events.Down.
//   - A name is free at once when its process left in good order, and as soon as its process stops
//     answering when it crashed, at whatever address the next one is.
//   - A call is executed at most once, however often the network loses or doubles its packets.
//   - With a secret, nothing is taken in that was not made by a process which has it, for a cluster of this name.
//   - A packet is never larger than Config.PacketSize, and only members' packets that are meant
//     for this incarnation reach the handlers.
//   - Nodes that lost each other try again for as long as they run.
//   - What is written to a [Register] reaches every member that has one, within a round trip or two where nothing is lost, and
//     at the latest when the members can reach each other again; then all have the same.
//   - Secrets can be changed while nodes run, in three steps, without a packet being dropped: see [Cluster.SetSecrets].
//   - Nodes of [Protocol] and [PreviousProtocol] are members of one cluster. What a newer version adds is left out, not refused.
//   - Close ends all goroutines that Start began.
//
// # Not guaranteed
//
//   - Two nodes may have different views at the same time, for seconds after a change and for the
//     length of a partition.
//   - [Cluster.Send] may lose, double, delay and reorder. An error from [Cluster.Call] leaves
//     open whether the call was executed.
//   - Without a secret anyone who can send a packet to the port can be a member. With one, a packet that was recorded
//     can be sent again, to the same incarnation: nothing that is said here means more when it is said twice.
//
// # How packets travel
//
// A message is one write to the UDP socket by the goroutine that sends it, and one read by the goroutine that hands it to
// Events.Packet; nothing is queued in between but what comes while a packet to the same member is being written: that shares the
// next one. Streams, and what memberlist says itself, go through memberlist. With a secret both are encrypted and authenticated with it, our
// packets by keys that are made of it for each process (seal.go has the form); a packet that is not is dropped and counted as foreign.
//
// # How names work
//
// To memberlist each process has a name of its own (the node's name and its 40 bits), so that
// memberlist never sees a conflict: who holds a node's name is decided here, from the metadata.
// A process first joins without being in anybody's view, looks for a holder of its name, and
// pings it, and asks others to. If the holder answers, the newcomer gives up with
// [ErrNameTaken]. If not, it claims the name with a number above the holder's, and every node
// prefers the higher claim.
package cluster
