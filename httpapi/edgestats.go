package httpapi

import (
	"math"
	"net/http"
	"slices"

	"github.com/jatah-io/jatah/httpapi/edge"
)

// edges are all that this node tells of: that of forward auth, and those of the program's own middleware.
func (h *Handler) edges() []*edge.Edge {
	all := []*edge.Edge{h.edge.Load()}
	if h.cfg.Edges != nil {
		for _, e := range h.cfg.Edges() {
			if !slices.Contains(all, e) {
				all = append(all, e)
			}
		}
	}
	return slices.DeleteFunc(all, func(e *edge.Edge) bool { return e == nil })
}

type edgeBody struct {
	Rules      []ruleBody      `json:"rules"`
	Candidates []candidateBody `json:"candidates"`
}

type ruleBody struct {
	Rule        string `json:"rule"`
	Admitted    uint64 `json:"admitted"`
	Refused     uint64 `json:"refused"`
	WouldRefuse uint64 `json:"would_refuse"` // admitted in dry run only
	Undecided   uint64 `json:"undecided"`
	BadRequests uint64 `json:"bad_requests"`
	Soft        uint64 `json:"soft"`
	Paused      uint64 `json:"paused"`
	Dropped     uint64 `json:"dropped"`
}

type candidateBody struct {
	Rule           string  `json:"rule"`
	Limit          string  `json:"limit"`
	Candidate      string  `json:"candidate"`
	Requests       uint64  `json:"requests"`
	Refused        uint64  `json:"refused"` // by the candidate, if it had decided
	RefusedPercent float64 `json:"refused_percent"`
	Live           uint64  `json:"refused_live"`
	LivePercent    float64 `json:"refused_live_percent"`
	Missed         uint64  `json:"missed"`
}

// edgeStats tells what the rules of this node did since its edges were first loaded, and what candidates would have done.
func (h *Handler) edgeStats(w http.ResponseWriter, r *http.Request) {
	if _, p := readQuery(r); p != nil {
		writeProblem(w, p)
		return
	}
	b := edgeBody{Rules: []ruleBody{}, Candidates: []candidateBody{}} // not nil: an empty list is [], not null
	for _, e := range h.edges() {
		for _, s := range e.Stats() {
			b.Rules = append(b.Rules, ruleBody{
				Rule: s.Rule, Admitted: s.Admitted, Refused: s.Refused, WouldRefuse: s.WouldRefuse, Undecided: s.Undecided,
				BadRequests: s.BadRequests, Soft: s.Soft, Paused: s.Paused, Dropped: s.Dropped,
			})
		}
		for _, c := range e.Candidates() {
			one := candidateBody{
				Rule: c.Rule, Limit: c.Limit, Candidate: c.Candidate, Requests: c.Requests, Refused: c.Refused, Live: c.RefusedLive, Missed: c.Missed,
			}
			refused, live := c.Percent()
			one.RefusedPercent, one.LivePercent = math.Round(refused*100)/100, math.Round(live*100)/100
			b.Candidates = append(b.Candidates, one)
		}
	}
	writeJSON(w, b)
}
