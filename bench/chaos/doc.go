// Package chaos runs a cluster of real processes under load, breaks it at random, and judges from outside whether every promise was kept.
//
// # Words
//
// A kind is a way to break something; a step is one fault with its victims and its length, drawn from the seed; a schedule is the steps in
// order. After each step the cluster is let to recover: all nodes ready, all seeing all, shares lent again, owners deciding. What follows is a
// quiet period, until the next step. A track is a key of a limit whose admissions are recorded, each with the moments in which it was
// asked for and answered. An event is what happened to the cluster, as the judge counts it: from just before a fault until the cluster
// has recovered; or a pause that the machine made, which nodes notice and count by themselves.
//
// # What is judged
//
//   - Excess: of each track, over all intervals, what was admitted beyond b + r·t and what the promise gives for each event that the
//     interval meets (see promise). An admission whose answer was lost is not counted, and one that was answered late counts only for
//     intervals that contain both of its moments: what is reported has happened.
//   - Permits: how many of a key were certainly held at once.
//   - That nodes answer: errors of nodes that no fault had touched.
//   - That a cluster recovers within two minutes of every fault.
//   - That nodes end with code 0 within 10 seconds of SIGTERM, and never by themselves; that no log has a panic or a data race.
//   - That changed limits and reloads arrive.
//   - Use of saturated limits in quiet periods, where the limit promises it.
//
// The same seed draws the same schedule. Processes do not replay: what a fault meets differs from run to run.
package chaos
