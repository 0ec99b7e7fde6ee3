package jatah

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/hybrid"
	"github.com/jatah-io/jatah/ring"
)

// Config of a node. The zero value is one node without a network. Start copies it.
type Config struct {
	// Node is this node's name, unique in the cluster. Default: the host's name.
	Node string

	// Bind is "host:port" for the cluster's traffic, TCP and UDP. Empty, without Transport: no network.
	Bind string
	// Advertise is the address that others reach this node at. Default: the one bound to.
	Advertise string
	// Join lists seeds: "host:port", host names with many addresses, "dns+srv://_service._proto.name".
	Join []string
	// Cluster labels the traffic; nodes of other clusters are ignored. Default "jatah".
	Cluster string
	// Secrets encrypt it: 16, 24 or 32 random bytes each. The first is used, all are accepted, so that they can be changed one node at a time: see
	// Node.SetSecrets. Needed beyond loopback, unless Insecure. Where a key belongs follows from the secret that a cluster began with, so
	// nobody without it can aim keys at one node.
	Secrets [][]byte
	// Secret is a list of one. Give one of the two.
	Secret   []byte
	Insecure bool
	// Profile says how patient the failure detector is: "local", "lan" or "wan". Default: by Bind.
	Profile string
	// PacketSize is the largest UDP payload, 1000 to 65000 bytes. Default 1400.
	PacketSize int

	// SyncInterval is the time between two reports to the owners. Default 100 ms; the same on all nodes.
	SyncInterval time.Duration
	// AskTimeout is the longest that a decision waits for an owner. Default 50 ms.
	AskTimeout time.Duration
	// Settle is how long a change of membership needs to reach everybody. Default 2 s.
	Settle time.Duration
	// Grace is how long a failed member's share stays reserved. Default 60 s, or Never.
	Grace time.Duration
	// Expect is the number of nodes that the cluster is meant to have, if known. Shares are at most 1/Expect.
	Expect int

	// MaxKeys bounds the keys that are used at this node and not full, over all limits, and apart from those the keys that it owns for the cluster.
	// Default 1 Mi; where MaxMemory is set, none.
	MaxKeys int
	// MaxMemory bounds the memory of keys, in bytes: tables with their index, accounts, ledgers, copies for others, meters, permits. At least
	// MinMemory; 0: no bound. The process takes more: see docs/memory.md.
	MaxMemory int64
	// Overflow says what a new key gets when there is no room for it. The zero value is OverflowDeny. The same on all nodes.
	Overflow Overflow

	// StateDir is a directory that only this node's processes write to, in files named after Node: what was used, and published limits, survive a stop of
	// the whole cluster, so set it for quotas of hours and more, on every node. Empty: nothing is kept. It is made if it does not exist.
	StateDir string
	// StateInterval is how often the file is written while the node runs; a crash of all nodes at once forgets what was used
	// since. Default 5 s, at least 100 ms.
	StateInterval time.Duration

	// HTTP is the address of this node's HTTP API and Version its version, as told to the other members.
	HTTP, Version string

	// Logger gets log lines. Default: slog.Default().
	Logger *slog.Logger
	// Transport replaces sockets; cluster/simnet has one in memory. Nil: sockets.
	Transport memberlist.Transport
	// Resolver looks up the names in Join. Default net.DefaultResolver.
	Resolver cluster.Resolver

	protocol uint8 // see cluster.Config.Protocol
}

// alone says that the configuration is for one node without a network.
func (c Config) alone() bool { return c.Bind == "" && c.Transport == nil }

func (c Config) withDefaults() (Config, error) {
	if c.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("%w: Node is empty and the host has no name: %w", ErrConfig, err)
		}
		c.Node = host
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.alone() && len(c.Join) > 0 {
		return c, fmt.Errorf("%w: Join is set but Bind is not; set Bind to the address for the cluster's traffic, such as 127.0.0.1:7946", ErrConfig)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
		min  time.Duration
	}{
		{"SyncInterval", c.SyncInterval, 10 * time.Millisecond}, {"AskTimeout", c.AskTimeout, time.Millisecond},
		{"Settle", c.Settle, 100 * time.Millisecond}, {"Grace", c.Grace, time.Second},
		{"StateInterval", c.StateInterval, 100 * time.Millisecond},
	} {
		if d.v != 0 && d.v < d.min {
			return c, fmt.Errorf("%w: %s is %v; it must be at least %v, or 0 for the default", ErrConfig, d.name, d.v, d.min)
		}
	}
	if len(c.Secret) > 0 && len(c.Secrets) > 0 {
		return c, fmt.Errorf("%w: Secret and Secrets are both set; put it first in Secrets, and leave Secret empty", ErrConfig)
	}
	if c.Expect < 0 || c.MaxKeys < 0 {
		return c, fmt.Errorf("%w: Expect and MaxKeys must not be negative", ErrConfig)
	}
	if c.MaxMemory != 0 && c.MaxMemory < MinMemory {
		return c, fmt.Errorf("%w: MaxMemory is %d bytes; it must be at least %d (8 MiB), or 0 for no bound", ErrConfig, c.MaxMemory, MinMemory)
	}
	if int(c.Overflow) >= hybrid.Overflows {
		return c, fmt.Errorf("%w: Overflow %d does not exist; use OverflowDeny, OverflowAllow or OverflowShared", ErrConfig, c.Overflow)
	}
	return c, nil
}

func (c Config) cluster() cluster.Config {
	cc := cluster.Config{Name: c.Node, ClusterName: c.Cluster, Bind: c.Bind, Advertise: c.Advertise, Join: c.Join,
		Insecure: c.Insecure, Profile: c.Profile, PacketSize: c.PacketSize, HTTP: c.HTTP, Version: c.Version,
		SyncInterval: c.SyncInterval, Settle: c.Settle, Grace: c.Grace, Resolver: c.Resolver, Transport: c.Transport, Logger: c.Logger,
		Secrets: c.secrets(), SecretSeed: true, Protocol: c.protocol}
	return cc
}

// secrets are those of both fields.
func (c Config) secrets() [][]byte {
	if len(c.Secret) > 0 {
		return [][]byte{c.Secret}
	}
	return c.Secrets
}

func (c Config) hybrid(n hybrid.Network, r ring.Config, maxMessage int) hybrid.Config {
	return hybrid.Config{Node: c.Node, Network: n, Ring: r, Tick: c.SyncInterval, AskTimeout: c.AskTimeout, Settle: c.Settle, Grace: grace(c.Grace),
		Expect: c.Expect, MaxMessage: maxMessage, MaxKeys: c.MaxKeys, MaxMemory: c.MaxMemory, Overflow: c.Overflow, Logger: c.Logger}
}

// MinMemory is the least that Config.MaxMemory can be: below it one block of a table would be a good part of all.
const MinMemory = 8 << 20

// Overflow says what a new key gets when Config.MaxKeys or Config.MaxMemory leave no room for it, because all keys that are kept have been used and are
// not full again: those are never forgotten for a new one.
type Overflow = hybrid.Overflow

// What a new key gets when there is no room. Permits of algorithm concurrency are refused by all three.
const (
	OverflowDeny   = hybrid.OverflowDeny   // it is refused, with ErrOverflow; the default
	OverflowAllow  = hybrid.OverflowAllow  // it is admitted and counted nowhere, with SourceAllow
	OverflowShared = hybrid.OverflowShared // it shares one of 1024 keys of the limit, which a seeded hash chooses
)

// ParseOverflow reads "deny", "allow" or "shared".
func ParseOverflow(s string) (Overflow, error) { return hybrid.ParseOverflow(s) }

// grace turns Never into what hybrid calls for ever.
func grace(d time.Duration) time.Duration {
	if d == Never {
		return -1
	}
	return d
}
