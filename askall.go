package jatah

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/jatah-io/jatah/cluster"
)

// Bounds of questions that are put to all members.
const (
	// MaxTopic is the longest topic in bytes.
	MaxTopic = 64
	// MaxQuestion is the largest question in bytes.
	MaxQuestion = 64 << 10
	// MaxAnswer is the largest answer in bytes.
	MaxAnswer = 1 << 20

	// askAllTime bounds a question whose context has no deadline.
	askAllTime = 2 * time.Second
	// answerTime bounds the context of who answers, for those who ask without a bound of their own.
	answerTime = 10 * time.Second
	// maxAnswering is how many questions of one topic a node answers at once; it refuses more.
	maxAnswering = 16

	// ownTopics is how the topics of this package begin.
	ownTopics = "jatah."
)

// Reply is what one member said to a question.
type Reply struct {
	Node   string
	Answer []byte // nil if Err is not
	Err    error  // ErrNoAnswer, ErrUnknownTopic or ErrAnswer
}

// Answerer answers a question that the node called from has put to all members; it may be this one. It is called on a goroutine of its own, at most
// 16 times at once for one topic. It should return when ctx ends, which is after 10 s at the latest. question is
// its own to keep. The answer has at most MaxAnswer bytes. An error goes back as its text.
//
// It runs at most once for each question. Whoever asks may hear ErrNoAnswer though it ran; so what it changes should bear being done twice.
type Answerer func(ctx context.Context, from string, question []byte) ([]byte, error)

// topic is an Answerer with its bound.
type topic struct {
	answer Answerer
	slots  chan struct{}
}

type topics struct{ byName *xsync.Map[string, *topic] }

func newTopics() topics { return topics{xsync.NewMap[string, *topic]()} }

func (t topics) set(name string, f Answerer) {
	t.byName.Store(name, &topic{f, make(chan struct{}, maxAnswering)})
}

// Answer sets how this node answers questions of a topic, for all members that ask with AskAll; nil: no more. A program that embeds nodes can so
// gather what its processes know, or tell them all something, over the connections that the nodes have. A topic has 1 to MaxTopic bytes and
// must not begin with "jatah."; the error wraps ErrConfig.
func (n *Node) Answer(topic string, f Answerer) error {
	switch {
	case topic == "" || len(topic) > MaxTopic:
		return fmt.Errorf("%w: a topic has 1 to %d bytes, this one %d", ErrConfig, MaxTopic, len(topic))
	case strings.HasPrefix(topic, ownTopics):
		return fmt.Errorf("%w: topic %q: those that begin with %q are this package's; give yours another name", ErrConfig, topic, ownTopics)
	case f == nil:
		n.topics.byName.Delete(topic)
	default:
		n.topics.set(topic, f)
	}
	return nil
}

// AskAll puts a question to every member at once, this node too, and returns when all have answered or ctx has ended; without a deadline
// of ctx, after 2 s. The replies are sorted by node, one for each member, whether it answered or not; also for those
// that failed less than the grace ago. A node alone asks itself.
//
// A question has at most MaxQuestion bytes, else every reply is ErrAnswer. Questions are said again until they are answered, over streams where
// they do not fit into packets, encrypted as all traffic. Nodes of a version without AskAll reply ErrUnknownTopic.
func (n *Node) AskAll(ctx context.Context, topic string, question []byte) []Reply {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askAllTime)
		defer cancel()
	}
	replies := n.members()
	var wg sync.WaitGroup
	for i := range replies {
		if r := &replies[i]; r.Err == nil {
			wg.Go(func() {
				r.Answer, r.Err = n.askOne(ctx, r.Node, topic, question)
			})
		}
	}
	wg.Wait()
	return replies
}

// members is a Reply for each member, with an error where there is nobody to ask.
func (n *Node) members() []Reply {
	if n.c == nil {
		return []Reply{{Node: n.cfg.Node}}
	}
	var rs []Reply
	v := n.c.View()
	for _, m := range v.Members {
		rs = append(rs, Reply{Node: m.Name})
	}
	for _, l := range v.Lost {
		if age := time.Since(l.Since); !l.Left && age < v.Grace {
			rs = append(rs, Reply{Node: l.Name, Err: fmt.Errorf("%w: it failed %v ago", ErrNoAnswer, age.Round(time.Second))})
		}
	}
	slices.SortFunc(rs, func(a, b Reply) int { return cmp.Compare(a.Node, b.Node) })
	return rs
}

func (n *Node) askOne(ctx context.Context, node, topic string, question []byte) ([]byte, error) {
	if len(question) > MaxQuestion {
		return nil, fmt.Errorf("%w: the question has %d bytes, at most %d are sent", ErrAnswer, len(question), MaxQuestion)
	}
	var (
		b   []byte
		err error
	)
	if node == n.cfg.Node {
		b, err = n.askSelf(ctx, topic, question)
	} else {
		b, err = n.c.Call(ctx, node, encodeQuestion(topic, question))
	}
	switch {
	case errors.Is(err, cluster.ErrRemote): // of an older version: it has no Answerers
		return nil, fmt.Errorf("%w: %q at %s: %w", ErrUnknownTopic, topic, node, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return decodeAnswer(topic, b)
}

// askSelf is a call to this node, which must not block longer than one to another.
func (n *Node) askSelf(ctx context.Context, topic string, question []byte) ([]byte, error) {
	if n.leaving.Load() {
		return nil, ErrClosed
	}
	got := make(chan []byte, 1)
	q := encodeQuestion(topic, question) // a copy: who answers may keep it
	go func() {
		b, _ := n.answerCall(ctx, n.cfg.Node, q)
		got <- b
	}()
	select {
	case b := <-got:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The wire. A question is a version, the length of the topic, the topic and the question; an answer is a status and the answer, or the text of
// an error. It travels as a cluster.Call.

const askVersion = 1

// status is the first byte of an answer.
type status byte

const (
	statusOK      status = iota
	statusUnknown        // no such topic, or a question of a later version
	statusBusy           // too many questions of the topic
	statusFailed         // the Answerer's error follows
)

func encodeQuestion(topic string, question []byte) []byte {
	topic = topic[:min(len(topic), 255)] // nobody knows so long a topic
	b := make([]byte, 0, 2+len(topic)+len(question))
	b = append(b, askVersion, byte(len(topic)))
	return append(append(b, topic...), question...)
}

func decodeQuestion(b []byte) (topic string, question []byte, ok bool) {
	if len(b) < 2 || b[0] != askVersion || len(b) < 2+int(b[1]) || len(b) > 2+int(b[1])+MaxQuestion {
		return "", nil, false
	}
	end := 2 + int(b[1])
	return string(b[2:end]), b[end:], true
}

func decodeAnswer(topic string, b []byte) ([]byte, error) {
	if len(b) == 0 || len(b) > 1+MaxAnswer {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrAnswer, len(b))
	}
	switch body := b[1:]; status(b[0]) {
	case statusOK:
		return body, nil
	case statusUnknown:
		return nil, fmt.Errorf("%w: %q", ErrUnknownTopic, topic)
	case statusBusy:
		return nil, fmt.Errorf("%w: it is busy with other questions of the topic", ErrNoAnswer)
	case statusFailed:
		return nil, fmt.Errorf("%w: %s", ErrAnswer, body)
	default:
		return nil, fmt.Errorf("%w: status %d is not known here", ErrAnswer, b[0])
	}
}

// maxErrorText is how much of an Answerer's error goes back.
const maxErrorText = 1000

// answerCall answers what askOne asks.
func (n *Node) answerCall(ctx context.Context, from string, b []byte) ([]byte, error) {
	name, question, ok := decodeQuestion(b)
	if !ok {
		return []byte{byte(statusUnknown)}, nil
	}
	t, ok := n.topics.byName.Load(name)
	if !ok {
		return []byte{byte(statusUnknown)}, nil
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	default:
		return []byte{byte(statusBusy)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	body, err := t.answer(ctx, from, question)
	if err == nil && len(body) > MaxAnswer {
		err = fmt.Errorf("the answer has %d bytes, at most %d are sent", len(body), MaxAnswer)
	}
	if err != nil {
		text := err.Error()
		return append([]byte{byte(statusFailed)}, text[:min(len(text), maxErrorText)]...), nil
	}
	return append([]byte{byte(statusOK)}, body...), nil
}
