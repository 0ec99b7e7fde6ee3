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
	"os"
	"strings"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
)

// maxDefinition bounds the file of one limit; a node takes less.
const maxDefinition = 1 << 20

func limits(ctx context.Context, c console, args []string) error {
	flags := newFlags("limits", "Shows the limits of a node, or changes one on all nodes of its cluster.\nA limit that a node's own file defines is changed there.")
	var node api
	node.register(flags)
	file := flags.String("put", "", "define or change the limit in this `file`, with the fields that it has under limits: in a configuration, as YAML or JSON; - for standard input")
	name := flags.String("delete", "", "remove the limit of this `name`")
	raw := flags.Bool("json", false, "print the answer as it came")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	switch {
	case *file != "" && *name != "":
		return usageError{flags.cmd.name, errors.New("--put and --delete are both there: give one of them")}
	case *file != "":
		return node.putLimit(ctx, c, *file, *raw)
	case *name != "":
		if _, _, err := node.call(ctx, http.MethodDelete, limitPath(*name), nil, http.StatusNoContent); err != nil {
			return err
		}
		fmt.Fprintf(c.out, "removed %s on all nodes that can be reached; the others hear of it when they can be\n", *name)
		return nil
	}
	_, answer, err := node.call(ctx, http.MethodGet, "/v1/limits", nil, http.StatusOK)
	if err != nil {
		return err
	}
	if *raw {
		fmt.Fprintln(c.out, strings.TrimSpace(string(answer)))
		return nil
	}
	var list struct{ Limits []limitView }
	if err := json.Unmarshal(answer, &list); err != nil {
		return fmt.Errorf("the answer of %s is no list of limits: %w", node.base, err)
	}
	printLimits(c.out, list.Limits)
	return nil
}

func limitPath(name string) string { return "/v1/limits/" + url.PathEscape(name) }

// putLimit sends the limit in a file. What is wrong with it the node says, in the words of the configuration.
func (a *api) putLimit(ctx context.Context, c console, file string, raw bool) error {
	body, name, err := readDefinition(file)
	if err != nil {
		return err
	}
	status, answer, err := a.call(ctx, http.MethodPut, limitPath(name), json.RawMessage(body), http.StatusOK, http.StatusCreated)
	switch {
	case err != nil:
		return err
	case raw:
		fmt.Fprintln(c.out, strings.TrimSpace(string(answer)))
	case status == http.StatusCreated:
		fmt.Fprintf(c.out, "defined %s on all nodes that can be reached; the others hear of it when they can be\n", name)
	default:
		fmt.Fprintf(c.out, "changed %s on all nodes that can be reached; the others hear of it when they can be\n", name)
	}
	return nil
}

// readDefinition reads a limit as JSON, and its name.
func readDefinition(file string) (body []byte, name string, err error) {
	in := os.Stdin
	if file != "-" {
		if in, err = os.Open(file); err != nil {
			return nil, "", err
		}
		defer in.Close()
	}
	data, err := io.ReadAll(io.LimitReader(in, maxDefinition+1))
	switch {
	case err != nil:
		return nil, "", err
	case len(data) > maxDefinition:
		return nil, "", fmt.Errorf("%s is larger than 1 MiB: it is to hold one limit", file)
	}
	if body = bytes.TrimSpace(data); !json.Valid(body) { // as it is, so that what is wrong with it is told as it stands
		if body, err = yaml.YAMLToJSON(data); err != nil {
			return nil, "", fmt.Errorf("%s is neither YAML nor JSON: %w", file, err)
		}
	}
	var named struct {
		Name   string          `json:"name"`
		Limits json.RawMessage `json:"limits"`
	}
	switch err := json.Unmarshal(body, &named); {
	case named.Limits != nil:
		return nil, "", fmt.Errorf("%s is a configuration; give a file with the fields of one limit, without `limits:` and the dash", file)
	case err != nil || named.Name == "":
		return nil, "", fmt.Errorf("%s has no name: add `name: ` with that of the limit", file)
	}
	return body, named.Name, nil
}

// limitView is what is shown of a limit.
type limitView struct {
	Name, Rate, Algorithm, Origin, Parent string
	Rates                                 []string
	Burst, Max                            int64
}

func printLimits(w io.Writer, all []limitView) {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "NAME\tRATE\tBURST\tALGORITHM\tPARENT\tDEFINED BY")
	for _, l := range all {
		rate, burst := l.Rate, "-"
		if len(l.Rates) > 0 {
			rate = strings.Join(l.Rates, " + ")
		}
		if l.Max > 0 {
			rate = fmt.Sprintf("max %d", l.Max)
		}
		if l.Burst > 0 {
			burst = fmt.Sprint(l.Burst)
		}
		parent, by := "-", "this node's file or flags"
		if l.Parent != "" {
			parent = l.Parent
		}
		if l.Origin == "api" {
			by = "the API, on all nodes"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, rate, burst, l.Algorithm, parent, by)
	}
	tab.Flush()
}
