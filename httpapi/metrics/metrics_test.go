package metrics

import (
	"context"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi"
)

func newNode(t testing.TB, limits ...jatah.Limit) *jatah.Node {
	t.Helper()
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	for _, l := range limits {
		if _, err := node.Limit(l); err != nil {
			t.Fatal(err)
		}
	}
	return node
}

// many is so many keys that a series for each would be noticed; fewer with -short, for the race detector.
func many() int {
	if testing.Short() {
		return 10_000
	}
	return 100_000
}

// scrape reads all series of the API's /metrics; the value is by name and labels.
func scrape(t testing.TB, h *httpapi.Handler) map[string]float64 {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	series := make(map[string]float64)
	for name, f := range families {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			series[name+"{"+strings.Join(labels, ",")+"}"] = value(m)
		}
	}
	return series
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	}
	return 0
}

func TestDecisionsAreCountedByLimitResultAndSource(t *testing.T) {
	node := newNode(t,
		jatah.Limit{Name: "api", Rate: jatah.PerDay(10), Burst: 10},
		jatah.Limit{Name: "dry", Rate: jatah.PerDay(1), Burst: 1, DryRun: true})
	h := httpapi.New(node, httpapi.Config{Metrics: Handler(node, "v1.2.3")})
	for range 13 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/take", strings.NewReader(`{"limit":"api","key":"u"}`)))
	}
	for range 3 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/take", strings.NewReader(`{"limit":"dry","key":"u"}`)))
	}
	got := scrape(t, h)
	for series, want := range map[string]float64{
		"jatah_decisions_total{limit=api,result=allowed,source=local}": 10,
		"jatah_decisions_total{limit=api,result=denied,source=local}":  3,
		"jatah_decisions_total{limit=api,result=denied,source=ahead}":  0,
		"jatah_dry_run_denied_total{limit=dry}":                        2,
		"jatah_dry_run_denied_total{limit=api}":                        0,
		"jatah_limit_keys{limit=api}":                                  1,
		"jatah_members{state=alive}":                                   1,
		"jatah_members{state=failed}":                                  0,
		"jatah_ask_seconds{}":                                          0,
		"jatah_asks_total{}":                                           0,
		"jatah_debt_tokens_total{}":                                    0,
		"jatah_packets_total{direction=in}":                            0,
		"jatah_packets_dropped_total{reason=malformed}":                0,
		"jatah_table_entries{kind=bucket}":                             2,
	} {
		if v, ok := got[series]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", series, v, ok, want)
		}
	}
	for _, prefix := range []string{"jatah_build_info{goversion=go", "go_goroutines{", "process_cpu_seconds_total{"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(s string) bool { return strings.HasPrefix(s, prefix) }) {
			t.Errorf("there is no %s", prefix)
		}
	}
}

func TestSeriesDoNotGrowWithKeys(t *testing.T) {
	node := newNode(t, jatah.Limit{Name: "api", Rate: jatah.PerMinute(5), Burst: 5}, jatah.Limit{Name: "team/x:y", Rate: jatah.PerSecond(1)})
	h := httpapi.New(node, httpapi.Config{Metrics: Handler(node, "v0")})
	take := func(key string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/take", strings.NewReader(`{"limit":"api","key":"`+key+`"}`)))
		return w.Code
	}
	for i := range 10 {
		take(fmt.Sprint("ordinary-", i))
	}
	before := scrape(t, h)
	for _, key := range []string{"\xff", "\xfe", "\xff\xfe", `\ud800`, `a\"b\\nc`, "jatah_x{} 1"} {
		if code := take(key); code != 200 {
			t.Errorf("key %q: %d", key, code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/%c0", nil))
	if w.Code != 404 {
		t.Errorf("/%%c0: %d", w.Code)
	}
	for i := range many() {
		if code := take(fmt.Sprint("many-", i)); code != 200 {
			t.Fatalf("key %d: %d", i, code)
		}
	}
	after := scrape(t, h)
	names := func(m map[string]float64) []string { return slices.Sorted(maps.Keys(m)) }
	if b, a := names(before), names(after); !slices.Equal(b, a) {
		t.Errorf("%d series before, %d after:\n%v\n%v", len(b), len(a), b, a)
	}
	for series := range after {
		if strings.Contains(series, "many-") || strings.Contains(series, "ordinary-") {
			t.Errorf("a key is a label: %s", series)
		}
	}
	if n := after["jatah_decisions_total{limit=api,result=allowed,source=local}"]; n != float64(many()+16) {
		t.Errorf("%v decisions, want %d", n, many()+16)
	}
}

func TestHistogramIsCumulative(t *testing.T) {
	m := histogram(NewCollector(newNode(t)).desc.wait, jatah.Histogram{
		Bounds: []time.Duration{time.Millisecond, 10 * time.Millisecond}, Counts: []uint64{3, 4, 5}, Sum: time.Second, Count: 12,
	})
	var got dto.Metric
	if err := m.Write(&got); err != nil {
		t.Fatal(err)
	}
	h := got.Histogram
	if h.GetSampleCount() != 12 || h.GetSampleSum() != 1 || len(h.Bucket) != 2 ||
		h.Bucket[0].GetUpperBound() != 0.001 || h.Bucket[0].GetCumulativeCount() != 3 ||
		h.Bucket[1].GetUpperBound() != 0.01 || h.Bucket[1].GetCumulativeCount() != 7 {
		t.Errorf("got %v", h)
	}
}

func TestLimitNamesAreAlwaysGoodLabels(t *testing.T) {
	node := newNode(t)
	for _, name := range []string{"\xff", "a\xc0", "é", "a b", "", "a\nb"} {
		if _, err := node.Limit(jatah.Limit{Name: name, Rate: jatah.PerSecond(1)}); err == nil {
			t.Errorf("the node takes a limit named %q", name)
		}
	}
}

func TestScrapesBesideDecisions(t *testing.T) {
	node := newNode(t, jatah.Limit{Name: "api", Rate: jatah.PerSecond(100)})
	h := httpapi.New(node, httpapi.Config{Metrics: Handler(node, "v0")})
	api, _ := node.Lookup("api")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			api.Take(ctx, fmt.Sprint(n%100), 1)
		}
		done <- n
	}()
	for range 20 {
		scrape(t, h)
	}
	stop()
	<-done
}

// A histogram is written in both forms: text has the classic buckets, protobuf the native ones too, and they count the same.
func TestHistogramHasBothForms(t *testing.T) {
	fine := make([]uint64, 201)
	fine[0], fine[160], fine[161], fine[200] = 2, 3, 4, 1 // up to 1 µs, 1 s, a little above it, above 32 s
	m := histogram(NewCollector(newNode(t)).desc.wait, jatah.Histogram{
		Bounds: []time.Duration{time.Second}, Counts: []uint64{5, 5}, Sum: 40 * time.Second, Count: 10, Fine: fine, FineFirst: -160,
	})
	var got dto.Metric
	if err := m.Write(&got); err != nil {
		t.Fatal(err)
	}
	h := got.Histogram
	if h.GetSampleCount() != 10 || h.GetSampleSum() != 40 || h.GetSchema() != 3 || h.GetZeroCount() != 2 || h.GetZeroThreshold() != 1.0/(1<<20) {
		t.Errorf("got %v", h)
	}
	if len(h.Bucket) != 1 || h.Bucket[0].GetCumulativeCount() != 5 || h.Bucket[0].GetUpperBound() != 1 {
		t.Errorf("the classic buckets are %v", h.Bucket)
	}
	native, index, n := map[int32]int64{}, int32(0), int64(0)
	deltas := h.PositiveDelta
	for _, span := range h.PositiveSpan {
		index += span.GetOffset()
		for range span.GetLength() {
			n += deltas[0]
			native[index], deltas = n, deltas[1:]
			index++
		}
	}
	maps.DeleteFunc(native, func(_ int32, n int64) bool { return n == 0 })
	if want := map[int32]int64{0: 3, 1: 4, 40: 1}; !maps.Equal(native, want) { // index 0 ends at 1 s, 40 at 32 s
		t.Errorf("the native buckets are %v, want %v", native, want)
	}
}

func TestMembersAreGoodLabels(t *testing.T) {
	for name, want := range map[string]string{"n1": "n1", "knoten-ö": "knoten-ö", "\xff\xfe": `"\xff\xfe"`} {
		if got := labelOf(name); got != want {
			t.Errorf("the label of %q is %q, want %q", name, got, want)
		}
	}
}
