package httpapi

import (
	"context"
	"hash/maphash"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
	"github.com/jatah-io/jatah/httpapi/internal/refusals"
)

// Config says how a [Handler] behaves. The zero value serves all endpoints but
// /metrics, with all headers.
type Config struct {
	// Metrics serves GET /metrics; see httpapi/metrics. Nil: there is no such path.
	Metrics http.Handler
	// Dashboard serves the page at / and what it needs; see httpapi/dashboard. Nil: there is no page.
	Dashboard http.Handler

	// OmitRateLimit leaves out the headers RateLimit and RateLimit-Policy.
	OmitRateLimit bool
	// OmitXRateLimit leaves out the headers X-RateLimit-Limit, -Remaining and -Reset.
	OmitXRateLimit bool
	// Legacy adds the older headers RateLimit-Limit, -Remaining and -Reset, with the values of X-RateLimit-*.
	Legacy bool
	// ResetEpoch makes X-RateLimit-Reset and RateLimit-Reset the Unix time, in seconds,
	// instead of the seconds from now.
	ResetEpoch bool

	// MaxBatch bounds the items of a batch and of a take-all. 0: 1000.
	MaxBatch int

	// RepeatEntries and RepeatBytes bound the memory for answers that were
	// given with an Idempotency-Key. 0: 65536 entries, 32 MiB. When they do not suffice, the
	// oldest answers are forgotten before their minute is over, and the log says so at most once a minute.
	RepeatEntries int
	RepeatBytes   int

	// Edges are those of the program's own middleware, as they are now: GET /v1/edge and /v1/penalties tell of them too, and DELETE /v1/penalties
	// lifts what they paused. Forward auth does not ask them; its edge is set with [Handler.SetEdge]. Many goroutines call it at once. Nil: none.
	Edges func() []*edge.Edge

	// Access says who may call what; see [Handler.SetAccess]. Without tokens admin calls are answered on this machine only.
	Access Access

	// Decided is called with each call that was decided, also of refusals and of what could not be decided, before it is answered: for traces. Not with those of
	// forward auth: edge.Config has the same for them. It gets the
	// request's context, runs on the request's goroutine and delays the answer; many goroutines call it at once. Nil: nobody is told.
	Decided func(ctx context.Context, d *Decided)

	// Logger gets the few things worth a line; requests are not logged. Nil: slog.Default.
	Logger *slog.Logger
	// LogRefusals logs who is refused: for each limit at most one line a second, which says how many more there were.
	LogRefusals bool
}

// Handler is the HTTP API of one node. Use [New]. It is safe for concurrent use.
type Handler struct {
	node    *jatah.Node
	cfg     Config
	mux     *http.ServeMux
	scratch sync.Pool // of *scratch
	repeats *repeats
	refused *refusals.Log // nil: refusals are not logged
	seed    maphash.Seed
	start   time.Time // epoch of the times given to repeats
	json    []string  // Content-Type, shared by all responses
	edge    atomic.Pointer[edge.Edge]
	faces   fields.Kept[face]
	take    http.HandlerFunc
	strange occasion // of peers that ask by forward auth and are not trusted
	gate    gatekeeper
	visits  visits
}

// scratch is the memory of one request, reused by others once it was answered.
type scratch struct {
	in, out []byte
	heads   fields.Set

	// Of several takes.
	items     []item
	asks      []jatah.Ask
	decisions []jatah.Decision
}

// forget drops what belongs to one request. Only what was used since is to be cleared: the rest was before.
func (s *scratch) forget() {
	clear(s.items)
	clear(s.asks)
	clear(s.decisions)
	s.items, s.asks, s.decisions = s.items[:0], s.asks[:0], s.decisions[:0]
}

// keepScratch is the largest buffer that goes back to the pool, so that one
// large batch is not kept for ever: one of 1000 takes fits.
const keepScratch = 256 << 10

// keepItems is the same in takes. They take about 300 bytes each, and 150 in the answer.
const keepItems = 2048

// New makes the handler for a node. The node must outlive it.
func New(node *jatah.Node, cfg Config) *Handler {
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = 1000
	}
	if cfg.RepeatEntries <= 0 {
		cfg.RepeatEntries = 65536
	}
	if cfg.RepeatBytes <= 0 {
		cfg.RepeatBytes = 32 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	h := &Handler{
		node: node, cfg: cfg, mux: http.NewServeMux(),
		repeats: newRepeats(cfg.RepeatEntries, cfg.RepeatBytes),
		seed:    maphash.MakeSeed(),
		start:   time.Now(),
		json:    []string{"application/json"},
	}
	if cfg.LogRefusals {
		h.refused = refusals.New(cfg.Logger, 0)
	}
	h.gate.log = cfg.Logger
	h.SetAccess(cfg.Access)
	h.scratch.New = func() any { return new(scratch) }
	h.take = h.decision(h.observed("take", (*jatah.Limiter).Take))
	h.register()
	_ = node.Answer(penaltiesTopic, h.answerPenalties) // the topic is a good one
	return h
}

// ServeHTTP answers one request.
//
// The two calls that are made most need no search, and get what it would tell of them.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.RawPath == "" {
		switch r.URL.Path {
		case "/v1/take":
			r.Pattern = "POST /v1/take"
			if r, ok := h.admit(w, r, RoleTake); ok {
				h.take(w, r)
			}
			return
		case "/v1/batch":
			r.Pattern = "POST /v1/batch"
			if r, ok := h.admit(w, r, RoleTake); ok {
				h.batch(w, r)
			}
			return
		}
	}
	h.mux.ServeHTTP(w, r)
}

type route struct {
	method, path string
	needs        Role // of the caller; 0: open to everybody
	serve        http.HandlerFunc
}

// open is what needs no token: it tells no more than that the node is there and may get requests.
const open Role = 0

// routes are all calls but forward auth, which has any method and needs RoleTake.
func (h *Handler) routes() []route {
	all := []route{
		{"POST", "/v1/take", RoleTake, h.take},
		{"POST", "/v1/refund", RoleTake, h.decision(h.observed("refund", (*jatah.Limiter).Refund))},
		{"POST", "/v1/charge", RoleTake, h.decision(h.observed("charge", (*jatah.Limiter).Charge))},
		{"POST", "/v1/take-all", RoleTake, h.answering(h.decideAll)},
		{"POST", "/v1/acquire", RoleTake, h.acquire},
		{"POST", "/v1/release", RoleTake, h.release},
		{"POST", "/v1/batch", RoleTake, h.batch},
		{"GET", "/v1/peek", RoleRead, h.peek},
		{"DELETE", "/v1/keys", RoleAdmin, h.resetKey},
		{"GET", "/v1/limits", RoleRead, h.listLimits},
		{"GET", "/v1/limits/{name...}", RoleRead, h.getLimit}, // a name may have slashes
		{"PUT", "/v1/limits/{name...}", RoleAdmin, h.putLimit},
		{"DELETE", "/v1/limits/{name...}", RoleAdmin, h.deleteLimit},
		{"GET", "/v1/cluster", RoleRead, h.cluster},
		{"GET", "/v1/top", RoleRead, h.top},
		{"GET", "/v1/doctor", RoleRead, h.doctor},
		{"POST", "/v1/forget", RoleAdmin, h.forget},
		{"GET", "/v1/edge", RoleRead, h.edgeStats},
		{"GET", "/v1/penalties", RoleRead, h.listPenalties},
		{"DELETE", "/v1/penalties", RoleAdmin, h.liftPenalty},
		{"GET", "/healthz", open, h.healthy},
		{"GET", "/readyz", open, h.ready},
	}
	if h.cfg.Metrics != nil {
		all = append(all, route{"GET", "/metrics", RoleRead, h.cfg.Metrics.ServeHTTP})
	}
	if page := h.cfg.Dashboard; page != nil {
		all = append(all,
			route{"GET", "/{$}", open, page.ServeHTTP},
			route{"GET", "/dashboard/{file...}", open, page.ServeHTTP}, // what the page is made of
			route{"GET", "/v1/dashboard/{data...}", RoleRead, h.watched(RoleRead, page.ServeHTTP)})
	}
	return all
}

// register adds the routes and, for what they leave, the 405 of each path and the 404 of the rest:
// those of http.ServeMux itself are plain text.
func (h *Handler) register() {
	methods := make(map[string][]string)
	for _, r := range h.routes() {
		h.mux.HandleFunc(r.method+" "+r.path, h.guard(r.needs, r.serve))
		methods[r.path] = append(methods[r.path], r.method)
		if r.method == "GET" {
			methods[r.path] = append(methods[r.path], "HEAD")
		}
	}
	for path, allowed := range methods {
		slices.Sort(allowed)
		allow := strings.Join(allowed, ", ")
		h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			writeProblem(w, &problem{
				slug: "method-not-allowed", status: http.StatusMethodNotAllowed, allow: allow,
				detail: "This path does not answer " + quote(r.Method) + "; use " + allow + ".",
			})
		})
	}
	asked := h.guard(RoleTake, h.forwardAuth)
	h.mux.HandleFunc(forwardAuthPath, asked) // proxies ask by GET, or by the method of the request
	h.mux.HandleFunc(forwardAuthPath+"/{rules...}", asked)
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &problem{
			slug: "unknown-path", status: http.StatusNotFound,
			detail: "There is nothing at " + quote(r.URL.EscapedPath()) + "; the calls are below /v1/, for example POST /v1/take.",
		})
	})
}

// borrow takes scratch memory from the pool; give it back when nothing refers to it any more.
func (h *Handler) borrow() *scratch { return h.scratch.Get().(*scratch) }

func (h *Handler) giveBack(s *scratch) {
	if cap(s.in) <= keepScratch && cap(s.out) <= keepScratch && cap(s.items) <= keepItems {
		h.scratch.Put(s)
	}
}
