package config

import (
	"bytes"
	"slices"
)

// NeedRestart names the fields in which next differs from what a node was started with and that it cannot change while it runs.
func NeedRestart(started, next Config) (fields []string) {
	a, b := started.Node, next.Node
	for _, f := range []struct {
		path string
		same bool
	}{
		{"http", started.HTTP == next.HTTP},
		{"node", a.Node == b.Node},
		{"state_dir", a.StateDir == b.StateDir},
		{"log_refusals", started.LogRefusals == next.LogRefusals},
		{"max_keys", a.MaxKeys == b.MaxKeys},
		{"max_memory", a.MaxMemory == b.MaxMemory},
		{"overflow", a.Overflow == b.Overflow},
		{"cluster.name", a.Cluster == b.Cluster},
		{"cluster.bind", a.Bind == b.Bind},
		{"cluster.advertise", a.Advertise == b.Advertise},
		{"cluster.join", slices.Equal(a.Join, b.Join)},
		{secretPath, bytes.Equal(a.Secret, b.Secret)},
		{"cluster.insecure", a.Insecure == b.Insecure},
		{"cluster.sync_interval", a.SyncInterval == b.SyncInterval},
		{"cluster.ask_timeout", a.AskTimeout == b.AskTimeout},
		{"cluster.expect", a.Expect == b.Expect},
		{"cluster.grace", a.Grace == b.Grace},
	} {
		if !f.same {
			fields = append(fields, f.path)
		}
	}
	return fields
}
