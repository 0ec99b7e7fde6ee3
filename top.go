package jatah

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jatah-io/jatah/internal/topk"
)

// MaxTop is the most keys that Node.Top lists.
const MaxTop = 100

// Top is who is being limited: the keys that use most and those that are refused most, in the whole cluster.
type Top struct {
	Limits   []LimitTop // sorted by name
	Answered []string   // nodes whose counts are in it, sorted
	Missing  []string   // members that did not answer in time, or failed less than the grace ago, sorted: what they counted is not in it
}

// LimitTop is Top of one limit. Counts are of Span, which is the last minute, or less on nodes that have just started: all of the minute that
// runs, and of the one before the part that is still in the span, taken as even.
//
// Each node counts in bounded memory, see Node.Top, so counts have errors, which every key states: the true count is at least what is
// said, and at most the error more. Beyond 20000 requests a second per limit and node only one in Sample is counted, Sample times; a count is then off by
// about sqrt(count*Sample) besides.
type LimitTop struct {
	Limit   string
	Span    time.Duration
	Sample  int64    // 1: everything was counted
	Used    []TopKey // that used most, the first most of all
	Refused []TopKey // that were refused most
}

// TopKey is one key of LimitTop. Rates are per second.
type TopKey struct {
	Key          string // as given to Take; SplitKey undoes Key
	Used         int64  // tokens that were taken or charged, or permits; what was refunded stays counted
	UsedRate     float64
	UsedError    int64
	Refused      int64 // requests, also those that a dry run let pass
	RefusedRate  float64
	RefusedError int64
}

// Top asks every member which keys used most of a limit and which were refused most in the last minute, n keys of each, at most MaxTop; limit "": of all
// limits that any member has, of more than 2000 those first by name. It returns when all have answered or ctx has ended, at the latest after 2 s if ctx has no deadline, with
// what it got. Errors: ErrUnknownLimit, if this node has no such limit; ErrConfig for another n; ErrClosed.
//
// A node keeps 512 keys of a limit for tokens and as many for refusals, in about 100 KB and the keys. Whoever has more than 1/256 of a node's tokens or
// refusals in a minute is among them. Credit that was used shows at the next sync.
func (n *Node) Top(ctx context.Context, limit string, keys int) (Top, error) {
	if keys < 1 || keys > MaxTop {
		return Top{}, fmt.Errorf("%w: %d keys of each limit; ask for 1 to %d", ErrConfig, keys, MaxTop)
	}
	if n.leaving.Load() {
		return Top{}, ErrClosed
	}
	if limit != "" {
		if _, ok := n.e.Lookup(limit); !ok {
			return Top{}, fmt.Errorf("%w: %q", ErrUnknownLimit, limit)
		}
	}
	q, err := packTop(&topQuestion{Limit: limit})
	if err != nil {
		return Top{}, err
	}
	var t Top
	used, refused := map[string][]topk.Summary{}, map[string][]topk.Summary{}
	for _, r := range n.AskAll(ctx, topTopic, q) {
		var a topAnswer
		if r.Err == nil {
			a, r.Err = readTop(r.Answer, limit)
		}
		if r.Err != nil {
			t.Missing = append(t.Missing, r.Node)
			continue
		}
		t.Answered = append(t.Answered, r.Node)
		for _, l := range a.Limits {
			used[l.Name] = append(used[l.Name], l.Used.summary())
			refused[l.Name] = append(refused[l.Name], l.Refused.summary())
		}
	}
	for name := range used {
		t.Limits = append(t.Limits, mergeTop(name, used[name], refused[name], keys))
	}
	slices.SortFunc(t.Limits, func(a, b LimitTop) int { return cmp.Compare(a.Limit, b.Limit) })
	return t, nil
}

func mergeTop(name string, used, refused []topk.Summary, keys int) LimitTop {
	u, r := topk.Merge(used), topk.Merge(refused)
	t := LimitTop{Limit: name, Span: max(u.Span, r.Span), Sample: max(u.Sample, r.Sample)}
	list := func(s *topk.Summary) (ks []TopKey) {
		for _, x := range s.Items {
			if x.Count == 0 || len(ks) == keys {
				break
			}
			a, b := u.Find(x.Key), r.Find(x.Key)
			ks = append(ks, TopKey{x.Key, a.Count, a.Rate, a.Error, b.Count, b.Rate, b.Error})
		}
		return ks
	}
	t.Used, t.Refused = list(&u), list(&r)
	return t
}

// answerTop tells another node what this one has counted.
func (n *Node) answerTop(_ context.Context, _ string, question []byte) ([]byte, error) {
	r := newTopReader(question)
	q := r.question()
	if r.err != nil {
		return nil, fmt.Errorf("the question cannot be read: %w", r.err)
	}
	var names []string
	for _, s := range n.e.Specs() {
		if q.Limit == "" || s.Name == q.Limit {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	var a topAnswer
	room, named := topBytes/max(1, 2*len(names)), 0
	for _, name := range names {
		l, ok := n.e.Lookup(name)
		if named += len(name) + 50; !ok || named > topNames {
			continue
		}
		used, refused := l.Top()
		used.Cut(math.MaxInt, room)
		refused.Cut(math.MaxInt, room)
		a.Limits = append(a.Limits, topLimit{name, countsOf(&used), countsOf(&refused)})
	}
	return packTop(&a)
}
