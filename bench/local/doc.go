// Package local measures limiters as libraries in one process: ours, its peers, and the floor of what the machine allows.
//
// There are five suites: local, the cost of a decision; keys, how it grows with the number of keys; memory, bytes per key and what the
// collector makes of them; credit, our own decisions in a cluster of three nodes; latency, the distribution of our own decisions while everything else goes on.
//
// # Guarantees
//
// All peers get the same keys in the same order, drawn before the clock starts; the bytes of each drawn key lie one behind the other, as if
// each had just been read from a request. In each round each peer is opened anew, has its turn alone, and is closed before the next is opened, so that none
// pays for another's goroutines or garbage. The limits are so high that everything is allowed, or so low that nothing is; a run in which that is
// not so fails.
//
// # Not guaranteed
//
// That the peers do the same: the notes in the report say what each leaves out.
package local
