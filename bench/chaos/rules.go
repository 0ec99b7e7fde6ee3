package chaos

import (
	"fmt"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
	"github.com/jatah-io/jatah/internal/envelope"
)

// rule is a limit under test, and how it is loaded.
type rule struct {
	name, algorithm, mode, fallback string
	rate, burst                     int64   // per second; tokens
	offered                         float64 // how many times the rate is asked for, all nodes together
	even                            bool    // the same at each node
	with                            string  // taken together with this one, as take-all
	judged                          bool    // its use in quiet periods is a promise
}

// ruleSet are the limits that are judged, each with b = 2 s of its rate.
func ruleSet(rate int64) []rule {
	b := 2 * rate
	return []rule{
		{name: "hybrid-wait", mode: "hybrid", fallback: "wait", rate: rate, burst: b, offered: 2.5, judged: true},
		{name: "hybrid-share", mode: "hybrid", fallback: "share", rate: rate, burst: b, offered: 2.5},
		{name: "strict-wait", mode: "strict", fallback: "wait", rate: rate, burst: b, offered: 2.5, judged: true},
		{name: "strict-share", mode: "strict", fallback: "share", rate: rate, burst: b, offered: 2.5},
		{name: "split", mode: "split", fallback: "wait", rate: rate, burst: b, offered: 2.5, even: true},
		{name: "window", algorithm: "sliding_window", mode: "hybrid", fallback: "wait", rate: rate, burst: 4 * rate, offered: 2.5},
		{name: "all-a", mode: "hybrid", fallback: "wait", rate: rate, burst: b, offered: 2, with: "all-b"},
		{name: "all-b", mode: "hybrid", fallback: "wait", rate: 2 * rate, burst: 2 * b},
		{name: "light", mode: "hybrid", fallback: "wait", rate: rate, burst: b, offered: 0.2},
	}
}

// Limits besides, of which the use is not judged.
const (
	permits    = "permits" // of the algorithm concurrency
	maxPermits = 12
	permitTTL  = 20 * time.Second
	floodLimit = "flood"
	keptLimit  = "kept" // of a soak: its keys stay in memory
	keptBurst  = 1000
	churnLimit = "churn" // in the files: what a reload changes
)

// definition is the limit as a line of the file.
func (r rule) definition() string {
	if r.algorithm == "sliding_window" {
		// The window is burst/rate seconds.
		return fmt.Sprintf("{name: %s, rate: %d/%ds, algorithm: %s, mode: %s, fallback: %s}", r.name, r.burst, r.burst/r.rate, r.algorithm, r.mode, r.fallback)
	}
	return fmt.Sprintf("{name: %s, rate: %d/s, burst: %d, mode: %s, fallback: %s}", r.name, r.rate, r.burst, r.mode, r.fallback)
}

func (r rule) request(key string) client.Request {
	return client.Request{Limit: r.name, Key: client.Key{key}, Cost: 1}
}

// event is what happened to the cluster, in time since the start.
type event struct {
	from, to time.Duration
	kind     Kind
	step     int // 0: the machine paused a node
	times    int // how many events of the promise it stands for
	nodes    []int
}

// promise is what an event allows beyond b + r·t.
//
//   - Nothing, when it does not change who is a member or whom it hears.
//   - With wait: what a paused node held as credit when it was paused, at most b.
//   - With share: what nodes spend ahead, at most b. Joins, leaves and restarts in good order allow nothing by themselves; but a machine that
//     is busy enough delays them until owners seem silent.
//   - With split: a share that moved, at most b.
func (r rule) promise(e event) float64 {
	switch e.kind {
	case Disk, Files, Clock, Reload, Limits, Keys:
		return 0
	case Pause:
	default:
		if r.fallback == "wait" && r.mode != "split" {
			return 0
		}
	}
	return float64(int64(e.times) * r.burst)
}

// allowances are what the events allow.
func (r rule) allowances(events []event) (all []envelope.Allowance) {
	for _, e := range events {
		if n := r.promise(e); n > 0 {
			all = append(all, envelope.Allowance{From: e.from, To: e.to, Tokens: n})
		}
	}
	return all
}
