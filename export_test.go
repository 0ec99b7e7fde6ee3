package jatah

import "github.com/jatah-io/jatah/cluster"

// Queues is the number of keys that somebody waits for.
func Queues(l *Limiter) int { return l.queues.Size() }

// SpeakPrevious makes a node that speaks the previous protocol only.
func SpeakPrevious(c *Config) { c.protocol = cluster.PreviousProtocol }
