package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi/client"
)

// askTime bounds one question to a node; a decision takes milliseconds.
const askTime = 10 * time.Second

// api is a running node's HTTP API, and what it wants of those who ask it.
type api struct {
	base                     string
	given                    bool // base was said, by flag or environment
	tokenFile, ca, cert, key string
	token                    string // has no flag: flags can be read by every user of the machine

	client *client.Client // made by the first call
}

const defaultAddr = "http://127.0.0.1:8080"

// register adds the flags. What they do not say the environment does, when they are parsed.
func (a *api) register(flags *flagSet) {
	flags.StringVar(&a.base, "addr", "", "`address` of a node's HTTP API, such as https://n1:8443; or JATAH_ADDR (default "+defaultAddr+")")
	flags.StringVar(&a.tokenFile, "token-file", "", "a `file` with the token to send; or JATAH_TOKEN_FILE, or the token itself in JATAH_TOKEN")
	flags.StringVar(&a.ca, "ca", "", "a `file` with the authorities of the node's certificate, in PEM; or JATAH_CA (default those of the system)")
	flags.StringVar(&a.cert, "cert", "", "a `file` with the certificate to show, in PEM; or JATAH_CERT")
	flags.StringVar(&a.key, "key", "", "a `file` with its key; or JATAH_KEY")
	flags.parsed = append(flags.parsed, a.complete)
}

// complete takes from the environment what no flag says.
func (a *api) complete(environ []string) {
	flagged := a.tokenFile != ""
	for _, one := range []struct {
		name string
		to   *string
	}{
		{config.ClientAddr, &a.base}, {config.ClientTokenFile, &a.tokenFile}, {config.ClientCA, &a.ca},
		{config.ClientCert, &a.cert}, {config.ClientKey, &a.key}, {config.ClientToken, &a.token},
	} {
		for _, entry := range environ {
			if value, ok := strings.CutPrefix(entry, one.name+"="); ok && *one.to == "" {
				*one.to = value
			}
		}
	}
	if a.given = a.base != ""; !a.given {
		a.base = defaultAddr
	}
	if flagged {
		a.token = ""
	}
}

// dial makes the client.
func (a *api) dial() (err error) {
	if a.client != nil {
		return nil
	}
	a.client, err = client.New(client.Config{
		Addrs: []string{a.base}, Timeout: askTime, Retry: client.Retry{Attempts: 1},
		Token: a.token, TokenFile: a.tokenFile, CAFile: a.ca, CertFile: a.cert, KeyFile: a.key,
	})
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), client.ErrConfig.Error()+": ")
	for _, words := range [][2]string{
		{"Token and TokenFile are both there", "JATAH_TOKEN and JATAH_TOKEN_FILE are both there"}, {"Addrs: ", "--addr: "}, {"TokenFile: ", "--token-file: "}, {"Token ", "JATAH_TOKEN "},
		{"CAFile: ", "--ca: "}, {"CertFile and KeyFile: ", "--cert and --key: "},
	} {
		if rest, ok := strings.CutPrefix(text, words[0]); ok {
			text = words[1] + rest
			break
		}
	}
	return errors.New(text)
}

// call sends a request, once, with a body if there is one, and returns the answer's
// body if its status is among those wanted.
func (a *api) call(ctx context.Context, method, path string, body any, want ...int) (int, []byte, error) {
	if err := a.dial(); err != nil {
		return 0, nil, err
	}
	r, err := a.client.Do(ctx, method, path, body)
	var p *client.Problem
	switch {
	case errors.As(err, &p):
		return p.Status, nil, a.advise(p)
	case err != nil:
		return 0, nil, a.unanswered(err)
	case !slices.Contains(want, r.Status):
		return r.Status, nil, fmt.Errorf("%s answered %d %s", r.Addr, r.Status, http.StatusText(r.Status))
	}
	return r.Status, r.Body, nil
}

// advise says which flag helps where the node did not let somebody in.
func (a *api) advise(p *client.Problem) error {
	err := plain(p)
	switch {
	case p.Status == http.StatusUnauthorized && a.token == "" && a.tokenFile == "":
		return fmt.Errorf("%w; name a file with a token by --token-file or JATAH_TOKEN_FILE", err)
	case p.Status == http.StatusBadRequest && strings.HasPrefix(p.Detail, "Client sent an HTTP request to an HTTPS server"):
		return fmt.Errorf("%s answers by TLS only: write https:// in --addr", a.base)
	}
	return err
}

// answered is an error of somebody who is there, and whom only something that is missing or wrong here kept from an answer.
type answered struct{ error }

// unanswered says what may be the reason why there was no answer.
func (a *api) unanswered(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	switch text := err.Error(); {
	case errors.As(err, &unknown):
		return answered{fmt.Errorf("%w; name a file with the authority that signed it by --ca", plain(err))}
	case errors.As(err, &name):
		return answered{fmt.Errorf("%w; ask by a name that the certificate has", plain(err))}
	case errors.As(err, &record), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return answered{fmt.Errorf("%s does not answer by TLS: write http:// in --addr", a.base)}
	case strings.Contains(text, "client conn could not be established"), // what net/http makes of it where the node has closed before it was asked,
		strings.HasPrefix(a.base, "https://") && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)): // or while it was
		return answered{fmt.Errorf("%w; if the node wants a certificate of those who ask (client_ca_file), name one by --cert and --key", plain(err))}
	case strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"), strings.Contains(text, "unknown certificate authority"):
		return answered{fmt.Errorf("%w; the node wants a certificate that its client_ca_file has signed: name it by --cert and --key", plain(err))}
	}
	return fmt.Errorf("%w; is the node running, and is --addr right?", plain(err))
}

// plain is an error of the client for who has not called a package.
func plain(err error) error { return errors.New(strings.ReplaceAll(err.Error(), "client: ", "")) }

func take(ctx context.Context, c console, args []string) error {
	flags := newFlags("take", "Asks a node whether KEY may have COST tokens of LIMIT, and takes them if so.\nEnds with 0 if allowed, 3 if denied.")
	var node api
	node.register(flags)
	cost := flags.Int64("cost", 1, "tokens to take, 0 to look; `count`")
	plan := flags.String("plan", "", "the plan of the limit that the key has, such as pro; `name`")
	raw := flags.Bool("json", false, "print the answer as it came")
	if err := flags.parse(c, args, 2); err != nil {
		return err
	}
	body := map[string]any{"limit": flags.Arg(0), "key": flags.Arg(1), "cost": *cost}
	if *plan != "" {
		body["plan"] = *plan
	}
	// 503 with a decision is a denial by fallback; one without is an error of the call.
	_, answer, err := node.call(ctx, http.MethodPost, "/v1/take", body, http.StatusOK, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	if err != nil {
		return err
	}
	var d client.Decision
	if err := json.Unmarshal(answer, &d); err != nil {
		return fmt.Errorf("the answer of %s is not a decision: %w", node.base, err)
	}
	if *raw {
		fmt.Fprintln(c.out, strings.TrimSpace(string(answer)))
	} else {
		fmt.Fprintln(c.out, sentence(d))
	}
	if !d.Allowed {
		return errDenied
	}
	return nil
}

func sentence(d client.Decision) string {
	var b strings.Builder
	word := "denied"
	if d.Allowed {
		word = "allowed"
	}
	fmt.Fprintf(&b, "%s: %s %s", word, d.Limit, strings.Join(d.Key, " "))
	if d.Plan != "" {
		b.WriteString(" as " + d.Plan)
	}
	fmt.Fprintf(&b, ", cost %d; %d left", d.Cost, d.Remaining)
	if d.Delay > 0 {
		fmt.Fprintf(&b, ", go on in %v", d.Delay)
	}
	switch {
	case d.Allowed && d.ResetAfter > 0 && d.ResetAfter != client.Never:
		fmt.Fprintf(&b, ", full in %v", d.ResetAfter)
	case !d.Allowed && d.RetryAfter != client.Never:
		fmt.Fprintf(&b, ", retry in %v", d.RetryAfter)
	case !d.Allowed:
		b.WriteString(", no wait helps")
		if d.Reason != "" {
			b.WriteString(": " + d.Reason)
		}
	}
	fmt.Fprintf(&b, " (%s, decided by %s)", d.Mode, d.Source)
	if d.DryRun {
		b.WriteString(" (dry run: it would be denied)")
	}
	return b.String()
}

func cluster(ctx context.Context, c console, args []string) error {
	flags := newFlags("cluster", "Shows the members, what they own and what share of each limit they hold, as one node sees it.")
	var node api
	node.register(flags)
	raw := flags.Bool("json", false, "print the answer as it came")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	_, answer, err := node.call(ctx, http.MethodGet, "/v1/cluster", nil, http.StatusOK)
	if err != nil {
		return err
	}
	if *raw {
		fmt.Fprintln(c.out, strings.TrimSpace(string(answer)))
		return nil
	}
	var v client.Cluster
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("the answer of %s is not a view of the cluster: %w", node.base, err)
	}
	printCluster(c.out, v)
	return nil
}

func printCluster(w io.Writer, v client.Cluster) {
	grace := "never"
	if v.Grace != client.Never {
		grace = v.Grace.String()
	}
	state := "ready"
	if !v.Ready {
		state = "not ready: " + v.Reason
	}
	fmt.Fprintf(w, "as %s sees it (%s): %d members counted, its share of every limit %.1f %%, grace %s\n\n", v.Node, state, v.K, 100*v.Weight, grace)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "NODE\tSTATE\tCLUSTER\tHTTP\tPARTITIONS\tSHARE\tVERSION")
	for _, m := range v.Members {
		name, state := m.Name, m.State
		if m.Self {
			name += " *"
		}
		if !m.Since.IsZero() && m.State != "alive" {
			state += " since " + m.Since.Format(time.RFC3339)
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%d\t%.1f %%\t%s\n", name, state, m.Addr, m.HTTP, m.Partitions, 100*m.Share, m.Version)
	}
	tab.Flush()
}

func forget(ctx context.Context, c console, args []string) error {
	flags := newFlags("forget", "Tells the cluster that a failed member will not come back, so that its share of every\nlimit goes to the others now and not when grace has passed. Only do so when it is gone.")
	var node api
	node.register(flags)
	if err := flags.parse(c, args, 1); err != nil {
		return err
	}
	name := flags.Arg(0)
	_, _, err := node.call(ctx, http.MethodPost, "/v1/forget?node="+url.QueryEscape(name), nil, http.StatusOK, http.StatusNoContent)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "forgot %s; the others have its share in about two seconds\n", name)
	return nil
}
