// Package frameworks puts an edge before the handlers of gin, echo and chi.
//
// All three are http.Handlers as a whole, so for all that they serve nothing special is needed:
//
//	http.ListenAndServe(addr, e.Middleware(router))
//
// What is here is for limits on a part of the routes, behind other middleware of the framework, such as the one that knows who is signed
// in. chi has the middleware of net/http: r.Use(e.Middleware).
//
// It is a module of its own, so that whoever embeds Jatah does not download the frameworks; copy the few lines that you need.
package frameworks
