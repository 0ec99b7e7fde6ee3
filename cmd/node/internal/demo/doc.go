// Package demo shows a cluster at work on one machine: three nodes as real
// processes with real sockets, a small HTTP service before each, heavy and
// skewed load, one node killed without warning and brought back, and a verdict
// from what was measured.
//
// Words. A service is a small web application as users would write it; before
// it answers a request it asks its node for a decision (POST /v1/take), and so
// the demo shows the way that works from every language. The hot key is the
// user who sends far more than the limit lets through; the busy node is the one
// that gets most of the requests.
//
// Guarantees. The verdict is computed from the moments at which the services
// sent each question and had its answer, by package envelope, and is "broken"
// only if more was admitted than the limit promises. No process outlives the
// demo, on Linux not even when the demo itself is killed.
//
// Not guaranteed: the latencies of another day. All processes and the load
// share the cores of one machine.
package demo
