package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/memberlist"
	"github.com/jatah-io/jatah/ring"
)

// Never as [Config].Grace: a failed member counts until [Cluster.Forget].
const Never = time.Duration(math.MaxInt64)

// DefaultPort is used where an address of Bind or Join has no port.
const DefaultPort = 7946

// Protocol is the newest version of what nodes say to each other that this one speaks, and PreviousProtocol the oldest. Nodes that have
// one in common join each other, and two of them speak the newest that both know: see Member.Protocol.
const (
	Protocol         = 3 // what comes after the fields and kinds that a reader knows is left out, see doc.go
	PreviousProtocol = 2 // datagrams beside memberlist's
)

const delegateProtocol = 2

// Errors of [Start] and [Config]; match with errors.Is.
var (
	// ErrConfig: a setting is wrong; the text names it and says what to write.
	ErrConfig = errors.New("cluster: bad configuration")
	// ErrNameTaken: a live process already has this name.
	ErrNameTaken = errors.New("cluster: name is taken")
	// ErrMismatch: a constant that all nodes must share differs.
	ErrMismatch = errors.New("cluster: settings differ between nodes")
	// ErrSecret: the seeds were reached but do not share our secret.
	ErrSecret = errors.New("cluster: secrets differ between nodes")
)

// Profiles: how patient the failure detector is.
const (
	Local = "local" // one machine: a crash is seen in 2 to 4 s
	LAN   = "lan"   // one data centre: 4 to 8 s
	WAN   = "wan"   // far apart: half a minute
)

// Resolver looks names up. [net.DefaultResolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// Config of a node. [Start] copies it; the caller's value is never changed.
type Config struct {
	// Name of the node, unique in the cluster, 1 to 128 bytes without spaces. Needed.
	Name string
	// ClusterName labels all traffic; nodes with another one are ignored. Default "jatah".
	ClusterName string

	// Bind is "host:port" for both TCP and UDP; port 0 takes a free one, a missing port is
	// DefaultPort, an empty host is all interfaces. Default "127.0.0.1:7946".
	// Not used with Transport.
	Bind string
	// Advertise is "host" or "host:port" that others reach this node at. Default: the
	// address bound to, or a private address of this host if Bind is all interfaces.
	Advertise string
	// Join lists seeds: "host:port", "[v6]:port", host names with any number of addresses,
	// "dns+srv://_service._proto.name". Asked at start and again for as long as members are missing.
	Join []string

	// Secrets encrypt all traffic: 16, 24 or 32 bytes each, at most MaxSecrets. The first one encrypts, all
	// decrypt, so that they can be changed one node at a time, also while it runs: see SetSecrets. Needed when Bind or
	// Advertise is not loopback, unless Insecure.
	Secrets  [][]byte
	Insecure bool
	// SecretSeed: the hash seed is that of the cluster which this node joins; where it finds none, one made of the first secret. So
	// who does not have the secret cannot tell where a key belongs. Ring.Seed must be 0. Without Secrets it does nothing.
	SecretSeed bool
	// Protocol is the newest protocol to speak, Protocol or PreviousProtocol, which is for tests of both beside each other. Default Protocol.
	Protocol uint8

	// Profile is Local, LAN or WAN. Default: Local when Bind is loopback, else LAN.
	Profile string
	// PacketSize is the largest UDP payload in bytes, all headers included: 1000 to 65000.
	// Default 1400, which passes any ordinary network unfragmented.
	PacketSize int

	// HTTP and Version are told to the other members as they are; at most 200 and 64 bytes.
	HTTP    string
	Version string

	// Ring and SyncInterval (default 100 ms) must be the same on all nodes: one that
	// differs is refused. Ring.Seed and Ring.Partitions count as hash seed and partitions.
	Ring         ring.Config
	SyncInterval time.Duration
	// Settle (default 2 s) and Grace (default 60 s, or Never) should be the same on all
	// nodes; where they differ the longest counts, see View.
	Settle time.Duration
	Grace  time.Duration

	// Register is shared with all members that have one. Nil: this node has none, and passes none on.
	Register *Register

	// Resolver looks up host names of Join, Bind and Advertise. Default net.DefaultResolver.
	Resolver Resolver
	// Transport carries packets and streams in place of sockets, which is how tests run
	// whole clusters in memory. It is shut down by Close. Nil: real sockets.
	Transport memberlist.Transport
	// Logger gets this package's lines and memberlist's. Default: slog.Default().
	Logger *slog.Logger

	oldest uint8 // protocol spoken; of a test, which plays a version to come
}

// withDefaults is a copy of c with defaults filled in, or an error that names the setting.
func (c Config) withDefaults() (Config, error) {
	c.Join = slices.Clone(c.Join)
	c.Secrets = cloneSecrets(c.Secrets)
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	dur := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.ClusterName, "jatah")
	def(&c.Bind, fmt.Sprintf("127.0.0.1:%d", DefaultPort))
	dur(&c.SyncInterval, 100*time.Millisecond)
	dur(&c.Settle, 2*time.Second)
	dur(&c.Grace, time.Minute)
	if c.PacketSize == 0 {
		c.PacketSize = 1400
	}
	if c.Ring.Partitions == 0 {
		c.Ring.Partitions = ring.DefaultPartitions
	}
	if c.Ring.Load == 0 {
		c.Ring.Load = ring.DefaultLoad
	}
	if c.Ring.Replication == 0 {
		c.Ring.Replication = ring.DefaultReplication
	}
	if c.Protocol == 0 {
		c.Protocol = Protocol
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, c.validate()
}

func (c Config) validate() error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	if len(c.ClusterName) > 64 {
		return fmt.Errorf("%w: cluster name %.20q... has %d bytes, at most 64", ErrConfig, c.ClusterName, len(c.ClusterName))
	}
	if err := checkSecrets(c.Secrets); err != nil {
		return err
	}
	if c.SecretSeed && c.Ring.Seed != 0 {
		return fmt.Errorf("%w: a hash seed is given and is to be made of the secret too, choose one", ErrConfig)
	}
	if (c.Protocol < PreviousProtocol || c.Protocol > Protocol) && c.oldest == 0 {
		return fmt.Errorf("%w: protocol %d, want %d or %d", ErrConfig, c.Protocol, PreviousProtocol, Protocol)
	}
	switch c.Profile {
	case "", Local, LAN, WAN:
	default:
		return fmt.Errorf("%w: profile %q, want %s, %s or %s", ErrConfig, c.Profile, Local, LAN, WAN)
	}
	if c.PacketSize < 1000 || c.PacketSize > 65000 {
		return fmt.Errorf("%w: packet size %d, want 1000 to 65000 bytes", ErrConfig, c.PacketSize)
	}
	if len(c.HTTP) > 200 || len(c.Version) > 64 {
		return fmt.Errorf("%w: HTTP address (%d bytes) or version (%d bytes) is too long, at most 200 and 64",
			ErrConfig, len(c.HTTP), len(c.Version))
	}
	for name, d := range map[string]time.Duration{"sync interval": c.SyncInterval, "settle": c.Settle, "grace": c.Grace} {
		if d < time.Millisecond {
			return fmt.Errorf("%w: %s %v, want at least 1ms", ErrConfig, name, d)
		}
	}
	if err := c.Ring.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for _, s := range c.Join {
		if _, err := parseSeed(s); err != nil {
			return err
		}
	}
	return nil
}

// checkName keeps names usable in logs, URLs and command lines.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: name is empty, give each node a name of its own", ErrConfig)
	case len(name) > 128:
		return fmt.Errorf("%w: name %.20q... has %d bytes, at most 128", ErrConfig, name, len(name))
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return fmt.Errorf("%w: name %q has spaces or unprintable characters", ErrConfig, name)
	}
	return nil
}

// memberlistConfig is memberlist's preset for the profile with what this package needs changed.
func (c Config) memberlistConfig() *memberlist.Config {
	var m *memberlist.Config
	switch c.Profile {
	case Local:
		m = memberlist.DefaultLocalConfig()
		m.ProbeInterval = 500 * time.Millisecond
		m.PushPullInterval = 10 * time.Second
	case WAN:
		m = memberlist.DefaultWANConfig()
		m.TCPTimeout = 10 * time.Second
		m.ProbeTimeout = 1500 * time.Millisecond // and twice that before a name counts as free
	default:
		m = memberlist.DefaultLANConfig()
		// Push/pull also spreads who is lost and who is forgotten.
		m.PushPullInterval = 15 * time.Second
		m.TCPTimeout = 5 * time.Second
	}
	// A process that crashed counts among the members until it is reaped, also after its node has come back. Then memberlist
	// expects more confirmations of a suspicion than there are members to give them, and waits six times as long.
	m.SuspicionMaxTimeoutMult = 2
	m.Label = c.ClusterName
	// Compression halves the packet rate and doubles the round trip of small packets.
	m.EnableCompression = false
	m.UDPBufferSize = c.PacketSize
	// Suspicion messages, and what comes over streams, must not be dropped.
	m.HandoffQueueDepth = 8192
	// Names are unique per process at this level (see meta.go), so a restarted node never has to
	// reclaim one. Short all the same, should two processes ever draw the same number.
	m.DeadNodeReclaimTime = time.Second
	// memberlist refuses by these before anybody can say why, so they stay as they are: what is spoken is agreed by the metadata.
	m.DelegateProtocolMin, m.DelegateProtocolMax, m.DelegateProtocolVersion = delegateProtocol, delegateProtocol, delegateProtocol
	return m
}
