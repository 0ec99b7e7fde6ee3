package jatah

// Queues is the number of keys that somebody waits for.
func Queues(l *Limiter) int { return l.queues.Size() }
