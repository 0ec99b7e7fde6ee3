// Package hybrid decides requests for one node of a cluster: from credit that the key's owner granted, at the owner, or from
// the node's own share.
//
// # Words
//
//   - share: a node's 1/K of every limit. weight is 1/K; K counts the members.
//   - owner of a key: the member that the ring names. heir: who would own it if the owner left.
//   - loan: a share lent to an owner. It runs out unless it is renewed.
//   - account: the lender's side of one key. ledger: the owner's side. pool: the tokens that a ledger can grant.
//   - credit: tokens granted to a node. report, grant, ask: what the two sides say to each other.
//   - purse: where the credit of a key lies, a record without pointers. solo: a key that has nothing but its purse.
//   - hold: credit that a take-all has set aside until all of its keys have answered.
//   - generation: a span in which the counters of an account and its entry in the ledger belong together.
//   - permit: what is held of a limit that counts what is held at once.
//   - stamp: a moment of one engine's clock, with its incarnation and epoch. TTL: five ticks.
//
// # Shape
//
// The core has no I/O: Tick, Poll, Receive, ReceiveTransfer and SetView take the time and messages in, and messages leave
// through a [Network] once the engine's lock is released. So a whole cluster can be replayed from a seed. A take on credit
// goes round all this: it is a look-up and one compare-and-swap on the key's purse.
//
// Files, in the order of a request: limit.go and plan.go (the handle), purse.go (a take on credit), hot.go (a key that many processors hit), solo.go (keys of a node
// that is the only member), takeall.go, hold.go and parent.go (several keys at once), decide.go (no
// credit: what now), recall.go (credit that others do not use), room.go and overflow.go (keys that there is no room for), ask.go (waiting for the owner), account.go, accounts.go, ledger.go and meter.go (the two sides), partition.go (which shares the owner
// holds), lend.go (to whom this node lends), fallback.go (the owner is silent), local.go (who decides alone), tick.go, receive.go, view.go
// (membership and K), handoff.go, standby.go and copies.go (changes of owner), began.go (a cluster that starts), save.go and restore.go (a stop of
// the whole cluster), held.go (what differs for permits), permit.go and forward.go (the permits themselves), top.go (who uses most), signs.go (what happens to the node), durations.go and stats.go (counters), message.go, decode.go and wire.go
// (the wire).
//
// # Guarantees
//
// For each key, in any interval of length t, all engines of a cluster together admit at most b + r*t + excess:
//
//   - messages lost, doubled, delayed and reordered, joins and leaves: excess = phi*b.
//   - any other fault with FallbackWait: excess = phi*b; with FallbackShare plus b once per event, owed and charged later.
//   - partitions longer than Grace: each side has the whole limit from then on.
//
// Invariants that the tests check: pool + sum(G-C-R) <= cap for every ledger; the shares of a partition that are in use add up to at most
// one; C at the owner <= C at the node, G at the node <= G at the owner.
//
// # Not guaranteed
//
//   - That every token is used: shares that are with nobody wait, and a crashed node's until Grace is over.
//   - Fairness between nodes beyond shares in proportion to demand.
//   - Anything against a member that lies. Messages are trusted; the network must keep strangers out.
package hybrid
