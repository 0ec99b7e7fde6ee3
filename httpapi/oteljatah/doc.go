// Package oteljatah shows a [jatah.Node] to OpenTelemetry: its counters as metrics, and its decisions as spans.
//
// It is a module of its own, so that OpenTelemetry is needed only by those who use it. It needs the API alone: the SDK and its exporters are
// chosen by the program.
//
// # Metrics
//
//	registration, err := oteljatah.Metrics(node, provider)
//	defer registration.Unregister()
//
// Instruments are named jatah.*, in base units, with attributes jatah.* that are names of limits and fixed words: never keys. They are read when the
// program's reader collects; a decision is not touched.
//
// # Traces
//
//	tracer := oteljatah.NewTracer(oteljatah.Config{})
//	d := tracer.Take(ctx, api, "user:42", 1)        // instead of api.Take
//	h := httpapi.New(node, httpapi.Config{Decided: tracer.Decided})
//	e, err := edge.New(node, edge.Config{Decided: tracer.Verdict, Rules: rules})
//
// A span has the limit, whether it allowed, the source, the mode and the cost. It has the key only with [Config.Key]: keys are often personal data. It is an
// error only where nothing could be decided: a refusal is an answer. It is a child of the span that the context has: put otelhttp or the like around the
// handler, so that the traces of callers go on. Where the owner of the key was asked, or should have been, the span has the event
// jatah.ask, with what came of it. Of several takes in one call each is an event.
//
// # No guarantees
//
//   - A take on credit takes some tens of nanoseconds, a span that is recorded more than ten times that. Sample, or trace only what is slow anyway.
package oteljatah
