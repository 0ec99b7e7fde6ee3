// Package httpapi serves the decisions of a [jatah.Node] over HTTP as JSON.
//
// # Words
//
// A decision is the answer to a take, refund or charge; a denial is a decision
// (status 429; 503 by fallback deny) and not an error. A problem is an error in the form of RFC 9457
// (application/problem+json): type, title, status, detail and, where one field
// of the request is to blame, field. The endpoints are listed in docs/http-api.md.
//
// Proxies ask by forward auth once the handler has rules: see [Handler.SetEdge]. The same rules as middleware are package httpapi/edge.
//
// # Guarantees
//
//   - A request that is answered with a problem has charged nothing, except 503 with the
//     type "undecided": then the node could not tell.
//   - Any two keys that differ, as strings or as arrays of strings, are counted
//     apart, whatever bytes they hold. A key is never a header or a label, and in a log line only
//     with Config.LogRefusals.
//   - Waits in headers and bodies are rounded up, so a client that waits as long as it was
//     told is not too early. A denial never says Retry-After: 0.
//   - A repeat with the same Idempotency-Key within a minute at this node has the same
//     status, headers and body and charges nothing, while fewer answers than
//     Config.RepeatEntries and Config.RepeatBytes allow are remembered.
//   - Memory is bounded: a body by [MaxBody], a batch by Config.MaxBatch, connections by [Listener].
//   - A request that is refused for who sent it has been neither read nor decided. All tokens are compared with the one that came, in the
//     same time whichever it is, and none is ever logged.
//
// # No guarantees
//
//   - Without tokens ([Access]) whoever reaches the address may take, and see who uses what; only what needs [RoleAdmin] has to come from the
//     same machine then. Forward auth asks more: it believes trusted proxies alone.
//   - Repeats are known to one node only: behind a balancer send them to the same node.
//   - A batch is not atomic; its items are decided in order, each on its own.
//
// The package knows nothing of Prometheus; httpapi/metrics makes the handler for
// Config.Metrics.
package httpapi
