package config

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

const wholeFile = `
http: 127.0.0.1:9090
node: n1
state_dir: /var/lib/jatah
log_refusals: true
max_keys: 5000000
max_memory: 512MiB
overflow: shared
cluster:
  name: blue
  bind: 10.0.0.1:7946
  advertise: 192.0.2.1:7946
  join: [10.0.0.2:7946, "dns+srv://_jatah._tcp.example"]
  secret: "MDEyMzQ1Njc4OWFiY2RlZg=="
  sync_interval: 200ms
  ask_timeout: 20ms
  expect: 3
  grace: never
limits:
  - name: api
    rate: 100/min
    burst: 20
    algorithm: token_bucket
    mode: strict
    overshoot: 0
    fallback: wait
    dry_run: true
  - {name: login, rate: 5/min}
`

func TestEveryFieldOfTheFileIsRead(t *testing.T) {
	got, err := Merge(&Document{"jatah.yaml", []byte(wholeFile)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		HTTP: "127.0.0.1:9090", LogRefusals: true,
		Node: jatah.Config{
			Node: "n1", StateDir: "/var/lib/jatah", MaxKeys: 5_000_000, MaxMemory: 512 << 20, Overflow: jatah.OverflowShared, Cluster: "blue", Bind: "10.0.0.1:7946", Advertise: "192.0.2.1:7946",
			Join:    []string{"10.0.0.2:7946", "dns+srv://_jatah._tcp.example"},
			Secrets: [][]byte{[]byte("0123456789abcdef")}, SyncInterval: 200 * time.Millisecond,
			AskTimeout: 20 * time.Millisecond, Expect: 3, Grace: jatah.Never,
		},
		Limits: []jatah.Limit{
			{Name: "api", Rate: mustRate(t, "100/min"), Burst: 20, Algorithm: "token_bucket",
				Mode: mustMode(t, "strict"), Fallback: mustFallback(t, "wait"), DryRun: true},
			{Name: "login", Rate: mustRate(t, "5/min")},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestNothingGivenIsALoneNodeOnLoopback(t *testing.T) {
	for _, doc := range []string{"", "# nothing\n", "---\n", "cluster:\nlimits:\n", "cluster:\n  # join: [a]\n  join:\n"} {
		got, err := Merge(&Document{"jatah.yaml", []byte(doc)}, nil, nil)
		if err != nil {
			t.Errorf("%q: %v", doc, err)
		}
		if want := (Config{HTTP: DefaultHTTP}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", doc, got, want)
		}
	}
}

func TestABurstIsJudgedByTheRateOfItsLimit(t *testing.T) {
	want := jatah.Limit{Name: "api", Rate: mustRate(t, "1000000/s"), Burst: 5_000_000_000}
	file := "limits: [{name: api, rate: 1000000/s, burst: 5000000000}]\n"
	fromFile, err := Merge(&Document{"f.yaml", []byte(file)}, nil, nil)
	if err != nil || !slices.EqualFunc(fromFile.Limits, []jatah.Limit{want}, jatah.Limit.Equal) {
		t.Errorf("from a file: %+v, %v; want %+v", fromFile.Limits, err, want)
	}
	fromFlag, err := Merge(nil, nil, []Setting{{"--limit", "limits", "api=1000000/s,burst=5000000000"}})
	if err != nil || !slices.EqualFunc(fromFlag.Limits, []jatah.Limit{want}, jatah.Limit.Equal) {
		t.Errorf("from a flag: %+v, %v; want %+v", fromFlag.Limits, err, want)
	}
	if _, err := Merge(nil, nil, []Setting{{"--limit", "limits", "api=1/s,burst=5000000000"}}); err == nil || !strings.Contains(err.Error(), "more than 100 years") {
		t.Errorf("a burst that takes 158 years to fill: %v; want it refused for that", err)
	}
}

func TestAByteOrderMarkIsNoPartOfTheFirstField(t *testing.T) {
	got, err := Merge(&Document{"f.yaml", []byte("\ufeffhttp: 127.0.0.1:9090\r\nnode: n1\r\n")}, nil, nil)
	if err != nil || got.HTTP != "127.0.0.1:9090" || got.Node.Node != "n1" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAddressesNeedNoQuotesWhereverTheyStand(t *testing.T) {
	for _, doc := range []string{
		"cluster: {join: [10.0.0.1:7946, n2.example:7946, n3]}",
		"cluster:\n  join: [10.0.0.1:7946, n2.example:7946, n3]",
		"cluster:\n  join:\n  - 10.0.0.1:7946\n  - n2.example:7946\n  - n3",
		"cluster: {join: [\"10.0.0.1:7946\", 'n2.example:7946', n3]}",
	} {
		got, err := Merge(&Document{"jatah.yaml", []byte(doc)}, nil, nil)
		if want := []string{"10.0.0.1:7946", "n2.example:7946", "n3"}; err != nil || !slices.Equal(got.Node.Join, want) {
			t.Errorf("%q: join %q, error %v", doc, got.Node.Join, err)
		}
	}
	for _, doc := range []string{"cluster: {join: [a: 1]}", "cluster: {join: [{a: 1}]}", "cluster: {join: [a : 1]}"} {
		if got, err := Merge(&Document{"jatah.yaml", []byte(doc)}, nil, nil); err == nil {
			t.Errorf("%q: accepted as %q", doc, got.Node.Join)
		}
	}
}

func TestAnyClusterFieldOpensTheClusterPortOnLoopback(t *testing.T) {
	got, err := Merge(nil, []string{"JATAH_CLUSTER_EXPECT=3"}, nil)
	if err != nil || got.Node.Bind != DefaultBind {
		t.Errorf("bind %q, error %v; want %s", got.Node.Bind, err, DefaultBind)
	}
}

func TestFlagsBeatEnvironmentBeatFile(t *testing.T) {
	doc := &Document{"jatah.yaml", []byte("http: 127.0.0.1:1\nnode: file\ncluster: {name: file, join: [file]}\n" +
		"limits: [{name: api, rate: 1/s}, {name: login, rate: 2/s}]\n")}
	environ := []string{"JATAH_NODE=environment", "JATAH_CLUSTER_NAME=environment", "JATAH_CLUSTER_JOIN=a, b,",
		"JATAH_LIMITS=login=3/s,burst=7; extra = 4/s , mode=split ;", "OTHER=x", "JATAH_HTTP="}
	flags := []Setting{{"--cluster", "cluster.name", "flag"}, {"--limit", "limits", "api=5/s,fallback=deny"}}
	got, err := Merge(doc, environ, flags)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		HTTP: "127.0.0.1:1",
		Node: jatah.Config{Node: "environment", Cluster: "flag", Join: []string{"a", "b"}, Bind: DefaultBind},
		Limits: []jatah.Limit{
			{Name: "api", Rate: mustRate(t, "5/s"), Fallback: mustFallback(t, "deny")},
			{Name: "login", Rate: mustRate(t, "3/s"), Burst: 7},
			{Name: "extra", Rate: mustRate(t, "4/s"), Mode: mustMode(t, "split")},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEveryFieldHasAVariable(t *testing.T) {
	values := map[string]string{
		"http": "127.0.0.1:1", "node": "n", "state_dir": "d", "limits_dir": "l", "log_refusals": "true", "max_keys": "7", "max_memory": "64MiB", "overflow": "allow", "cluster.name": "c", "cluster.bind": "127.0.0.1:2",
		"cluster.advertise": "127.0.0.1:3", "cluster.join": "a", "cluster.secret": "MDEyMzQ1Njc4OWFiY2RlZg==", "cluster.secrets": "MDEyMzQ1Njc4OWFiY2RlZg==",
		"cluster.secret_file": "s", "cluster.insecure": "true", "cluster.sync_interval": "1s",
		"cluster.ask_timeout": "1s", "cluster.expect": "1", "cluster.grace": "1s",
		"tokens_file": "t", "insecure_admin": "true", "max_connections": "5", "max_connections_per_address": "5",
		"tls.cert_file": "c", "tls.key_file": "k", "tls.client_ca_file": "a", "tls.client_auth": "request", "tls.min_version": "1.3",
		"edge.trusted_proxies": "10.0.0.0/8,loopback", "edge.client_header": "CF-Connecting-IP", "edge.ipv6_prefix": "56",
		"edge.account_header": "X-User", "edge.fail_open": "true",
	}
	for _, f := range nodeFields {
		value, ok := values[f.path]
		if !ok {
			t.Errorf("no value for %s in this test", f.path)
			continue
		}
		l := merge(nil, []string{Variable(f.path) + "=" + value}, nil)
		if len(l.problems) > 0 {
			t.Error(l.problems)
		}
		if reflect.DeepEqual(l.cfg, Config{HTTP: DefaultHTTP}) {
			t.Errorf("%s changes nothing", Variable(f.path))
		}
	}
}

func TestLinksOfAServiceCalledJatahAreNoSettings(t *testing.T) {
	environ := []string{"JATAH_SERVICE_HOST=10.0.0.1", "JATAH_SERVICE_PORT=80", "JATAH_SERVICE_PORT_HTTP=80",
		"JATAH_PORT=tcp://10.0.0.1:80", "JATAH_PORT_80_TCP=tcp://10.0.0.1:80", "JATAH_PORT_80_TCP_ADDR=10.0.0.1",
		"JATAH_HEADLESS_SERVICE_HOST=10.0.0.2", "JATAH_HEADLESS_PORT_7946_UDP_PROTO=udp"}
	if _, err := Merge(nil, environ, nil); err != nil {
		t.Error(err)
	}
}

func TestStateIsKeptBesideTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "jatah.yaml"), "state_dir: state\n")
	for want, flags := range map[string][]Setting{filepath.Join(dir, "state"): nil, "here": {{"--state-dir", "state_dir", "here"}}} {
		cfg, err := Load(file, nil, flags)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Node.StateDir != want {
			t.Errorf("flags %v: %q, want %q", flags, cfg.Node.StateDir, want)
		}
	}
}

func TestSecretFileIsFoundBesideTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	secret := []byte("0123456789abcdef01234567")
	write(t, filepath.Join(dir, "secret"), base64.StdEncoding.EncodeToString(secret)+"\n")
	file := write(t, filepath.Join(dir, "jatah.yaml"), "cluster: {bind: 0.0.0.0:7946, secret_file: secret}\n")
	cfg, err := Load(file, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Node.Secrets) != 1 || !slices.Equal(cfg.Node.Secrets[0], secret) {
		t.Errorf("secret %q", cfg.Node.Secrets)
	}
	host, _ := os.Hostname()
	if cfg.Node.Node != host {
		t.Errorf("node %q, want the host's name %q", cfg.Node.Node, host)
	}

	// A secret of a later layer is the one that counts.
	cfg, err = Load(file, []string{"JATAH_CLUSTER_SECRET=MDEyMzQ1Njc4OWFiY2RlZg=="}, nil)
	if err != nil || string(cfg.Node.Secrets[0]) != "0123456789abcdef" {
		t.Errorf("secret %q, error %v", cfg.Node.Secrets, err)
	}
	other := write(t, filepath.Join(dir, "other"), "MTExMTExMTExMTExMTExMQ==")
	cfg, err = Load(file, []string{"JATAH_CLUSTER_SECRET=MDEyMzQ1Njc4OWFiY2RlZg=="},
		[]Setting{{"--secret-file", "cluster.secret_file", other}})
	if err != nil || string(cfg.Node.Secrets[0]) != "1111111111111111" {
		t.Errorf("secret %q, error %v", cfg.Node.Secrets, err)
	}
}

func TestUnreadableSourcesAreNamed(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "jatah.yaml"), "cluster:\n  secret_file: absent\n")
	_, err := Load(file, nil, nil)
	if want := file + ":2:16: cluster.secret_file: "; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err = Load(filepath.Join(dir, "absent.yaml"), nil, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
	large := write(t, filepath.Join(dir, "large.yaml"), strings.Repeat("#\n", maxFile))
	if _, err = Load(large, nil, nil); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("got %v, want that the file is too large", err)
	}
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustRate(t *testing.T, s string) jatah.Rate {
	t.Helper()
	r, err := jatah.ParseRate(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustMode(t *testing.T, s string) jatah.Mode {
	t.Helper()
	m, err := jatah.ParseMode(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustFallback(t *testing.T, s string) jatah.Fallback {
	t.Helper()
	f, err := jatah.ParseFallback(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
