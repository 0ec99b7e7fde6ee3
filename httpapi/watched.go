package httpapi

import (
	"context"
	"net/http"
)

// watched serves what may go on for long: its context ends when who sent the request may no longer call it.
func (h *Handler) watched(need Role, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		look := func() {
			if _, p := h.gate.check(r, need); p != nil {
				cancel()
			}
		}
		defer h.gate.watch(&look)()
		look() // at what has changed since it was let in
		serve(w, r.WithContext(ctx))
	}
}

// watch has look called with each change of who may call, until stop is.
func (g *gatekeeper) watch(look *func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watching == nil {
		g.watching = make(map[*func()]struct{})
	}
	g.watching[look] = struct{}{}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.watching, look)
	}
}

// set changes who may call what.
func (g *gatekeeper) set(a Access) {
	if a.Tokens != nil && a.Tokens.scoped {
		g.scoped.Store(true) // before any request is let in by one
	}
	g.access.Store(&a)
	g.mu.Lock()
	defer g.mu.Unlock()
	for look := range g.watching {
		(*look)()
	}
}
