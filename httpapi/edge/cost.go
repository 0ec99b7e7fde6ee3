package edge

// Cost is what a request costs in tokens, before it is served. An error that wraps ErrRequest refuses the request with 400. It is called by many
// goroutines at once.
type Cost func(*Request) (int64, error)

// Fixed is always the same cost.
func Fixed(tokens int64) Cost { return func(*Request) (int64, error) { return tokens, nil } }

// After is what a request costs when it is over, in tokens: 0 or more.
type After func(*Request, Outcome) int64

// bodyPeek is what was read of a body to find its cost.
type bodyPeek struct{}
