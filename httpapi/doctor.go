package httpapi

import (
	"context"
	"net/http"
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
	ctx, cancel := context.WithTimeout(r.Context(), doctorTime)
	defer cancel()
	d, err := h.node.Doctor(ctx)
	if err != nil {
		writeProblem(w, h.problemOf(err, ""))
		return
	}
	writeJSON(w, doctorOf(&d))
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
