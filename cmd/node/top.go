package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// leastWatch keeps a watch from being a load on all nodes.
const leastWatch = 500 * time.Millisecond

type topView struct {
	Limits []struct {
		Limit   string   `json:"limit"`
		SpanMS  int64    `json:"span_ms"`
		Sample  int64    `json:"sample"`
		Used    []topKey `json:"used"`
		Refused []topKey `json:"refused"`
	} `json:"limits"`
	Answered []string `json:"answered"`
	Missing  []string `json:"missing"`
}

type topKey struct {
	Key          json.RawMessage `json:"key"` // a string or an array of them
	Used         int64           `json:"used"`
	UsedRate     float64         `json:"used_per_second"`
	UsedError    int64           `json:"used_error"`
	Refused      int64           `json:"refused"`
	RefusedRate  float64         `json:"refused_per_second"`
	RefusedError int64           `json:"refused_error"`
}

func top(ctx context.Context, c console, args []string) error {
	flags := newFlags("top", "Shows which keys used most in the last minute, and which were refused most, in the whole cluster.\nCounts of 7+3 are at least 7 and at most 10.")
	var node api
	node.register(flags)
	limit := flags.String("limit", "", "only of this limit; `name`")
	n := flags.Int("n", 10, "keys to show, at most 100; `count`")
	raw := flags.Bool("json", false, "print the answer as it came")
	every := flags.Duration("watch", 0, "show it again each `time`, such as 2s, until interrupted")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	if *every != 0 && *every < leastWatch {
		return usageError{"top", fmt.Errorf("--watch %v is too short: write %v or more", *every, leastWatch)}
	}
	path := "/v1/top?n=" + strconv.Itoa(*n)
	if *limit != "" {
		path += "&limit=" + url.QueryEscape(*limit)
	}
	for {
		if err := node.showTop(ctx, c.out, path, *raw); err != nil {
			if *every > 0 && ctx.Err() != nil {
				return nil // interrupted
			}
			return err
		}
		if *every == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(*every):
			fmt.Fprintln(c.out)
		}
	}
}

func (a *api) showTop(ctx context.Context, w io.Writer, path string, raw bool) error {
	_, answer, err := a.call(ctx, http.MethodGet, path, nil, http.StatusOK)
	if err != nil {
		return err
	}
	if raw {
		fmt.Fprintln(w, strings.TrimSpace(string(answer)))
		return nil
	}
	var v topView
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("the answer of %s does not say who uses most: %w", a.base, err)
	}
	v.print(w)
	return nil
}

func (v *topView) print(w io.Writer) {
	fmt.Fprintf(w, "as %d of %d nodes have counted", len(v.Answered), len(v.Answered)+len(v.Missing))
	if len(v.Missing) > 0 {
		fmt.Fprintf(w, "; no answer from %s", strings.Join(v.Missing, ", "))
	}
	fmt.Fprintln(w)
	quiet := true
	for _, l := range v.Limits {
		if len(l.Used)+len(l.Refused) == 0 {
			continue
		}
		quiet = false
		fmt.Fprintf(w, "\n%s, in the last %v", l.Limit, (time.Duration(l.SpanMS) * time.Millisecond).Round(time.Second))
		if l.Sample > 1 {
			fmt.Fprintf(w, " (at times one in %d counted)", l.Sample)
		}
		fmt.Fprintln(w)
		tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		printTop(tab, "USES MOST", l.Used)
		printTop(tab, "REFUSED MOST", l.Refused)
		tab.Flush()
	}
	if quiet {
		fmt.Fprintln(w, "nothing was used or refused in the last minute")
	}
}

func printTop(w io.Writer, title string, keys []topKey) {
	if len(keys) == 0 {
		return
	}
	fmt.Fprintf(w, "%s\tUSED\tPER SECOND\tREFUSED\tPER SECOND\n", title)
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", showKey(k.Key), counted(k.Used, k.UsedError), perSecond(k.UsedRate), counted(k.Refused, k.RefusedError), perSecond(k.RefusedRate))
	}
}

// counted is a count and how much more it may be.
func counted(n, more int64) string {
	if more == 0 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%d+%d", n, more)
}

func perSecond(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }

// longestKey is how much of a key is shown, in bytes.
const longestKey = 60

// showKey quotes a key: whoever is refused chooses it, and the terminal must not obey it.
func showKey(raw json.RawMessage) string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return quoteKey(one)
	}
	var parts []string
	if json.Unmarshal(raw, &parts) != nil {
		return quoteKey(string(raw))
	}
	for i, p := range parts {
		parts[i] = quoteKey(p)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func quoteKey(s string) string {
	if len(s) > longestKey {
		return strconv.Quote(s[:longestKey]) + "..."
	}
	return strconv.Quote(s)
}
