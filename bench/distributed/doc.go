// Package distributed measures limiters that count for more than one process: Redis with three ways to limit, gubernator with three
// behaviours, and a cluster of nodes in its three modes, embedded and over HTTP. All run as real processes that talk over the
// loopback interface.
//
// # Words
//
//   - target: one way to ask one peer. client: what one service instance has: a connection pool, an embedded node.
//   - caller: a goroutine that asks again as soon as it is answered. flood: many callers of three clients on one key, far above its limit.
//   - bound: what a limit may admit: burst + rate*t. excess: the most that was admitted above it in any interval.
//
// There are two suites: [Speed], how long a decision takes and how many there are per second, and [Flood], how many are admitted beside
// how many may be.
package distributed
