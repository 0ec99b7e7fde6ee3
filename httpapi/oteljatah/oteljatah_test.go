package oteljatah_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/edge"
	"github.com/jatah-io/jatah/httpapi/oteljatah"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func alone(t *testing.T, limits ...jatah.Limit) *jatah.Node {
	t.Helper()
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	if err := node.SetLimits(limits...); err != nil {
		t.Fatal(err)
	}
	return node
}

// recording is a tracer whose spans are kept in memory.
func recording(t *testing.T, cfg oteljatah.Config) (*oteljatah.Tracer, *sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	cfg.Provider = provider
	return oteljatah.NewTracer(cfg), provider, spans
}

// only is the one span that was made since the last time, as text: name, attributes that matter, events, status.
func only(t *testing.T, spans *tracetest.InMemoryExporter) (tracetest.SpanStub, string) {
	t.Helper()
	all := spans.GetSpans()
	spans.Reset()
	if len(all) != 1 {
		t.Fatalf("%d spans: %v", len(all), all)
	}
	s := all[0]
	text := s.Name + describe(s.Attributes)
	for _, e := range s.Events {
		text += "; " + e.Name + describe(e.Attributes)
	}
	if s.Status.Code == codes.Error {
		text += "; error"
	}
	return s, text
}

func describe(attributes []attribute.KeyValue) (text string) {
	for _, a := range attributes {
		switch key := string(a.Key); key {
		case "jatah.remaining", "jatah.retry_after", "exception.type", "exception.message", "exception.stacktrace":
		default:
			text += fmt.Sprintf(" %s=%s", strings.TrimPrefix(key, "jatah."), a.Value.String())
		}
	}
	return text
}

var (
	api  = jatah.Limit{Name: "api", Rate: jatah.PerHour(2), Burst: 2}
	dry  = jatah.Limit{Name: "dry", Rate: jatah.PerHour(1), Burst: 1, DryRun: true}
	jobs = jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1}
)

func TestADecisionIsASpan(t *testing.T) {
	node := alone(t, api, dry, jobs)
	tracer, provider, spans := recording(t, oteljatah.Config{})
	limiter := func(name string) *jatah.Limiter {
		l, _ := node.Lookup(name)
		return l
	}
	take := func(limit, key string, cost int64) func(context.Context) {
		return func(ctx context.Context) { tracer.Take(ctx, limiter(limit), key, cost) }
	}
	all := func(names ...string) func(context.Context) {
		return func(ctx context.Context) {
			var reqs []jatah.Request
			for _, n := range names {
				reqs = append(reqs, jatah.Request{Limit: n, Key: "secret-all", Cost: 1})
			}
			tracer.TakeAll(ctx, node, reqs)
		}
	}
	for _, c := range []struct {
		do   func(context.Context)
		want string
	}{
		{take("api", "secret", 2), "jatah take limit=api allowed=true source=local mode=hybrid cost=2"},
		{take("api", "secret", 1), "jatah take limit=api allowed=false source=local mode=hybrid cost=1"},
		{take("dry", "secret", 1), "jatah take limit=dry allowed=true source=local mode=hybrid cost=1"},
		{take("dry", "secret", 1), "jatah take limit=dry allowed=true source=local mode=hybrid cost=1 dry_run=true"},
		{take("api", "secret", -1), "jatah take limit=api allowed=false source=local mode=hybrid cost=-1; exception; error"},
		{func(ctx context.Context) { _, _ = tracer.Wait(ctx, limiter("api"), "secret-w", 1) }, "jatah wait limit=api allowed=true source=local mode=hybrid cost=1"},
		{func(ctx context.Context) { tracer.Acquire(ctx, limiter("jobs"), "secret", 0) }, "jatah acquire limit=jobs allowed=true source=local mode=hybrid cost=1"},
		{func(ctx context.Context) { tracer.Acquire(ctx, limiter("jobs"), "secret", 0) }, "jatah acquire limit=jobs allowed=false source=local mode=hybrid cost=1"},
		{all("api", "dry"), "jatah take-all takes=2 takes.allowed=2 allowed=true; jatah.take limit=api allowed=true source=local mode=hybrid cost=1; jatah.take limit=dry allowed=true source=local mode=hybrid cost=1"},
	} {
		ctx, parent := provider.Tracer("test").Start(t.Context(), "parent")
		c.do(ctx)
		s, got := only(t, spans)
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if s.Parent.SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("%s is no child of the caller's span", got)
		}
	}
}

func TestKeysAreInSpansOnlyIfAskedFor(t *testing.T) {
	node := alone(t, api)
	l, _ := node.Lookup("api")
	for _, asked := range []bool{false, true} {
		tracer, _, spans := recording(t, oteljatah.Config{Key: asked})
		h := httpapi.New(node, httpapi.Config{Decided: tracer.Decided, Logger: quiet})
		for _, do := range []func(){
			func() { tracer.Take(t.Context(), l, "secret", 1) },
			func() { tracer.Take(t.Context(), l, strings.Repeat("secret", 1000), 1) },
			func() {
				tracer.TakeAll(t.Context(), node, []jatah.Request{{Limit: "api", Key: "secret"}, {Limit: "api", Key: "secret"}})
			},
			func() { post(t, h, "/v1/take", `{"limit":"api","key":"secret"}`) },
		} {
			do()
			if s, _ := only(t, spans); strings.Contains(fmt.Sprintf("%+v", s), "secret") != asked {
				t.Errorf("Config.Key is %v, and the span is %+v", asked, s)
			}
		}
	}
}

// Callers choose keys; a span with a string that is not UTF-8 would keep an exporter of OTLP from sending all that it has.
func TestSpansAreTextWhateverTheKeyIs(t *testing.T) {
	node := alone(t, api)
	tracer, _, spans := recording(t, oteljatah.Config{Key: true})
	l, _ := node.Lookup("api")
	for key, want := range map[string]string{
		"\xff\xfe":                               `"\xff\xfe"`,
		"ü":                                      "ü",
		jatah.Key("u", strings.Repeat("p", 200)): `"\x00\x01u\xc8\x01` + strings.Repeat("p", 200) + `"`, // 200 is c8 01
	} {
		for _, do := range []func(){
			func() { tracer.Take(t.Context(), l, key, 1) },
			func() { tracer.Take(t.Context(), l, key, -1) }, // an error
			func() { tracer.TakeAll(t.Context(), node, []jatah.Request{{Limit: "api", Key: key, Cost: 1}}) },
			func() { tracer.TakeAll(t.Context(), node, []jatah.Request{{Limit: "\xff", Key: key, Cost: 1}}) },
		} {
			do()
			s, _ := only(t, spans)
			all := s.Attributes
			for _, e := range s.Events {
				all = append(all, e.Attributes...)
			}
			for _, a := range all {
				if text := a.Value.AsString(); !utf8.ValidString(text) || a.Key == "jatah.key" && text != want {
					t.Errorf("key %q: %s is %q", key, a.Key, text)
				}
			}
			if !utf8.ValidString(s.Status.Description) {
				t.Errorf("key %q: the status is %q", key, s.Status.Description)
			}
		}
	}
}

func post(t *testing.T, h http.Handler, path, body string) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body)))
	return w.Code
}

func TestCallsOverHTTPAreSpans(t *testing.T) {
	node := alone(t, api, dry)
	tracer, provider, spans := recording(t, oteljatah.Config{})
	h := httpapi.New(node, httpapi.Config{Decided: tracer.Decided, Logger: quiet})
	parent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as otelhttp does
		ctx, span := provider.Tracer("test").Start(r.Context(), "POST")
		defer span.End()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
	if code := post(t, parent, "/v1/take", `{"limit":"api","key":"u"}`); code != 200 {
		t.Fatal(code)
	}
	both := spans.GetSpans()
	spans.Reset()
	if len(both) != 2 || both[0].Name != "jatah take" || both[0].Parent.SpanID() != both[1].SpanContext.SpanID() ||
		both[0].StartTime.Before(both[1].StartTime) || both[0].EndTime.After(both[1].EndTime) {
		t.Errorf("a take within a request is %+v", both)
	}
	post(t, h, "/v1/batch", `{"takes":[{"limit":"api","key":"u","cost":2},{"limit":"nope","key":"u"},{"limit":"dry","key":"u"}]}`)
	if _, got := only(t, spans); got != "jatah batch takes=2 takes.allowed=1; jatah.take limit=api allowed=false source=local mode=hybrid cost=2; "+
		"jatah.take limit=dry allowed=true source=local mode=hybrid cost=1" {
		t.Errorf("a batch is %s", got)
	}
}

func TestVerdictsAreSpans(t *testing.T) {
	node := alone(t, api)
	tracer, _, spans := recording(t, oteljatah.Config{})
	e, err := edge.New(node, edge.Config{Decided: tracer.Verdict, Logger: quiet, Rules: []edge.Rule{
		{Name: "free", When: []edge.Condition{edge.Path("/free")}},
		{Name: "all", Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Header("Key")}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	site := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func(path string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
		r.Header.Set("Key", "secret")
		site.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, want := range []string{"true", "true", "false"} {
		get("/")
		s, got := only(t, spans)
		if got != "jatah edge limit=api allowed="+want+" source=local mode=hybrid cost=1 rule=all" {
			t.Errorf("got %s", got)
		}
		if strings.Contains(fmt.Sprintf("%+v", s), "secret") {
			t.Errorf("the key is in the span: %+v", s)
		}
	}
}

// An owner that was asked, and one that is silent, are events.
func TestQuestionsToOwnersAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Minute) // memberlist's probes outlast their owner
		network := simnet.New(1)
		var nodes []*jatah.Node
		for i := range 2 {
			tr, err := network.Transport(fmt.Sprintf("10.0.0.%d:7946", i+1))
			if err != nil {
				t.Fatal(err)
			}
			node, err := jatah.Open(t.Context(), jatah.Config{Node: fmt.Sprint("n", i+1), Transport: tr, Join: []string{"10.0.0.1:7946", "10.0.0.2:7946"}, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			if err := node.SetLimits(jatah.Limit{Name: "api", Rate: jatah.PerHour(100), Mode: jatah.Strict, Fallback: jatah.FallbackDeny}); err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, node)
		}
		for _, node := range nodes {
			if err := node.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second) // every share is lent by now
		tracer, _, spans := recording(t, oteljatah.Config{})
		l, _ := nodes[0].Lookup("api")
		remote := "" // a key that the other node owns
		for i := 0; remote == ""; i++ {
			key := fmt.Sprint("k", i)
			if st, err := l.Peek(t.Context(), key); err == nil && st.Owner == "n2" {
				remote = key
			}
		}
		tracer.Take(t.Context(), l, remote, 1)
		if _, got := only(t, spans); got != "jatah take limit=api allowed=true source=owner mode=strict cost=1; jatah.ask ask.outcome=answered" {
			t.Errorf("asked, it is %s", got)
		}
		network.Isolate("10.0.0.2:7946")
		tracer.Take(t.Context(), l, remote, 1)
		if _, got := only(t, spans); got != "jatah take limit=api allowed=false source=deny mode=strict cost=1; jatah.ask ask.outcome=unanswered" {
			t.Errorf("without an owner it is %s", got)
		}
		got := collect(t, nodes[0])
		if got["jatah.ask.failures{reason=timeout}"] != 1 || got["jatah.decisions{limit=api,result=denied,source=deny}"] != 1 || got["jatah.ask.answers{}"] < 1 {
			t.Errorf("the metrics are %v", got)
		}
	})
}

// collect reads all instruments once.
func collect(t *testing.T, node *jatah.Node) map[string]float64 {
	t.Helper()
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	registration, err := oteljatah.Metrics(node, provider)
	if err != nil {
		t.Fatal(err)
	}
	defer registration.Unregister()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	add := func(m *metricdata.Metrics, set attribute.Set, v float64) {
		var labels []string
		for _, a := range set.ToSlice() {
			labels = append(labels, strings.TrimPrefix(string(a.Key), "jatah.")+"="+a.Value.String())
		}
		all[m.Name+"{"+strings.Join(labels, ",")+"}"] = v
	}
	for _, s := range data.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Description == "" || m.Unit == "" {
				t.Errorf("%s has no description or unit", m.Name)
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(&m, p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[float64]:
				for _, p := range d.DataPoints {
					add(&m, p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(&m, p.Attributes, p.Value)
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return all
}

func TestInstrumentsShowTheNode(t *testing.T) {
	node := alone(t, api, dry, jobs)
	before := collect(t, node)
	for _, name := range []string{"api", "dry"} {
		l, _ := node.Lookup(name)
		for range 3 {
			l.Take(t.Context(), "secret", 1)
		}
	}
	got := collect(t, node)
	for series, want := range map[string]float64{
		"jatah.decisions{limit=api,result=allowed,source=local}": 2,
		"jatah.decisions{limit=api,result=denied,source=local}":  1,
		"jatah.decisions{limit=dry,result=denied,source=local}":  2,
		"jatah.decisions{limit=api,result=denied,source=ahead}":  0,
		"jatah.decisions.near_limit{limit=api}":                  1,
		"jatah.decisions.dry_run_denied{limit=dry}":              2,
		"jatah.limit.keys{limit=api}":                            1,
		"jatah.table.entries{kind=bucket}":                       2,
		"jatah.members{state=alive}":                             1,
		"jatah.ready{}":                                          1,
		"jatah.weight{}":                                         1,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, want)
		}
	}
	if b, a := slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(got)); !slices.Equal(b, a) {
		t.Errorf("the series are %v before any decision and %v after", b, a)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for series := range got {
		name, _, _ := strings.Cut(series, "{")
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/metrics.md does not name `%s`", name)
		}
		if strings.Contains(series, "secret") {
			t.Errorf("a key is an attribute: %s", series)
		}
	}
}

// Who imports the package gets the API of OpenTelemetry, and chooses an SDK.
func TestOnlyTheAPIIsNeeded(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if deps := string(out); strings.Contains(deps, "opentelemetry.io/otel/sdk") || !strings.Contains(deps, "opentelemetry.io/otel/metric") {
		t.Errorf("the package needs\n%s", deps)
	}
}
