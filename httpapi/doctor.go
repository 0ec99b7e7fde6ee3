package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
)

// doctorTime is how long members are waited for: they probe each other for a second, and a stream may take another.
const doctorTime = 4 * time.Second

type doctorBody struct {
	Node     string        `json:"node"`
	Answered []string      `json:"answered"`
	Missing  []string      `json:"missing"` // members that did not say how they are
	Findings []findingBody `json:"findings"`
}

type findingBody struct {
	Check   string   `json:"check"`
	Level   string   `json:"level"` // problem or note
	Nodes   []string `json:"nodes"` // whom it is about
	Problem string   `json:"problem"`
	Advice  string   `json:"advice"`
}

// doctor asks all members how they are and whom they reach.
func (h *Handler) doctor(w http.ResponseWriter, r *http.Request) {
	if _, p := readQuery(r); p != nil {
		writeProblem(w, p)
		return
	}
	e := h.visits.join(r.Context(), h.node.Doctor)
	if e == nil {
		return // nobody waits for the answer
	}
	if e.err != nil {
		writeProblem(w, h.problemOf(e.err, ""))
		return
	}
	writeJSON(w, doctorOf(&e.found))
}

// visits shares a round of all members among those who ask for one while it is under way: however many ask, each member is asked by one at a time,
// and does not refuse the others for it. The zero value is ready.
type visits struct {
	mu  sync.Mutex
	now *visit // nil: none is under way
}

type visit struct {
	done  chan struct{}
	found jatah.Diagnosis // set when done is closed, as is err
	err   error
}

// join waits for the round that is under way, or makes one. Nil: ctx has ended before.
func (v *visits) join(ctx context.Context, look func(context.Context) (jatah.Diagnosis, error)) *visit {
	v.mu.Lock()
	e := v.now
	if e == nil {
		e = &visit{done: make(chan struct{})}
		v.now = e
		go func() { // for all who ask, so it does not end with one of them
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), doctorTime)
			defer cancel()
			e.found, e.err = look(ctx)
			v.mu.Lock()
			v.now = nil
			v.mu.Unlock()
			close(e.done)
		}()
	}
	v.mu.Unlock()
	select {
	case <-e.done:
		return e
	case <-ctx.Done():
		return nil
	}
}

func doctorOf(d *jatah.Diagnosis) doctorBody {
	b := doctorBody{Node: d.Node, Answered: append([]string{}, d.Answered...), Missing: append([]string{}, d.Missing...), Findings: make([]findingBody, len(d.Findings))}
	for i, f := range d.Findings {
		b.Findings[i] = findingBody{Check: f.Check, Level: "problem", Nodes: append([]string{}, f.Nodes...), Problem: f.Problem, Advice: f.Advice}
		if f.Note {
			b.Findings[i].Level = "note"
		}
	}
	return b
}
