package client

// Current is the index of the address that is asked first.
func Current(c *Client) int { return int(c.at.Load()) }

var (
	RetryAfter    = retryAfter
	AppendRequest = appendRequest
)

// Paused is how many keys a transport remembers.
func Paused(t *Transport) int {
	t.pauses.mu.Lock()
	defer t.pauses.mu.Unlock()
	return len(t.pauses.keys)
}

// Backoff is a pause after n+1 failures.
func Backoff(r Retry, n int) (d, most int64) {
	r, err := r.withDefaults(1)
	if err != nil {
		panic(err)
	}
	return int64(r.backoff(n)), int64(r.Max)
}
