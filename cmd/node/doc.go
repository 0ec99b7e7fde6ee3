// Command node is the standalone rate limiter: one node of a cluster, and the
// commands to check its configuration, to choose its numbers, to ask a running
// node, and to see it at work. Build it as jatah, because a binary called node would hide Node.js:
//
//	go build -o jatah ./cmd/node
//	./jatah serve --limit api=100/min,burst=20
//	./jatah take api user:42
//	./jatah math --burst 100 --rate 10/s --arrivals 50/s
//	./jatah demo
//
// math needs no node; `jatah math -h` has its formulas.
//
// Exit codes: 0 done (take: allowed), 1 failed, 2 used wrongly, 3 take: denied.
// Of doctor: 0 no problem, 1 problems, 2 it could not look.
// `serve` ends with 0 on SIGTERM and SIGINT, after handing off what it owns,
// within 10 seconds; a second signal ends any command at once with 1. On SIGHUP
// it reads its files again, if it has any.
package main
