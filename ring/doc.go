// Package ring maps a key to a partition and a partition to its owner and heir, as an immutable snapshot.
//
// # Words
//
//   - member: a node's name. A ring is made from the set of members that one node sees.
//   - partition: one of a fixed number of slots (271 by default) that keys are hashed into.
//   - owner: the member that a partition is assigned to.
//   - heir: the member that would own the partition if its owner left.
//   - rank: the place of a member in the order of preference of one key.
//
// One look-up is: [Ring.Hash] of (limit, key), [Ring.Partition] of the hash,
// [Ring.Owner] of the partition.
//
// # Guarantees
//
//   - The same configuration and the same set of members give the same table on every
//     node, in whatever order the members came and whatever rings came before: each ring
//     is built anew from the sorted list.
//   - Every partition has exactly one owner, a member of the ring, if there is any member.
//   - No member owns more than ceil(Partitions / members * Load) partitions; see
//     [Ring.MaxLoad]. There may be more members than partitions: some then own nothing.
//   - Heir(p) is what a ring without Owner(p) answers as the owner of p.
//   - A ring never changes. All its methods may be called from any number of goroutines.
//   - Hashing and looking up allocate nothing and take no lock, but for the first question for an
//     heir of each owner.
//
// # Not guaranteed
//
//   - Two nodes with different views have different tables, and may both believe that they
//     own a partition. Who uses the table must stay correct then.
//   - The bound on the load costs some stability: when a member joins or leaves, a few
//     partitions also move between the members that stay. With the defaults a join moves
//     1.0 to 1.25 times the newcomer's fair part, Partitions/members, on average with up to
//     20 members, and up to twice that part with up to 100; in the worst of the sets of
//     names tried it was 2.2 and 3.4 times. TestOneMemberMoreMovesLittle holds these.
//   - Partitions are balanced, keys are not: one hot key is one partition's load.
//   - Hashes are not cryptographic. Who knows the seed can choose keys that collide.
//
// # Algorithm
//
// Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016), as in
// github.com/buraksezer/consistent: each member has Replication points on a circle of
// 64-bit hashes; a partition goes to the first point at or after its own hash whose member
// is below the bound. Partitions are placed in the order of their numbers, so the outcome
// depends on nothing but the set. The hash is xxhash64 with a seed.
//
// Ranks use rendezvous hashing (Thaler, Ravishankar, 1998): each member's score for a
// key is a hash of both, and the highest score comes first.
package ring
