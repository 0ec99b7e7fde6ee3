package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/dashboard"
	"github.com/jatah-io/jatah/httpapi/edge"
	"github.com/jatah-io/jatah/httpapi/metrics"
)

// How the 10 seconds that a stop may take are spent; the sum leaves one over.
const (
	// noticeTime is how long the node still decides after /readyz has turned to
	// 503 and connections are no longer kept: a balancer that looks meanwhile
	// sends nothing more here, so that nobody is refused a connection.
	noticeTime = 500 * time.Millisecond
	// drainTime is for requests that are running.
	drainTime = 3 * time.Second
	// leaveTime is for handing off what the node owns, and for leaving.
	leaveTime = 5500 * time.Millisecond
)

// switches says what the flags do that are given without a value.
var switches = map[string]string{
	"cluster.insecure": "do without a secret on a port that is open to the network",
	"insecure_admin":   "without tokens_file: let whoever reaches the address do everything",
	"log_refusals":     "log who is refused, for each limit at most one line a second",
}

// purposes says what the flags are for of which the configuration says only how their value is written, and what counts without them.
var purposes = map[string]string{
	"http":                  "where the HTTP API and the dashboard are, such as " + config.DefaultHTTP + ", which is the default",
	"node":                  "a name that no other node of the cluster has, such as n1 (default the host name)",
	"cluster.name":          "the cluster's name: a node joins no other (default jatah)",
	"cluster.bind":          "where the other nodes reach this one, by UDP and TCP, such as " + config.DefaultBind + ", which is the default where any flag says something of a cluster",
	"cluster.sync_interval": "how often nodes tell each other what they used; the same on all (default 100ms)",
	"cluster.ask_timeout":   "how long a decision waits for the owner of its key (default 50ms)",
	"cluster.grace":         "how long the share of a node that failed is kept for it: a duration or never (default 60s)",
	"tls.client_auth":       "what clients must show if there is --tls-client-ca: a certificate (require), or a good one or none (request)",
	"tls.min_version":       "the least version of TLS: 1.2 or 1.3",
}

// settings collects the flags of serve that are fields of the configuration.
type settings struct{ given []config.Setting }

// add records one use of a flag. Uses of a list are joined into one value;
// limits stay apart, so that one of them given twice is noticed.
func (s *settings) add(f config.Flag, value string) error {
	if f.List && f.Name != "limit" {
		for i := range s.given {
			if s.given[i].Field == f.Path {
				s.given[i].Value += "," + value
				return nil
			}
		}
	}
	s.given = append(s.given, config.Setting{Flag: "--" + f.Name, Field: f.Path, Value: value})
	return nil
}

func (s *settings) register(flags *flagSet) {
	for _, f := range config.Flags() {
		usage := cmp.Or(purposes[f.Path], f.Want)
		if f.List {
			usage += "; may be repeated"
		}
		if f.Bool {
			flags.BoolFunc(f.Name, switches[f.Path], func(v string) error { return s.add(f, v) })
			continue
		}
		flags.Func(f.Name, usage, func(v string) error { return s.add(f, v) })
	}
}

func serve(ctx context.Context, c console, args []string) error {
	flags := newFlags("serve", "Runs one node. Flags beat the environment (JATAH_HTTP, JATAH_CLUSTER_BIND, ...), which\n"+
		"beats the file. A node that is told nothing about a cluster is alone. Limits that change in the file\n"+
		"or in limits_dir count at once, and after SIGHUP.")
	var given settings
	given.register(flags)
	path := flags.String("config", "", "configuration `file`")
	level := slog.LevelInfo
	flags.TextVar(&level, "log-level", level, "least `level` that is logged: debug, info, warn or error")
	format := flags.String("log-format", "text", "text or json")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	log, err := newLogger(c.err, *format, level)
	if err != nil {
		return usageError{"serve", err}
	}
	sources := config.Read(*path, c.environ, given.given)
	cfg, err := sources.Config()
	if err != nil {
		return err
	}
	return runUntilTogether(ctx, sources, cfg, log)
}

// runUntilTogether is runNode, again when the node began apart from an older cluster that it has met: now it knows where to find it. It goes on with the
// configuration that counted last: that of the start may have tokens, secrets and certificates that were replaced since.
func runUntilTogether(ctx context.Context, sources *config.Sources, cfg config.Config, log *slog.Logger) error {
	var last atomic.Pointer[config.Config]
	var met []string
	for {
		err := runNode(ctx, sources, cfg, met, &last, log)
		var apart *jatah.ApartError
		if !errors.As(err, &apart) || ctx.Err() != nil {
			return err
		}
		log.Warn("starting again, to join the cluster that was there before", "member", apart.Node, "address", apart.Addr)
		if taken := last.Load(); taken != nil {
			cfg = *taken
		}
		if !slices.Contains(met, apart.Addr) {
			met = append(met, apart.Addr)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(againTime):
		}
	}
}

// againTime is for who asks to find this node gone, and for the address to be free.
const againTime = 200 * time.Millisecond

func newLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q is neither text nor json", format)
}

// runNode serves until ctx ends or serving fails. met are seeds beside those of cfg: the node joins those that it has met before, too; they are no part of
// what it was told, with which a reload compares. What it takes over from changed files is left in last.
func runNode(ctx context.Context, sources *config.Sources, cfg config.Config, met []string, last *atomic.Pointer[config.Config], log *slog.Logger) error {
	hangup := hangups(sources)
	defer signal.Stop(hangup)
	started := cfg
	cfg.Node.Join = slices.Concat(cfg.Node.Join, met)
	bare, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return bindError(err, cfg.HTTP, "--http, JATAH_HTTP or http in the file")
	}
	ln := httpapi.NewListener(bare, cfg.MaxConnections, cfg.MaxConnectionsPerAddress, log)
	g := &gate{}
	srv := httpapi.NewServer(g, log)
	var certs *certificates
	if cfg.TLS != nil {
		certs = newCertificates(cfg.TLS, log)
		srv.TLSConfig = certs.config()
	}
	failed := make(chan error, 1)
	go func() { failed <- serveOn(srv, ln) }()
	defer srv.Close()
	log.Info("answering HTTP", "http", ln.Addr().String(), "tls", cfg.TLS != nil)
	advise(cfg, log)

	cfg.Node.HTTP, cfg.Node.Version, cfg.Node.Logger = ln.Addr().String(), readVersion().short(), log
	node, err := startNode(ctx, cfg)
	switch {
	case err != nil && ctx.Err() != nil:
		log.Info("stopped before the node had joined")
		return nil
	case err != nil:
		return err
	}
	limitMemory(cfg.Node.MaxMemory, log)
	reload := newReloader(node, sources, started, log)
	reload.taken = func(next config.Config) { last.Store(&next) }
	var api *httpapi.Handler
	ofEdge := metrics.NewEdgeCollector(func() *edge.Edge { return api.Edge() }) // scraped through api only
	collectors := []prometheus.Collector{reload.counters, ofEdge, newAccessMetrics(ln, func() *httpapi.Handler { return api })}
	if certs != nil {
		collectors = append(collectors, certs)
		reload.parts = append(reload.parts, certs.prepare)
		reminding, stop := context.WithCancel(ctx)
		defer stop()
		go certs.run(reminding)
	}
	page := dashboard.New(node)
	defer page.Close()
	srv.RegisterOnShutdown(page.Close) // its streams would keep the server
	api = httpapi.New(node, httpapi.Config{Dashboard: page, Metrics: metrics.Handler(node, cfg.Node.Version, collectors...), Logger: log,
		LogRefusals: cfg.LogRefusals, Access: cfg.Access()})
	rules := edgePart{api: api, node: node, log: log, logRefusals: cfg.LogRefusals}
	if err := rules.set(cfg.Edge); err != nil {
		return errors.Join(err, node.Close())
	}
	access := accessPart{api: api, log: log}
	reload.parts = append(reload.parts, rules.prepare, access.prepare, changeSecrets(node, log))
	defer reload.start(ctx, hangup)()
	g.open(api)
	log.Info("joined", "node", node.Name(), "cluster", cmp.Or(node.Addr(), "none"), "limits", len(cfg.Limits))
	if err := waitReady(ctx, node); err != nil {
		return errors.Join(err, node.Close())
	} else if ctx.Err() == nil && node.Err() == nil {
		log.Info("ready", "node", node.Name(), "http", ln.Addr().String())
	}

	select {
	case <-node.Down():
		return errors.Join(node.Err(), node.Close())
	case err := <-failed:
		return errors.Join(fmt.Errorf("serving HTTP on %s: %w", ln.Addr(), err), node.Close())
	case <-ctx.Done():
		return stop(node, g, srv, log)
	}
}

// serveOn answers until the server is closed.
func serveOn(srv *http.Server, ln net.Listener) error {
	if srv.TLSConfig != nil {
		return srv.ServeTLS(ln, "", "")
	}
	return srv.Serve(ln)
}

// waitReady returns when the node is ready, has gone down, or ctx has ended.
func waitReady(ctx context.Context, node *jatah.Node) error {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-node.Down():
			cancel()
		case <-wait.Done():
		}
	}()
	if err := node.Wait(wait); err != nil && wait.Err() == nil {
		return err
	}
	return nil
}

// startNode joins the cluster and defines the limits. It does not wait until
// the node has settled: as an owner it needs the limits as soon as others ask.
func startNode(ctx context.Context, cfg config.Config) (*jatah.Node, error) {
	node, err := jatah.Open(ctx, cfg.Node)
	if err != nil {
		return nil, bindError(err, cfg.Node.Bind, "--bind, JATAH_CLUSTER_BIND or bind under cluster in the file")
	}
	if err := node.SetLimits(cfg.Limits...); err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return node, nil
}

// bindError says of an address that cannot be had which setting to change.
func bindError(err error, address, setting string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("cannot listen on %s: another process does; stop it or choose another address with %s", address, setting)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("cannot listen on %s: this machine has no such address; choose another with %s", address, setting)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("cannot listen on %s: not permitted; choose a port from 1024 up with %s", address, setting)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "listen" {
		return fmt.Errorf("cannot listen on %s: %w; choose another address with %s", address, op.Err, setting)
	}
	return err
}

// stop tells the balancers, lets running requests finish, and leaves.
func stop(node *jatah.Node, g *gate, srv *http.Server, log *slog.Logger) error {
	log.Info("stopping: /readyz says 503")
	g.leave()
	srv.SetKeepAlivesEnabled(false)
	time.Sleep(noticeTime)

	drain, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		log.Warn("requests were cut off", "after", drainTime, "error", err)
		srv.Close()
	}
	leave, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := node.Shutdown(leave); err != nil {
		// The members will notice that it is gone, and nothing is admitted
		// twice for it; the service manager asked for an orderly end and got one.
		log.Warn("stopped without all that was used being handed over or written down", "error", err)
	}
	log.Info("stopped")
	return nil
}

func check(_ context.Context, c console, args []string) error {
	flags := newFlags("check", "Reads a configuration file, limits_dir and the environment as serve would, and says what is wrong\nor what it amounts to. What may still go wrong with it jatah doctor --config FILE says.")
	if err := flags.parse(c, args, 1); err != nil {
		return err
	}
	path := flags.Arg(0)
	sources := config.Read(path, c.environ, nil)
	cfg, err := sources.Config()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s: ok\n", path)
	fmt.Fprintf(c.out, "node %s, HTTP on %s, %s\n", cfg.Node.Node, cfg.HTTP, describeCluster(cfg))
	describeAccess(c.out, cfg)
	if files := sources.LimitFiles(); cfg.LimitsDir != "" {
		fmt.Fprintf(c.out, "limits also from %s: %s\n", cfg.LimitsDir, cmp.Or(strings.Join(files, ", "), "no files yet"))
	}
	if len(cfg.Limits) == 0 {
		fmt.Fprintln(c.out, "no limits: every take will be answered with 404 until one is defined")
	}
	for _, l := range cfg.Limits {
		fmt.Fprintf(c.out, "limit %s: %s\n", l.Name, describeLimit(l))
		for _, line := range describeParts(l) {
			fmt.Fprintf(c.out, "  %s\n", line)
		}
	}
	return checkEdge(c.out, cfg)
}

func describeCluster(cfg config.Config) string {
	if cfg.Node.Bind == "" {
		return "alone, without a cluster"
	}
	text := "cluster on " + cfg.Node.Bind
	if len(cfg.Node.Join) > 0 {
		text += ", joins " + strings.Join(cfg.Node.Join, " ")
	}
	switch n := len(cfg.Node.Secrets); {
	case n == 1:
		return text + ", encrypted"
	case n > 1:
		return fmt.Sprintf("%s, encrypted, %d secrets accepted", text, n)
	}
	return text + ", not encrypted"
}
