package oteljatah_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/oteljatah"
)

func Example() {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerHour(100), Burst: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	spans := tracetest.NewInMemoryExporter() // a program has an exporter to its collector
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	tracer := oteljatah.NewTracer(oteljatah.Config{Provider: provider})
	tracer.Take(ctx, api, "user:42", 1)

	span := spans.GetSpans()[0]
	fmt.Println(span.Name)
	for _, a := range span.Attributes {
		fmt.Println(a.Key, a.Value.String())
	}
	// Output:
	// jatah take
	// jatah.limit api
	// jatah.allowed true
	// jatah.source local
	// jatah.mode hybrid
	// jatah.cost 1
	// jatah.remaining 19
}
