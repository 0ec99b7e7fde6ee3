// Package jatah limits rates across many processes without a store between them: decisions are made in local memory or
// by the node that owns the key, and nodes that found each other by gossip share each limit.
//
// # Use
//
//	node, err := jatah.Start(ctx, jatah.Config{}) // one node, no network
//	defer node.Close()
//	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerMinute(100), Burst: 20})
//	if d := api.Take(ctx, "user:42", 1); !d.OK {
//		// come back in d.RetryAfter
//	}
//
// # Words
//
// A limit is a named rule: rate, burst, algorithm, mode. A key says whose usage counts. A cost is in tokens. A key
// starts with burst tokens and gains rate tokens per time, never above burst. A denial is a [Decision],
// not an error.
//
// Who would rather wait than be denied calls [Limiter.Wait]. Where the cost of a request is known only when it is over, [Limiter.Reserve]
// takes an estimate and settles the difference. [Limit.Costs] names what routes cost. [Node.Publish] defines
// a limit on all nodes. [Limiter.TakeBytes] with [AppendKey], [Node.AppendBatch] and [Limiter.Terms] are for who counts allocations. [Node.Top] says which keys use most and which are
// refused most in the whole cluster; [Node.AskAll] puts questions of your own to all members. [Node.ClusterStats] are the counters
// of all, [Node.Events] what happened to them. [Node.SetLimits] replaces all limits of a
// program at once.
//
// Package httpapi/edge limits HTTP requests as middleware, httpapi serves the decisions to other languages and to proxies, and httpapi/client asks
// for them.
//
// # Guarantees
//
//   - In any interval of length t, all nodes together admit at most burst + rate*t of a key (with Limit.Overshoot plus that part
//     of the burst), also while messages are lost and nodes join, leave and restart in good order. Other algorithms than the
//     token bucket promise what one node alone would admit: per window, where they have windows. What other faults may add
//     is stated with [Fallback].
//   - [Limiter.Take] never blocks longer than Config.AskTimeout.
//   - A single node decides exactly: integers, no drift.
//
// All types are safe for any number of goroutines unless they are plain values.
package jatah
