package main

import (
	"context"
	"errors"
	"log/slog"
	"reflect"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi"
)

// edgePart keeps the rules of forward auth as the configuration has them. It is used by one goroutine.
type edgePart struct {
	api  *httpapi.Handler
	node *jatah.Node
	log  *slog.Logger

	logRefusals bool
	now         *config.Edge // by which the API decides; nil: by none
}

// set makes an edge that decides from now on. With an error all stays as it was.
func (p *edgePart) set(e *config.Edge) error {
	if e == nil {
		p.now = nil
		return p.api.SetEdge(nil)
	}
	made, err := e.Open(p.node, p.api.Edge(), p.log, p.logRefusals)
	if err == nil {
		err = p.api.SetEdge(made)
	}
	if err == nil {
		p.now = e
	}
	return err
}

// prepare refuses a configuration whose edge cannot be made, and changes nothing; else it returns what makes the change, to be
// called when the node has the limits of that configuration. Growing pauses and counters go on in rules that keep their name;
// those of candidates begin anew. What was used of limits is not the edge's, and stays.
func (p *edgePart) prepare(next config.Config) (change func(), err error) {
	if err := tryEdge(next, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	return func() {
		if reflect.DeepEqual(p.now, next.Edge) {
			return
		}
		if err := p.set(next.Edge); err != nil { // it could be made a moment ago, of the same limits
			p.log.Error("the rules of the edge stay as they were", "error", err)
			return
		}
		p.log.Info("the rules of the edge were replaced")
	}, nil
}

// tryEdge makes the edge of a configuration on a node of its own without a network, which has all limits of that configuration, and
// throws both away. log gets what making it warns of.
func tryEdge(cfg config.Config, log *slog.Logger) error {
	if cfg.Edge == nil {
		return nil
	}
	alone := config.Config{Limits: cfg.Limits}
	alone.Node.Logger = slog.New(slog.DiscardHandler)
	node, err := startNode(context.Background(), alone)
	if err != nil {
		return err
	}
	made, err := cfg.Edge.Open(node, nil, log, false)
	if err == nil {
		err = made.Ahead()
	}
	return errors.Join(err, node.Close())
}
