package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jatah-io/jatah"
)

const (
	topKeys = 10 // that are listed if n does not say how many
	// topTime is how long members are waited for.
	topTime = time.Second
)

type topBody struct {
	Limits   []topLimitBody `json:"limits"`
	Answered []string       `json:"answered"`
	Missing  []string       `json:"missing"` // members whose counts are not in it
}

type topLimitBody struct {
	Limit  string `json:"limit"`
	SpanMS int64  `json:"span_ms"` // what counts are of
	Sample int64  `json:"sample"`  // 1: everything was counted; n: one in n, n times

	Used    []topKeyBody `json:"used"`
	Refused []topKeyBody `json:"refused"`
}

// topKeyBody is one key. Counts are at least what is said, and at most the error more.
type topKeyBody struct {
	Key          any     `json:"key"`
	Used         int64   `json:"used"`
	UsedRate     float64 `json:"used_per_second"`
	UsedError    int64   `json:"used_error"`
	Refused      int64   `json:"refused"`
	RefusedRate  float64 `json:"refused_per_second"`
	RefusedError int64   `json:"refused_error"`
}

// top shows which keys use most and which are refused most, in the whole cluster.
func (h *Handler) top(w http.ResponseWriter, r *http.Request) {
	limit, n, p := readTop(r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), topTime)
	defer cancel()
	t, err := h.node.Top(ctx, limit, n)
	switch {
	case errors.Is(err, jatah.ErrUnknownLimit):
		writeProblem(w, h.unknownLimit(limit))
	case err != nil:
		writeProblem(w, h.problemOf(err, ""))
	default:
		writeJSON(w, topOf(&t))
	}
}

// readTop reads the query ?limit=&n=.
func readTop(r *http.Request) (limit string, n int, p *problem) {
	query, p := readQuery(r, "limit", "n")
	if p != nil {
		return "", 0, p
	}
	if limit, p = atMostOne(query, "limit"); p != nil {
		return "", 0, p
	}
	given, p := atMostOne(query, "n")
	if p != nil || given == "" {
		return limit, topKeys, p
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 || n > jatah.MaxTop {
		return "", 0, badQuery("n", "n must be a whole number from 1 to %d, how many keys to list of each limit.", jatah.MaxTop)
	}
	return limit, n, nil
}

// atMostOne returns the single value of a parameter, "" if it is not there.
func atMostOne(query url.Values, name string) (string, *problem) {
	if !query.Has(name) || len(query[name]) == 1 && query[name][0] == "" {
		return "", nil
	}
	return oneOf(query, name)
}

func topOf(t *jatah.Top) topBody {
	b := topBody{Limits: make([]topLimitBody, len(t.Limits)), Answered: append([]string{}, t.Answered...), Missing: append([]string{}, t.Missing...)}
	for i, l := range t.Limits {
		b.Limits[i] = topLimitBody{Limit: l.Limit, SpanMS: ceilDiv(l.Span, time.Millisecond), Sample: l.Sample, Used: topKeysOf(l.Used), Refused: topKeysOf(l.Refused)}
	}
	return b
}

func topKeysOf(ks []jatah.TopKey) []topKeyBody {
	bs := make([]topKeyBody, len(ks)) // not nil: an empty list is [], not null
	for i, k := range ks {
		bs[i] = topKeyBody{keyBody(jatah.SplitKey(k.Key)), k.Used, thousandths(k.UsedRate), k.UsedError, k.Refused, thousandths(k.RefusedRate), k.RefusedError}
	}
	return bs
}

func thousandths(f float64) float64 { return math.Round(1000*f) / 1000 }
