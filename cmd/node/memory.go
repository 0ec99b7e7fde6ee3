package main

import (
	"log/slog"
	"os"
	"runtime/debug"
)

// limitMemory tells the collector what is meant by max_memory, unless GOMEMLIMIT does: it collects more often, rather than let the process grow far beyond
// it. A quarter is for garbage, the rest for all that is not keys.
func limitMemory(keys int64, log *slog.Logger) {
	if keys == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := keys + keys/4 + 128<<20
	debug.SetMemoryLimit(limit)
	log.Info("the collector keeps memory below a soft limit, made from max_memory; GOMEMLIMIT sets another one", "max_memory", keys, "soft_limit", limit)
}
