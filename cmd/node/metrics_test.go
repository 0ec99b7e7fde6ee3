package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// everything is a configuration that has something of all that is measured.
const everything = `
limits:
  - {name: api, rate: 100/s}
  - {name: lower, rate: 50/s}
  - {name: uploads, algorithm: concurrency, max: 5}
edge:
  trusted_proxies: [127.0.0.1]
  rules:
    - {name: known, use: [{limit: api, key: address, candidates: [lower]}]}
`

const metricsPage = "../../docs/metrics.md"

// exported is a metric of a node's /metrics.
type exported struct {
	kind, help string
	labels     map[string][]string // name to values
}

// exports scrapes a node of a cluster of two that has everything.
func exports(t *testing.T) (page []byte, metrics map[string]exported) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jatah.yaml")
	if err := os.WriteFile(file, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startCluster(t, 2, "--config", file)[0]
	resp, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if page, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	// And what a node with TLS has besides.
	a := newAuthority(t, t.TempDir(), "ca.pem")
	a.sign("n1", time.Now().Add(time.Hour))
	secure := prometheus.NewPedanticRegistry()
	secure.MustRegister(newCertificates(a.mustLoad("tls: {cert_file: n1.pem, key_file: n1-key.pem}\n").TLS, slog.New(slog.DiscardHandler)))
	more, err := secure.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range more {
		families[f.GetName()] = f
	}
	var ours []*dto.MetricFamily
	metrics = map[string]exported{}
	for name, f := range families {
		x := exported{kind: strings.ToLower(f.GetType().String()), help: f.GetHelp(), labels: map[string][]string{}}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				x.labels[l.GetName()] = append(x.labels[l.GetName()], l.GetValue())
			}
		}
		metrics[name] = x
		if strings.HasPrefix(name, "jatah_") {
			ours = append(ours, f)
		}
	}
	problems, err := promlint.NewWithMetricFamilies(ours).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	return page, metrics
}

// What is exported, documented, drawn and alerted on is the same.
func TestMetricsAreThoseOfTheirPageAndFiles(t *testing.T) {
	needProcesses(t)
	page, metrics := exports(t)
	t.Run("page", func(t *testing.T) { comparePage(t, metrics) })
	t.Run("files", func(t *testing.T) { compareFiles(t, metrics) })
	t.Run("promtool", func(t *testing.T) {
		if _, err := exec.LookPath("promtool"); err != nil {
			t.Skip("there is no promtool (in Debian's package prometheus): the rules are not run")
		}
		promtool := func(in []byte, args ...string) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "promtool", args...)
			cmd.Dir, cmd.Stdin = "../../deploy", bytes.NewReader(in)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
		promtool(page, "check", "metrics")
		promtool(nil, "check", "config", "prometheus.yml")
		promtool(nil, "check", "rules", "prometheus-rules.yaml")
		promtool(nil, "test", "rules", "prometheus-rules.test.yaml")
	})
}

var pageRow = regexp.MustCompile("(?m)^\\| `(jatah_[a-z0-9_]+)` \\| (\\w+) \\| ([^|]*) \\|[^|]+\\|[^|]+\\|$")

func comparePage(t *testing.T, metrics map[string]exported) {
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for _, row := range pageRow.FindAllStringSubmatch(string(text), -1) {
		name, kind, labels := row[1], row[2], strings.ReplaceAll(row[3], "`", "")
		if described[name] {
			t.Errorf("%s has %s twice", metricsPage, name)
		}
		described[name] = true
		switch x, ok := metrics[name]; {
		case !ok:
			t.Errorf("%s has %s, which no node exports: remove the row, or give `everything` in this test what it measures", metricsPage, name)
		case kind != x.kind || labels != labelList(x):
			t.Errorf("%s says that %s is a %s by %s; it is a %s by %s", metricsPage, name, kind, labels, x.kind, labelList(x))
		}
	}
	for name, x := range metrics {
		if strings.HasPrefix(name, "jatah_") && !described[name] {
			labels := labelList(x)
			if len(x.labels) > 0 {
				labels = "`" + strings.ReplaceAll(labels, " ", "` `") + "`"
			}
			t.Errorf("%s lacks %s; add this row to the table it belongs in, with what an operator does about it (or –) at the end:\n| `%s` | %s | %s | %s | – |",
				metricsPage, name, name, x.kind, labels, strings.TrimSuffix(x.help, "."))
		}
	}
}

// labelList is the names of a metric's labels as the page has them.
func labelList(x exported) string {
	var names []string
	for name := range x.labels {
		names = append(names, name)
	}
	if len(names) == 0 {
		return "–"
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// expressions are the queries of a file of deploy/, by where they are in it.
type expressions map[string]string

func decodeFile(t *testing.T, name string, decode func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy", name))
	if err == nil {
		err = decode(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func dashboardExpressions(t *testing.T) expressions {
	var board struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	decodeFile(t, "grafana-dashboard.json", json.Unmarshal, &board)
	all := expressions{}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q has no query", p.Title)
		}
		for _, q := range p.Targets {
			all["panel "+p.Title+": "+q.Expr] = q.Expr
		}
	}
	for _, v := range board.Templating.List {
		all["variable "+v.Name] = v.Definition
	}
	return all
}

func ruleExpressions(t *testing.T) (all expressions, records map[string]bool) {
	type rule struct{ Record, Alert, Expr string }
	var rules struct {
		Groups []struct{ Rules []rule }
	}
	decodeFile(t, "prometheus-rules.yaml", func(b []byte, v any) error { return yaml.Unmarshal(b, v) }, &rules)
	var cases struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	decodeFile(t, "prometheus-rules.test.yaml", func(b []byte, v any) error { return yaml.Unmarshal(b, v) }, &cases)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		for _, a := range c.AlertRuleTest {
			fires[a.Alertname] = fires[a.Alertname] || len(a.ExpAlerts) > 0
			rests[a.Alertname] = rests[a.Alertname] || len(a.ExpAlerts) == 0
		}
	}
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	all, records = expressions{}, map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			all["rule "+r.Record+r.Alert] = r.Expr
			if r.Alert == "" {
				records[r.Record] = true
				continue
			}
			if !fires[r.Alert] || !rests[r.Alert] {
				t.Errorf("prometheus-rules.test.yaml has no case where %s fires, and one where it does not", r.Alert)
			}
			if !strings.Contains(string(text), "\n### "+r.Alert+"\n") {
				t.Errorf("%s has no heading ### %s that says what to do", metricsPage, r.Alert)
			}
		}
	}
	return all, records
}

var (
	exprName     = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	exprSelector = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	exprMatcher  = regexp.MustCompile(`(\w+)\s*(=~|=|!=|!~)\s*"([^"]*)"`)
)

func compareFiles(t *testing.T, metrics map[string]exported) {
	all, records := ruleExpressions(t)
	for where, expr := range dashboardExpressions(t) {
		all[where] = expr
	}
	if len(all) < 60 {
		t.Errorf("only %d queries were found", len(all))
	}
	find := func(name string) (exported, bool) {
		if x, ok := metrics[name]; ok {
			return x, x.kind != "histogram" // classic ones are asked for by their parts
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if x, ok := metrics[strings.TrimSuffix(name, part)]; ok && x.kind == "histogram" {
				return x, true
			}
		}
		return exported{}, false
	}
	for where, expr := range all {
		for _, name := range exprName.FindAllString(expr, -1) {
			ours := strings.HasPrefix(name, "jatah_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "go_")
			if _, ok := find(name); ours && !ok || strings.Contains(name, ":") && !records[name] {
				t.Errorf("%s: there is no %s", where, name)
			}
		}
		for _, s := range exprSelector.FindAllStringSubmatch(expr, -1) {
			x, ok := find(s[1])
			if !ok {
				continue
			}
			for _, m := range exprMatcher.FindAllStringSubmatch(s[2], -1) {
				label, value := m[1], m[3]
				if label == "job" || label == "instance" {
					continue
				}
				for _, one := range strings.Split(value, "|") {
					if values := x.labels[label]; values == nil || !strings.HasPrefix(one, "$") && !slices.Contains(values, one) {
						t.Errorf("%s: %s has no %s=%q, but %v", where, s[1], label, one, values)
					}
				}
			}
		}
	}
}
