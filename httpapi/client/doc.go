// Package client asks nodes of Jatah over their HTTP API, for services that do not embed a node. It needs the standard library only.
//
// # Words
//
// A [Decision] is the answer to a take, refund or charge. A denial is a decision with Allowed false and a nil error. An error is a [*Problem],
// which a node or a proxy before it answered, or says that no answer came. A try is one HTTP request; a call is all tries
// until there is an answer. What a call may have done without saying so is told by [ErrUncertain].
//
// # Guarantees
//
//   - Two keys that differ, as strings or lists of strings, are counted apart, whatever bytes they hold.
//   - A take, take-all, refund or charge is carried out at most once however often it is tried: all its tries carry one
//     Idempotency-Key, and after a try that may have been carried out it stays with that node, and is not tried again
//     when that may have forgotten it.
//     (Behind one address that stands for several nodes this holds only if the balancer keeps to one of them.)
//   - A call that cannot end before the deadline of its context fails as soon as this is known, with [ErrDeadline], and a context that
//     ends ends the call at once.
//   - A caller of a shared call (see [Batch]) gets its own decision or error, whatever becomes of the others in it.
//   - A [Transport] sends nothing for a key that is paused.
//
// # No guarantees
//
//   - A lost answer to an Acquire costs one permit until its time to live is over: there is nothing that could tell the repeat.
//     It is not repeated then.
//   - A take in a shared call whose answer is lost is not repeated either; it may have been charged, and errors.Is(err, ErrUncertain) says so.
//   - Nodes are not balanced: a client stays with one address while it answers. Clients begin with a random one.
//   - Nothing is decided here while no node answers. What passes then is for the caller to say.
//
// Transport is an [http.RoundTripper] that paces outgoing requests by a limit, of this package or of an embedded node, and
// honours 429 and 503 of the remote.
package client
