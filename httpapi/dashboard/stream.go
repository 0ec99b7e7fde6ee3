package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// mostStreams is how many pages can watch at once.
	mostStreams = 32
	// writeTime is how long one event may take to be written: a page that reads no more is let go.
	writeTime = 10 * time.Second
	// heartbeat is for whatever stands between, and closes connections that are quiet.
	heartbeat = 5 * time.Second
	// mostName bounds what is asked for by name.
	mostName = 128
)

// stream sends frames as server-sent events: first "history", then a "frame" each second, and "end" when the node stops.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request) {
	v, wrong := readView(r, "scope", "find", "limit")
	if wrong != "" {
		refuse(w, "bad-query", http.StatusBadRequest, wrong)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, "too-many-streams", http.StatusServiceUnavailable, "There are "+strconv.Itoa(mostStreams)+" dashboards open at this node; close some, or open one of another node.")
		return
	}
	out := http.NewResponseController(w)
	// The server's bounds are for requests that end.
	if err := out.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	head := w.Header()
	head.Set("Content-Type", "text/event-stream; charset=utf-8")
	head.Set("X-Accel-Buffering", "no") // nginx would collect events
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	f, done := h.sampler.watch(v.scope)
	defer done()
	if send(out, w, "history", f.pastOf("")) == nil {
		h.follow(out, w, r, f, v)
	}
}

// follow sends what is new until the page or the node goes.
func (h *Handler) follow(out *http.ResponseController, w http.ResponseWriter, r *http.Request, f *feed, v view) {
	quiet := time.NewTicker(heartbeat)
	defer quiet.Stop()
	var seen uint64
	for {
		next := f.wait() // before the frame, so that none is missed
		var err error
		if fr, ok := h.frame(f, v, h.sampler.answered(v.scope)); ok {
			for _, e := range h.node.Events(seen) {
				seen = e.Seq
				fr.Events = append(fr.Events, event{e.Seq, e.Time.UnixMilli(), e.Kind, e.Node, e.Text, e.Warn})
			}
			err = send(out, w, "frame", fr)
		}
		for waiting := true; waiting && err == nil; {
			select {
			case <-next:
				waiting = false
			case <-quiet.C:
				err = write(out, w, []byte(": still here\n\n"))
			case <-r.Context().Done():
				return
			case <-h.closed:
				_ = send(out, w, "end", struct{}{}) // it ends either way
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func send(out *http.ResponseController, w http.ResponseWriter, name string, v any) error {
	var b bytes.Buffer
	b.WriteString("event: " + name + "\ndata: ")
	if err := json.NewEncoder(&b).Encode(v); err != nil { // on one line
		return err
	}
	b.WriteByte('\n')
	return write(out, w, b.Bytes())
}

func write(out *http.ResponseController, w http.ResponseWriter, b []byte) error {
	if err := out.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	return out.Flush()
}

// history answers with the last minutes of one limit, or of all.
func (h *Handler) history(w http.ResponseWriter, r *http.Request) {
	v, wrong := readView(r, "scope", "limit")
	if wrong != "" {
		refuse(w, "bad-query", http.StatusBadRequest, wrong)
		return
	}
	f, done := h.sampler.watch(v.scope)
	defer done()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(f.pastOf(v.limit)) // nobody is there to hear of an error
}

// readView reads the query; wrong says what is wrong with it.
func readView(r *http.Request, may ...string) (v view, wrong string) {
	v.scope = scopeNode
	query := r.URL.Query()
	for name, values := range query {
		known := false
		for _, m := range may {
			known = known || m == name
		}
		switch {
		case !known || len(values) != 1:
			return v, "The query may have each of these once: " + strings.Join(may, ", ") + "."
		case len(values[0]) > mostName:
			return v, name + " is longer than the name of any limit."
		}
	}
	if s := query.Get("scope"); s != "" {
		v.scope = s
	}
	if v.scope != scopeNode && v.scope != scopeCluster {
		return v, "scope is node or cluster."
	}
	v.find, v.limit = strings.ToLower(query.Get("find")), query.Get("limit")
	return v, ""
}
