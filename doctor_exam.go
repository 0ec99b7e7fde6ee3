package jatah

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"time"

	"github.com/jatah-io/jatah/cluster"
)

// checkup is how a node is, as it says itself. It travels as JSON: it is seldom sent, and readers leave out fields that they do not know.
type checkup struct {
	Version  string
	Addr     string
	Protocol uint8
	Members  []string          // alive as it sees them, itself included; sorted
	Limits   map[string]string // by name, a digest of the definition
	Settings map[string]string // that should be the same on all nodes
	Links    []linkup          // to each other member; sorted

	Wall int64         // Unix time of the answer, ns
	Took time.Duration // from the question to the answer
	Step time.Duration // by how much more the wall clock moved on since the start than the monotonic one

	PacketSize                int    // bytes
	BufferWanted, BufferGiven int    // bytes; 0: not known
	BufferDrops               uint64 // packets that the kernel dropped since the socket was opened, because its buffer was full
	Files, FilesMax           uint64 // open, and the bound; 0: not known
	MemoryUsed                uint64 // by Go, bytes
	MemoryMax                 uint64 // of the container or service, bytes; 0: there is none, or it is not known
	MemoryGo                  uint64 // GOMEMLIMIT, bytes; 0: there is none
	Asks, AsksResent          uint64
	StateFailures             uint64

	ahead, unsure time.Duration // of its wall clock before the asker's, give or take; set by the asker
}

// linkup is one member as another sees it.
type linkup struct {
	To     string
	Addr   string
	Reach  cluster.Reach
	Heard  uint64        // packets that came from it during the examination
	Silent time.Duration // it has answered no sync for so long; 0: it does answer
}

// compareClock takes the answer to have been made in the middle between the question and its arrival here, but for the time it took.
func (c *checkup) compareClock(sent, got time.Time) {
	c.unsure = max(0, got.Sub(sent)-c.Took) / 2
	c.ahead = time.Unix(0, c.Wall).Sub(got.Round(0)) + c.unsure
}

// mostProbes is how many members are probed at a time.
const mostProbes = 32

// examine looks at this node, and at its ways to all others.
func (n *Node) examine(ctx context.Context) checkup {
	c := checkup{Version: n.cfg.Version, Addr: n.Addr(), Members: []string{n.cfg.Node}, Limits: map[string]string{}, Step: clockStep(n.began, time.Now())}
	for _, l := range n.Limits() {
		c.Limits[l.Name] = digestLimit(l)
	}
	c.Files, c.FilesMax = openFiles()
	c.MemoryUsed, c.MemoryMax = goMemory(), memoryBound()
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		c.MemoryGo = uint64(limit)
	}
	s := n.Stats()
	c.Asks, c.AsksResent, c.StateFailures = s.Ask.Sent, s.Ask.Resent, s.StateFailures
	if n.c == nil {
		return c
	}
	c.Settings = n.shared()
	c.PacketSize = n.c.PacketSize()
	if c.BufferWanted, c.BufferGiven = n.c.ReceiveBuffer(); c.BufferWanted > 0 {
		c.BufferDrops = droppedByKernel(n.c.BoundPort())
	}
	v := n.c.View()
	c.Members = c.Members[:0]
	for _, m := range v.Members {
		if c.Members = append(c.Members, m.Name); m.Name == n.cfg.Node {
			c.Protocol = m.Protocol
		}
	}
	c.Links = n.examineLinks(ctx, v)
	return c
}

func (n *Node) examineLinks(ctx context.Context, v *cluster.View) []linkup {
	var links []linkup
	for _, m := range v.Members {
		if m.Name != n.cfg.Node {
			links = append(links, linkup{To: m.Name, Addr: m.Addr, Heard: n.c.Heard(m.Name)})
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, mostProbes)
	for i := range links {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			l := &links[i]
			l.Reach, _ = n.c.Probe(ctx, l.To) // gone: nothing reaches it
		})
	}
	wg.Wait()
	silent := map[string]time.Duration{}
	for _, m := range n.e.Info().Members {
		if m.Silent {
			silent[m.Name] = m.HeardAgo
		}
	}
	for i := range links {
		l := &links[i]
		l.Heard, l.Silent = n.c.Heard(l.To)-l.Heard, silent[l.To]
	}
	return links
}

// shared are the settings that should be the same on all nodes, in the words of the configuration file.
func (n *Node) shared() map[string]string {
	yes := func(b bool) string {
		if b {
			return "set"
		}
		return "not set"
	}
	g := "never"
	if n.cfg.Grace != Never {
		g = cmp.Or(n.cfg.Grace, time.Minute).String()
	}
	return map[string]string{
		"cluster.grace": g, "cluster.expect": strconv.Itoa(n.cfg.Expect), "settle": cmp.Or(n.cfg.Settle, 2*time.Second).String(),
		"state_dir": yes(n.cfg.StateDir != ""),
	}
}

// digestLimit tells definitions apart. Fields of later versions of Limit that a definition does not use do not change it.
func digestLimit(l Limit) string {
	b, err := json.Marshal(l)
	if err != nil { // a number that JSON has no form for
		b = fmt.Append(nil, l)
	}
	var fields map[string]any
	if json.Unmarshal(b, &fields) == nil {
		dropZero(fields)
		if short, err := json.Marshal(fields); err == nil {
			b = short
		}
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// dropZero removes what says nothing, so that a version that does not know a field and one that does agree while it is not used.
func dropZero(fields map[string]any) {
	for name, v := range fields {
		switch v := v.(type) {
		case map[string]any:
			if dropZero(v); len(v) == 0 {
				delete(fields, name)
			}
		case []any:
			for _, one := range v {
				if m, ok := one.(map[string]any); ok {
					dropZero(m)
				}
			}
			if len(v) == 0 {
				delete(fields, name)
			}
		case nil:
			delete(fields, name)
		case bool:
			if !v {
				delete(fields, name)
			}
		case float64:
			if v == 0 {
				delete(fields, name)
			}
		case string:
			if v == "" {
				delete(fields, name)
			}
		}
	}
}

// clockStep is by how much more the wall clock moved than the monotonic one between two readings of this process.
func clockStep(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// goMemory is what Go has of the system's memory, in bytes.
func goMemory() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 || s[1].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}
