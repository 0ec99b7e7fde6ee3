// Package grpcedge limits gRPC calls by the rules of [edge]: interceptors for servers, and for clients that pace what they call.
//
// # A call as a request
//
// Rules see a call as a request with the method POST, the path "/package.Service/Method", the metadata as headers, the address of the
// peer and the context of the call. So edge.Path("/shop.Orders/*") is for all calls of a service, and edge.AccountFromContext reads what
// an authenticating interceptor before this one has put into the context. There is no body: costs of body fields do not work here.
//
// # Answers
//
// A refusal is the status RESOURCE_EXHAUSTED with a RetryInfo detail that says how long to wait, where that helps, and the fields
// retry-after, ratelimit and ratelimit-policy in the header metadata; what the node cannot decide is UNAVAILABLE, a bad request
// INVALID_ARGUMENT. Nothing in it depends on whether an account exists.
//
// # The end of a call
//
// A permit is held until the handler has returned, for a stream until the stream's handler has. Rules that count failures, or charge
// afterwards, see the status code as the HTTP status that it is commonly mapped to (UNAUTHENTICATED is 401), and the size of the
// messages sent as bytes.
package grpcedge
