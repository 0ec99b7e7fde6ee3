package oteljatah

import (
	"context"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// Config says how a [Tracer] makes spans. The zero value is ready.
type Config struct {
	// Provider makes the spans. Nil: the global one.
	Provider trace.TracerProvider
	// Key puts keys into spans, as the attribute jatah.key: as they are if they are UTF-8, else quoted as in Go.
	Key bool
}

// Tracer makes a span of each decision. Use [NewTracer]; safe for any number of goroutines.
type Tracer struct {
	tracer trace.Tracer
	key    bool
}

// NewTracer makes a tracer.
func NewTracer(cfg Config) *Tracer {
	if cfg.Provider == nil {
		cfg.Provider = otel.GetTracerProvider()
	}
	return &Tracer{tracer: cfg.Provider.Tracer(scope), key: cfg.Key}
}

// Take is l.Take with a span "jatah take".
func (t *Tracer) Take(ctx context.Context, l *jatah.Limiter, key string, cost int64) jatah.Decision {
	ctx, span := t.tracer.Start(ctx, "jatah take")
	defer span.End()
	d := l.Take(ctx, key, cost)
	t.describe(span, l, key, cost, &d)
	return d
}

// Wait is l.Wait with a span "jatah wait", which lasts until the request may go or is refused. The event jatah.ask is left out: many may have been asked.
func (t *Tracer) Wait(ctx context.Context, l *jatah.Limiter, key string, cost int64) (jatah.Decision, error) {
	ctx, span := t.tracer.Start(ctx, "jatah wait")
	defer span.End()
	d, err := l.Wait(ctx, key, cost)
	if span.IsRecording() {
		span.SetAttributes(t.attributes(l.Terms(key).Name, key, cost, &d)...)
		fail(span, err)
	}
	return d, err
}

// Acquire is l.Acquire with a span "jatah acquire".
func (t *Tracer) Acquire(ctx context.Context, l *jatah.Limiter, key string, ttl time.Duration) (*jatah.Permit, jatah.Decision) {
	ctx, span := t.tracer.Start(ctx, "jatah acquire")
	defer span.End()
	p, d := l.Acquire(ctx, key, ttl)
	t.describe(span, l, key, 1, &d)
	return p, d
}

// TakeAll is node.TakeAll with a span "jatah take-all", which has an event for each of the takes.
func (t *Tracer) TakeAll(ctx context.Context, node *jatah.Node, reqs []jatah.Request) jatah.Result {
	ctx, span := t.tracer.Start(ctx, "jatah take-all")
	defer span.End()
	r := node.TakeAll(ctx, reqs)
	if span.IsRecording() {
		takes := make([]httpapi.DecidedTake, len(r.Decisions))
		for i, d := range r.Decisions {
			takes[i] = httpapi.DecidedTake{Limit: reqs[i].Limit, Key: reqs[i].Key, Cost: reqs[i].Cost, Decision: d}
		}
		t.describeAll(span, takes)
		span.SetAttributes(attribute.Bool("jatah.allowed", r.OK))
		fail(span, r.Err)
	}
	return r
}

// Decided makes a span "jatah CALL" of each call of the HTTP API: it goes into httpapi.Config.Decided. The span is a child of what the
// request's context has.
func (t *Tracer) Decided(ctx context.Context, d *httpapi.Decided) {
	_, span := t.tracer.Start(ctx, "jatah "+d.Call, trace.WithTimestamp(d.Began))
	defer span.End()
	if !span.IsRecording() {
		return
	}
	t.describeAll(span, d.Takes)
}

// Verdict makes a span "jatah edge" of each decision of an edge: it goes into edge.Config.Decided, and so is for middleware, forward auth and gRPC.
func (t *Tracer) Verdict(ctx context.Context, began time.Time, v *edge.Verdict) {
	_, span := t.tracer.Start(ctx, "jatah edge", trace.WithTimestamp(began))
	defer span.End()
	if !span.IsRecording() {
		return
	}
	takes := make([]httpapi.DecidedTake, len(v.Takes))
	for i := range v.Takes {
		k := &v.Takes[i]
		takes[i] = httpapi.DecidedTake{Limit: k.Name, Key: k.Key, Cost: k.Cost, Decision: k.Decision}
	}
	t.describeAll(span, takes)
	span.SetAttributes(attribute.String("jatah.rule", v.Rule), attribute.Bool("jatah.allowed", v.OK))
	if v.Undecided() {
		fail(span, v.Err)
	}
}

func (t *Tracer) describe(span trace.Span, l *jatah.Limiter, key string, cost int64, d *jatah.Decision) {
	if span.IsRecording() {
		t.describeAll(span, []httpapi.DecidedTake{{Limit: l.Terms(key).Name, Key: key, Cost: cost, Decision: *d}})
	}
}

// maxEvents bounds the events of a span: a batch may have a thousand takes.
const maxEvents = 32

// describeAll puts one take into attributes, and of several each into an event.
func (t *Tracer) describeAll(span trace.Span, takes []httpapi.DecidedTake) {
	if len(takes) == 1 {
		k := &takes[0]
		span.SetAttributes(t.attributes(k.Limit, k.Key, k.Cost, &k.Decision)...)
		asked(span, &k.Decision)
		fail(span, k.Decision.Err)
		return
	}
	allowed := 0
	for i := range takes {
		k := &takes[i]
		if k.Decision.OK {
			allowed++
		}
		if i < maxEvents {
			span.AddEvent("jatah.take", trace.WithAttributes(t.attributes(k.Limit, k.Key, k.Cost, &k.Decision)...))
		}
	}
	span.SetAttributes(attribute.Int("jatah.takes", len(takes)), attribute.Int("jatah.takes.allowed", allowed))
}

func (t *Tracer) attributes(limit, key string, cost int64, d *jatah.Decision) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("jatah.limit", readable(limit)), attribute.Bool("jatah.allowed", d.OK), attribute.String("jatah.source", d.Source.String()),
		attribute.String("jatah.mode", d.Mode.String()), attribute.Int64("jatah.cost", cost), attribute.Int64("jatah.remaining", d.Remaining),
	}
	if d.DryRun {
		all = append(all, attribute.Bool("jatah.dry_run", true))
	}
	if !d.OK && d.RetryAfter != jatah.Never {
		all = append(all, attribute.Float64("jatah.retry_after", d.RetryAfter.Seconds()))
	}
	if t.key {
		all = append(all, attribute.String("jatah.key", readable(key)))
	}
	return all
}

// readable is text that exporters take. Callers choose keys, and a span with one string that is not UTF-8 cannot be sent by OTLP, nor can the others that were
// to go with it. What is not is quoted, also some of the keys that jatah.Key joined.
func readable(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// asked tells of the question to the owner, as far as the decision does.
func asked(span trace.Span, d *jatah.Decision) {
	if d.Err != nil || d.Source == jatah.SourceLocal {
		return
	}
	outcome := "unanswered" // or not even asked, as it was silent before
	if d.Source == jatah.SourceOwner {
		outcome = "answered"
	}
	span.AddEvent("jatah.ask", trace.WithAttributes(attribute.String("jatah.ask.outcome", outcome)))
}

func fail(span trace.Span, err error) {
	if err == nil {
		return
	}
	if text := err.Error(); !utf8.ValidString(text) {
		err = errors.New(readable(text))
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
