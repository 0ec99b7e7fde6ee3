package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
)

const (
	penaltiesTopic = "httpapi.penalties" // of the questions to other nodes
	penaltiesTime  = time.Second         // how long they are waited for
	penaltiesN     = 100                 // that are listed if n does not say how many
	maxPenalties   = 500                 // what a node answers fits into jatah.MaxAnswer then
)

// penaltyQuestion is what a node asks all others: what they know, or to lift a key.
type penaltyQuestion struct {
	Lift bool   `json:"lift,omitempty"`
	Rule string `json:"rule"`
	Key  []byte `json:"key,omitempty"` // any bytes, unlike a string in JSON
	N    int    `json:"n,omitempty"`
}

type penaltyAnswer struct {
	Lifted    bool          `json:"lifted,omitempty"`
	Penalties []penaltyItem `json:"penalties,omitempty"`
}

type penaltyItem struct {
	Rule     string        `json:"rule"`
	Key      []byte        `json:"key"`
	Left     time.Duration `json:"left"`
	Level    int           `json:"level"`
	Refusals int           `json:"refusals"`
}

// answerPenalties answers other nodes, and this one, for the edges that there are.
func (h *Handler) answerPenalties(_ context.Context, _ string, question []byte) ([]byte, error) {
	var q penaltyQuestion
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, err
	}
	var a penaltyAnswer
	n, now := min(max(1, q.N), maxPenalties), time.Now()
	for _, e := range h.edges() {
		if q.Lift {
			a.Lifted = e.Lift(q.Rule, string(q.Key)) || a.Lifted
			continue
		}
		for _, p := range e.Penalties(q.Rule, n) {
			item := penaltyItem{Rule: p.Rule, Key: []byte(p.Key), Level: p.Level, Refusals: p.Refusals}
			if !p.Until.IsZero() {
				item.Left = max(0, p.Until.Sub(now))
			}
			a.Penalties = append(a.Penalties, item)
		}
	}
	slices.SortStableFunc(a.Penalties, func(a, b penaltyItem) int {
		return cmp.Or(cmp.Compare(b.Left, a.Left), cmp.Compare(b.Level, a.Level), cmp.Compare(b.Refusals, a.Refusals))
	})
	a.Penalties = a.Penalties[:min(len(a.Penalties), n)]
	return json.Marshal(a)
}

// askPenalties asks all nodes. A node without an API has no edge, and so nothing to say.
func (h *Handler) askPenalties(ctx context.Context, q penaltyQuestion, each func(node string, a penaltyAnswer)) (answered, missing []string) {
	question, err := json.Marshal(q)
	if err != nil {
		return nil, nil // not with these fields
	}
	ctx, cancel := context.WithTimeout(ctx, penaltiesTime)
	defer cancel()
	answered, missing = []string{}, []string{} // not nil: an empty list is [], not null
	for _, r := range h.node.AskAll(ctx, penaltiesTopic, question) {
		var a penaltyAnswer
		if r.Err == nil {
			r.Err = json.Unmarshal(r.Answer, &a)
		}
		if r.Err != nil && !errors.Is(r.Err, jatah.ErrUnknownTopic) {
			missing = append(missing, r.Node)
			continue
		}
		answered = append(answered, r.Node)
		each(r.Node, a)
	}
	return answered, missing
}

// penaltyBody is a key that one node has paused or refused.
type penaltyBody struct {
	Rule     string `json:"rule"`
	Key      any    `json:"key"`
	Node     string `json:"node"`
	LeftMS   int64  `json:"left_ms"` // of the pause; 0: it is not paused now
	Level    int    `json:"level"`
	Refusals int    `json:"refusals"` // since the last pause
}

// listPenalties shows the keys that the edges of all nodes have paused or counted refusals of, those paused for longest first.
func (h *Handler) listPenalties(w http.ResponseWriter, r *http.Request) {
	q, p := readPenalties(r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	all := []penaltyBody{}
	answered, missing := h.askPenalties(r.Context(), q, func(node string, a penaltyAnswer) {
		for _, x := range a.Penalties {
			key := keyBody(jatah.SplitKey(string(x.Key)))
			all = append(all, penaltyBody{x.Rule, key, node, ceilDiv(x.Left, time.Millisecond), x.Level, x.Refusals})
		}
	})
	slices.SortStableFunc(all, func(a, b penaltyBody) int {
		return cmp.Or(cmp.Compare(b.LeftMS, a.LeftMS), cmp.Compare(b.Level, a.Level), cmp.Compare(b.Refusals, a.Refusals))
	})
	writeJSON(w, map[string]any{"penalties": all[:min(len(all), q.N)], "answered": answered, "missing": missing})
}

// readPenalties reads ?rule=&n=.
func readPenalties(r *http.Request) (q penaltyQuestion, p *problem) {
	query, p := readQuery(r, "rule", "n")
	if p != nil {
		return q, p
	}
	if query.Has("rule") {
		if q.Rule, p = oneOf(query, "rule"); p != nil {
			return q, p
		}
	}
	q.N = penaltiesN
	if query.Has("n") {
		given, p := oneOf(query, "n")
		if p != nil {
			return q, p
		}
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 || n > maxPenalties {
			return q, badQuery("n", "n must be a whole number from 1 to %d, how many keys to list.", maxPenalties)
		}
		q.N = n
	}
	return q, nil
}

// liftPenalty ends the pause of ?rule=&key= at all nodes; more than one key makes an array, as in a body.
func (h *Handler) liftPenalty(w http.ResponseWriter, r *http.Request) {
	query, p := readQuery(r, "rule", "key")
	if p != nil {
		writeProblem(w, p)
		return
	}
	rule, p := oneOf(query, "rule")
	if p == nil && len(query["key"]) == 0 {
		p = badQuery("key", "key is missing; add &key=... to the address, several times for an array.")
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	lifted := []string{}
	key := []byte(jatah.Key(query["key"]...))
	_, missing := h.askPenalties(r.Context(), penaltyQuestion{Lift: true, Rule: rule, Key: key}, func(node string, a penaltyAnswer) {
		if a.Lifted {
			lifted = append(lifted, node)
		}
	})
	switch {
	case len(lifted) > 0:
		writeJSON(w, map[string]any{"lifted": lifted, "missing": missing})
	case len(missing) > 0:
		writeProblem(w, undecided("No node that answered has paused this key by the rule %s, but %s did not answer; try again.", quote(rule), strings.Join(missing, ", ")))
	default:
		writeProblem(w, &problem{
			slug: "unknown-penalty", status: http.StatusNotFound, field: "key",
			detail: "No node has paused this key by the rule " + quote(rule) + ", nor counted refusals of it; GET /v1/penalties lists them.",
		})
	}
}
