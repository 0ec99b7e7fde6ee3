package main

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// gate stands before the API while the node joins and while it leaves: the
// port answers from the first moment, so that /healthz is true as soon as the
// process lives, and /readyz says 503 until the node may get requests and
// again when it should get no more. The zero value is joining.
type gate struct {
	api     atomic.Pointer[http.Handler]
	leaving atomic.Bool
}

// open lets requests through to the API.
func (g *gate) open(api http.Handler) { g.api.Store(&api) }

// leave makes /readyz say 503; other requests are still decided.
func (g *gate) leave() { g.leaving.Store(true) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api := g.api.Load()
	switch {
	case g.leaving.Load() && r.URL.Path == "/readyz":
		notReady(w, "This node is leaving the cluster.")
	case api != nil:
		(*api).ServeHTTP(w, r)
	case r.URL.Path == "/healthz":
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"status":"ok"}` + "\n"))
	default:
		notReady(w, "This node is joining the cluster.")
	}
}

// notReady answers with the problem that the API gives when it is not ready.
func notReady(w http.ResponseWriter, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	json.NewEncoder(w).Encode(map[string]any{
		"type": "urn:jatah:problem:not-ready", "title": http.StatusText(http.StatusServiceUnavailable),
		"status": http.StatusServiceUnavailable, "detail": detail,
	})
}
