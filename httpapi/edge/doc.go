// Package edge limits HTTP requests where they come in: who is asking, what it costs, and how to refuse well.
//
// It is middleware for net/http, and the same decisions for what is not a net/http handler: a proxy that asks by forward
// auth, a gRPC server, another framework.
//
// # Words
//
// A rule says for whom it is (conditions), what is counted (uses: a limit, a key, a cost) and how it refuses. Rules have an
// order; the first whose conditions hold and whose keys can all be made decides, and the others are not asked. A rule without
// uses exempts. A verdict is what a rule decided about one request; it is settled when the request is over.
//
// # Guarantees
//
//   - All uses of a rule are charged, or none.
//   - A permit of a concurrency limit lives exactly as long as the handler, also when that panics or the client is gone.
//   - Nothing that a client sends says who it is, unless the application says so with [Config].Account or the proxy is trusted.
//   - A value of a request is never a metric's label. In keys it is bounded: a longer key is replaced by its hash.
//   - What the node cannot decide is refused with 503, unless [Config].FailOpen.
package edge
