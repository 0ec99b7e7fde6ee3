package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/problems"
)

//go:embed assets
var embedded embed.FS

// The paths that a Handler answers, as patterns of http.ServeMux.
const (
	Page    = "/{$}"                  // the page: no data
	Assets  = "/dashboard/{file}"     // what it is made of: no data
	Stream  = "/v1/dashboard/stream"  // frames as server-sent events: ?scope=node|cluster &find= &limit=
	History = "/v1/dashboard/history" // of one limit, or of all: ?scope= &limit=
)

// policy lets the page do nothing but show what this server sends.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// asset is one file of the page.
type asset struct {
	kind, tag string
	body      []byte
}

// Handler serves the page and its data. Use [New]; it is safe for concurrent use.
type Handler struct {
	node    *jatah.Node
	sampler *sampler
	mux     *http.ServeMux
	assets  map[string]asset
	slots   chan struct{}
	closed  chan struct{}
	close   sync.Once
}

// New makes the handler for a node and begins to sample its counters. Close it before the node.
//
// It answers GET and HEAD of the paths [Page], [Assets], [Stream] and [History]. The page also asks for /v1/top of package httpapi, from the same address; without
// that it shows no keys.
func New(node *jatah.Node) *Handler {
	h := &Handler{node: node, sampler: newSampler(node), mux: http.NewServeMux(), assets: readAssets(), slots: make(chan struct{}, mostStreams), closed: make(chan struct{})}
	h.mux.HandleFunc("GET "+Page, func(w http.ResponseWriter, r *http.Request) { h.asset(w, r, "index.html") })
	h.mux.HandleFunc("GET "+Assets, func(w http.ResponseWriter, r *http.Request) { h.asset(w, r, r.PathValue("file")) })
	h.mux.HandleFunc("GET "+Stream, data(h.stream))
	h.mux.HandleFunc("GET "+History, data(h.history))
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { nothing(w) })
	return h
}

// Close ends all streams and the sampling. A server waits for its requests when it shuts down, so do it then: srv.RegisterOnShutdown(h.Close).
// Safe to call twice.
func (h *Handler) Close() {
	h.close.Do(func() { close(h.closed) })
	h.sampler.stop()
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// readAssets reads the files once, with what tells a browser that it has them already.
func readAssets() map[string]asset {
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}
	all := map[string]asset{}
	files, err := fs.ReadDir(embedded, "assets")
	for _, f := range files {
		var b []byte
		if b, err = embedded.ReadFile("assets/" + f.Name()); err != nil {
			break
		}
		sum := sha256.Sum256(b)
		all[f.Name()] = asset{kinds[path.Ext(f.Name())], `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, b}
	}
	if err != nil {
		panic(err) // they are in the program
	}
	return all
}

// asset answers with one file. It is asked for again each time, so that a new version of the program is a new page.
func (h *Handler) asset(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := h.assets[name]
	if !ok || name == "index.html" && r.URL.Path != "/" {
		nothing(w)
		return
	}
	head := w.Header()
	secure(head)
	head.Set("Content-Type", a.kind)
	head.Set("Content-Security-Policy", policy)
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cache-Control", "no-cache")
	head.Set("ETag", a.tag)
	for _, tag := range strings.Split(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(tag), "W/") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(a.body) // nobody is there to hear of an error
}

func secure(head http.Header) {
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// data is for answers that are nobody's to keep.
func data(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		w.Header().Set("Cache-Control", "no-store")
		serve(w, r)
	}
}

func nothing(w http.ResponseWriter) {
	refuse(w, "unknown-path", http.StatusNotFound, "There is no such part of the dashboard; the page is at /.")
}

func refuse(w http.ResponseWriter, slug string, status int, detail string) {
	w.Header().Set("Content-Type", problems.ContentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(problems.Append(nil, slug, status, detail), "}\n"...)) // nobody is there to hear of an error
}
