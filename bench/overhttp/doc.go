// Package overhttp measures what a decision over HTTP costs beyond HTTP itself: one node as users run it, beside a bare net/http handler
// that sends what the node sent, byte for byte, without deciding anything, and beside one process of gubernator. wrk asks them in turn.
//
// The peer "bare net/http" is what net/http can do on this machine. wrk itself uses the same processors, which makes all slower and ratios
// kinder: they are not those of the handlers alone.
package overhttp
