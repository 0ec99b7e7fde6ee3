// Package report turns what suites of benchmarks measure into one page of Markdown with plots beside it.
//
// # Words
//
//   - suite: a [Suite], benchmarks that belong together. case: what is done, such as "keys10k/seq". peer: who does it.
//   - sample: one or more values of one case, peer and unit; a suite emits one for each round. round: one turn of all peers.
//   - curve: the points of a sample, such as throughput against callers.
//
// # Guarantees
//
// Samples of the same suite, case, parameters, peer and unit are one: their values are collected, and of points with the same
// X the median Y counts. So a suite emits what it has just measured and does no statistics. Suites, cases and peers come in the order in
// which they were first emitted.
//
// # Not guaranteed
//
// That a median of few rounds on a busy machine means much; therefore the page has the least and the greatest value beside each
// median, and the load of the machine before and after.
package report
