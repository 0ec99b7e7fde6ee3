package jatah

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// doctorTime bounds Doctor where its context has no deadline.
const doctorTime = 5 * time.Second

// Finding is one thing that is wrong with a cluster, or that may be.
type Finding struct {
	Check   string   // what was looked at: members, views, packets, streams, full_packets, silence, limits, settings, versions, clock, buffer, files, memory, asks, state
	Note    bool     // worth knowing; nothing has to be done now
	Nodes   []string // whom it is about, sorted
	Problem string   // a sentence
	Advice  string   // what to do, a sentence
}

// Diagnosis is what Node.Doctor found.
type Diagnosis struct {
	Node     string    // that asked
	Answered []string  // members that said how they are, sorted
	Missing  []string  // members that did not, sorted
	Findings []Finding // problems first, then notes; empty: all is well
}

// Doctor asks every member how it is and which of the other members it reaches: each sends each of the others small and full packets and a stream, and
// the answers are compared. It says what is wrong, from closed ports to clocks that differ, and what to do. It returns when all have answered or ctx has
// ended, after 5 s if ctx has no deadline; where all is well after some milliseconds. A node examines itself at most once a second, whoever asks. Errors: ErrClosed.
func (n *Node) Doctor(ctx context.Context) (Diagnosis, error) {
	if n.leaving.Load() {
		return Diagnosis{}, ErrClosed
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, doctorTime)
		defer cancel()
	}
	replies := n.members()
	checkups := make([]*checkup, len(replies))
	var wg sync.WaitGroup
	for i := range replies {
		if r := &replies[i]; r.Err == nil {
			wg.Go(func() { checkups[i], r.Err = n.askCheckup(ctx, r.Node) })
		}
	}
	wg.Wait()
	w := ward{asker: n.cfg.Node, info: n.Info(), reports: map[string]*checkup{}, missing: map[string]error{}}
	d := Diagnosis{Node: n.cfg.Node}
	for i, r := range replies {
		if r.Err != nil {
			w.missing[r.Node] = r.Err
			d.Missing = append(d.Missing, r.Node)
			continue
		}
		w.reports[r.Node] = checkups[i]
		d.Answered = append(d.Answered, r.Node)
	}
	d.Findings = w.findings()
	return d, nil
}

// The question is how the answer is to come. It is put both ways at once, since the way that works is what is to be found out: a small
// question goes by packets and a long one over a stream, and so do the answers.
const (
	doctorTopic = ownTopics + "doctor"
	byPacket    = 'p'
	byStream    = 's'
)

// askCheckup asks one member, by packets and over a stream. The first answer counts.
func (n *Node) askCheckup(ctx context.Context, node string) (*checkup, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c   *checkup
		err error
	}
	questions := [][]byte{{byPacket}, n.beyondPacket([]byte{byStream})}
	if node == n.cfg.Node {
		questions = questions[:1]
	}
	got := make(chan result, len(questions))
	for _, q := range questions {
		go func() {
			sent := time.Now()
			b, err := n.askOne(ctx, node, doctorTopic, q)
			if err != nil {
				got <- result{err: err}
				return
			}
			c, err := readCheckup(b)
			if err == nil {
				c.compareClock(sent, time.Now())
			}
			got <- result{c, err}
		}()
	}
	var first error
	for range questions {
		r := <-got
		if r.err == nil {
			return r.c, nil
		}
		first = cmp.Or(first, r.err)
	}
	return nil, first
}

// beyondPacket pads b with spaces so that it fits no packet and goes over a stream.
func (n *Node) beyondPacket(b []byte) []byte {
	if n.c == nil {
		return b
	}
	return append(b, bytes.Repeat([]byte{' '}, max(0, n.c.MaxMessage()+1-len(b)))...)
}

// answerDoctor tells another node, or this one, how this one is.
func (n *Node) answerDoctor(ctx context.Context, _ string, question []byte) ([]byte, error) {
	begin := time.Now()
	c, err := n.exams.recent(ctx, n.examine)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c.Wall, c.Took = now.UnixNano(), now.Sub(begin)
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("jatah: doctor: %w", err)
	}
	if len(question) > 0 && question[0] == byStream {
		b = n.beyondPacket(b)
	}
	return b, nil
}

// readCheckup reads what answerDoctor wrote. Fields of later versions are left out.
func readCheckup(b []byte) (*checkup, error) {
	var c checkup
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%w: how it is cannot be read: %w", ErrAnswer, err)
	}
	return &c, nil
}

// examEvery is the least time between two examinations of a node by itself.
const examEvery = time.Second

// exams shares an examination among all who ask for one at about the same time. The zero value is ready.
type exams struct {
	mu   sync.Mutex
	last *exam
}

type exam struct {
	begun time.Time
	done  chan struct{}
	of    checkup // set when done is closed
}

// recent is a copy of what an examination found that began less than examEvery ago. It makes one if there is none.
func (e *exams) recent(ctx context.Context, examine func(context.Context) checkup) (checkup, error) {
	e.mu.Lock()
	x := e.last
	if x == nil || time.Since(x.begun) >= examEvery {
		x = &exam{begun: time.Now(), done: make(chan struct{})}
		e.last = x
		go func() { // for all who ask, so it does not end with the context of one of them
			ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
			defer cancel()
			x.of = examine(ctx)
			close(x.done)
		}()
	}
	e.mu.Unlock()
	select {
	case <-x.done:
		return x.of, nil
	case <-ctx.Done():
		return checkup{}, ctx.Err()
	}
}

// most of one check are told one by one.
const mostFindings = 10

// ordered puts problems first and the rest together by check, and tells no more than mostFindings of one kind one by one.
func ordered(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int {
		if a.Note != b.Note {
			if b.Note {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Check, b.Check)
	})
	var out []Finding
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].Check == all[i].Check && all[j].Note == all[i].Note {
			j++
		}
		some := all[i:min(j, i+mostFindings)]
		out = append(out, some...)
		if more := j - i - len(some); more > 0 {
			f := Finding{Check: all[i].Check, Note: all[i].Note, Problem: fmt.Sprintf("There are %d more findings of this kind.", more), Advice: "Mend these first, then ask again."}
			out = append(out, f)
		}
		i = j
	}
	return out
}

// list is "n1", "n1 and n2", "n1, n2 and n3", or of many the first and how many more.
func list(names []string) string {
	const most = 8
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return names[0]
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}
