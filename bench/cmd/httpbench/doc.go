// Command httpbench says what a decision over HTTP costs beyond HTTP itself. It runs one node as users run it, and
// beside it a bare net/http handler that sends what the node sent, byte for byte, without deciding anything;
// wrk asks both in turn, several rounds in one run, so that what else the machine does hits both.
//
//	cd bench && go run ./cmd/httpbench
//
// The ratio of the medians is the result; it is what the node keeps of the requests per second that net/http can
// do on this machine. wrk itself uses the same processors, which makes both slower and the ratio kinder: it
// is not the ratio of the handlers alone.
//
// It needs wrk, and ends with 1 if any answer was not 200.
package main
