// Package bench measures Jatah beside what a service would use otherwise, in one run on one machine.
//
// It is a module of its own: the peers stay out of the go.mod of whoever embeds a node. There is nothing in it
// to import.
//
// # Guarantees
//
// All peers get the same keys in the same order, drawn before the clock starts; all keys are known to the peer
// before; all limits are so high that everything is allowed, or so low that nothing is, and each benchmark checks that.
//
// # Not guaranteed
//
// That the peers do the same: see README.md for what each leaves out. Absolute numbers mean little on another
// machine, and nothing at all if something else ran meanwhile.
package bench
