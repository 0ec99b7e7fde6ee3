package main

import (
	"bytes"
	"log/slog"
	"slices"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

// changeSecrets is the part of a reload that gives a node other secrets. Beginning or ceasing to encrypt takes a restart.
func changeSecrets(node *jatah.Node, log *slog.Logger) part {
	var now [][]byte // taken last; nil: what the node was started with
	return func(next config.Config) (func(), error) {
		secrets := next.Node.Secrets
		if len(secrets) == 0 || next.Node.Bind == "" || slices.EqualFunc(now, secrets, bytes.Equal) {
			return func() {}, nil
		}
		return func() {
			if err := node.SetSecrets(secrets...); err != nil {
				log.Error("the secrets stay as they were", "error", err)
				return
			}
			now = secrets
		}, nil
	}
}
