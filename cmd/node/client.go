package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// askTime bounds one question to a node; a decision takes milliseconds.
const askTime = 10 * time.Second

// api is a running node's HTTP API.
type api struct{ base string }

func (a *api) register(flags *flagSet) {
	flags.StringVar(&a.base, "addr", "http://127.0.0.1:8080", "`address` of a node's HTTP API")
}

// call sends a request, with a body if there is one, and returns the answer's
// body if its status is among those wanted.
func (a *api) call(ctx context.Context, method, path string, body any, want ...int) (int, []byte, error) {
	base := strings.TrimSuffix(a.base, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(data)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, content)
	if err != nil {
		return 0, nil, fmt.Errorf("--addr %s is no address: write it as http://127.0.0.1:8080", a.base)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return 0, nil, fmt.Errorf("no answer from %s: %w; is the node running, and is --addr right?", base, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the answer of %s: %w", base, err)
	}
	for _, status := range want {
		if resp.StatusCode == status {
			return status, answer, nil
		}
	}
	return resp.StatusCode, nil, fmt.Errorf("%s answered %s%s", base, resp.Status, detailOf(answer))
}

// detailOf is what a problem says, as the end of a sentence.
func detailOf(answer []byte) string {
	var problem struct{ Detail string }
	if json.Unmarshal(answer, &problem) != nil || problem.Detail == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(problem.Detail, ".")
}

type decision struct {
	Allowed      bool   `json:"allowed"`
	Limit        string `json:"limit"`
	Key          string `json:"key"`
	Plan         string `json:"plan"` // "": the limit's own amounts, or an override's
	Cost         int64  `json:"cost"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS *int64 `json:"retry_after_ms"` // nil: no wait helps
	ResetAfterMS *int64 `json:"reset_after_ms"`
	DelayMS      int64  `json:"delay_ms"` // allowed, but not before this is over
	Mode         string `json:"mode"`
	Source       string `json:"source"`
	DryRun       bool   `json:"dry_run"`
	Reason       string `json:"reason"`
}

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
	_, answer, err := node.call(ctx, http.MethodPost, "/v1/take", body, http.StatusOK, http.StatusTooManyRequests)
	if err != nil {
		return err
	}
	var d decision
	if err := json.Unmarshal(answer, &d); err != nil {
		return fmt.Errorf("the answer of %s is not a decision: %w", node.base, err)
	}
	if *raw {
		fmt.Fprintln(c.out, strings.TrimSpace(string(answer)))
	} else {
		fmt.Fprintln(c.out, d.sentence())
	}
	if !d.Allowed {
		return errDenied
	}
	return nil
}

func (d decision) sentence() string {
	var b strings.Builder
	word := "denied"
	if d.Allowed {
		word = "allowed"
	}
	fmt.Fprintf(&b, "%s: %s %s", word, d.Limit, d.Key)
	if d.Plan != "" {
		b.WriteString(" as " + d.Plan)
	}
	fmt.Fprintf(&b, ", cost %d; %d left", d.Cost, d.Remaining)
	if d.DelayMS > 0 {
		fmt.Fprintf(&b, ", go on in %v", millis(d.DelayMS))
	}
	switch {
	case d.Allowed && d.ResetAfterMS != nil && *d.ResetAfterMS > 0:
		fmt.Fprintf(&b, ", full in %v", millis(*d.ResetAfterMS))
	case !d.Allowed && d.RetryAfterMS != nil:
		fmt.Fprintf(&b, ", retry in %v", millis(*d.RetryAfterMS))
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

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

type clusterView struct {
	Node    string  `json:"node"`
	Ready   bool    `json:"ready"`
	Reason  string  `json:"reason"`
	K       int     `json:"k"`
	Weight  float64 `json:"weight"`
	GraceMS *int64  `json:"grace_ms"`
	Members []struct {
		Name       string  `json:"name"`
		Addr       string  `json:"addr"`
		HTTP       string  `json:"http"`
		Version    string  `json:"version"`
		State      string  `json:"state"`
		Since      string  `json:"since"`
		Partitions int     `json:"partitions"`
		Share      float64 `json:"share"`
		Self       bool    `json:"self"`
	} `json:"members"`
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
	var v clusterView
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("the answer of %s is not a view of the cluster: %w", node.base, err)
	}
	v.print(c.out)
	return nil
}

func (v clusterView) print(w io.Writer) {
	grace := "never"
	if v.GraceMS != nil {
		grace = millis(*v.GraceMS).String()
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
		if m.Since != "" && m.State != "alive" {
			state += " since " + m.Since
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
	fmt.Fprintf(c.out, "forgot %s\n", name)
	return nil
}
