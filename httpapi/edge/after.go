package edge

import "time"

// After is what a request costs when it is over, in tokens, besides what it cost before: 0 or more. It is charged as debt, whether the tokens
// are there or not, so it is those after it that wait. It is called by many goroutines at once, also when the client has gone and
// when the handler has panicked.
type After func(*Request, Outcome) int64

// ResponseBytes is one token for each so many bytes of the response's body. What is left over is free: the cost before pays for it.
func ResponseBytes(per int64) After {
	per = max(1, per)
	return func(_ *Request, o Outcome) int64 { return o.Bytes / per }
}

// HandlerTime is one token for each so much time that the handler took. What is left over is free: the cost before pays for it.
func HandlerTime(per time.Duration) After {
	per = max(1, per)
	return func(_ *Request, o Outcome) int64 { return int64(o.Took / per) }
}

// Failures counts responses that say who is asking could not be proved or may not: 401 and 403. They do not count what says nothing about that: 400 and 422
// are forms filled in badly, 404 a path that is not there, 429 a refusal by something else, and from 500 on it is not the client who failed. A
// server that answers a wrong password with another status, such as 200 and the form again, names it with [Statuses].
func Failures() func(status int) bool { return Statuses(401, 403) }

// Statuses counts responses with one of these.
func Statuses(codes ...int) func(status int) bool {
	set := make(map[int]bool, len(codes))
	for _, c := range codes {
		set[c] = true
	}
	return func(status int) bool { return set[status] }
}
