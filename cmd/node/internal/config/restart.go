package config

import "slices"

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
		{"max_connections", started.MaxConnections == next.MaxConnections},
		{"max_connections_per_address", started.MaxConnectionsPerAddress == next.MaxConnectionsPerAddress},
		{tlsPath, (started.TLS == nil) == (next.TLS == nil)}, // what it is may change, but not whether it is
		{"log_refusals", started.LogRefusals == next.LogRefusals},
		{"max_keys", a.MaxKeys == b.MaxKeys},
		{"max_memory", a.MaxMemory == b.MaxMemory},
		{"overflow", a.Overflow == b.Overflow},
		{"cluster.name", a.Cluster == b.Cluster},
		{"cluster.bind", a.Bind == b.Bind},
		{"cluster.advertise", a.Advertise == b.Advertise},
		{"cluster.join", slices.Equal(a.Join, b.Join)},
		{secretPath, (len(a.Secrets) == 0) == (len(b.Secrets) == 0)}, // others take effect at once
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
