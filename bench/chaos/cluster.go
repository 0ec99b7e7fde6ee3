package chaos

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/httpapi/client"
	"github.com/jatah-io/jatah/internal/netlab"
)

// cluster is the processes and the network between them.
type cluster struct {
	lab    *netlab.Lab // nil: they are on the loopback interface
	nodes  []*node     // the last one, the guest, runs only at times
	size   int         // without the guest
	secret string
	limits []string
	web    web
	churn  int
	disks  bool // each node has a disk of its own, which can be filled
}

// patience is how long a try may take, and so how long a node need not answer after it was paused.
const patience = 2 * time.Second

// newCluster prepares the cluster in a directory; start starts it. With disks each node has a small one of its own, where that can be had.
func newCluster(dir, program string, size int, limits []string, disks bool) (*cluster, error) {
	c := &cluster{size: size, limits: limits, churn: 1, secret: filepath.Join(dir, "secret")}
	key := make([]byte, 32)
	rand.Read(key)
	if err := os.WriteFile(c.secret, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	lab, err := netlab.New("jatah-chaos", size+1)
	if err != nil && !errors.Is(err, netlab.ErrUnavailable) {
		return nil, err
	}
	var free []string
	dial := new(net.Dialer).DialContext
	if err == nil {
		c.lab, dial = lab, lab.Dial
	} else if free, err = proc.Addresses(2 * (size + 1)); err != nil {
		return nil, err
	}
	c.web = newWeb(dial)
	c.web.MaxIdleConnsPerHost, c.web.IdleConnTimeout = 64, 30*time.Second
	c.disks = disks && c.lab != nil
	for i := range size + 1 {
		n := &node{index: i, name: nodeName(i), dir: filepath.Join(dir, nodeName(i)), program: program, place: here}
		if c.lab != nil {
			n.http, n.bind = lab.Address(i+1, 1)+":8080", lab.Address(i+1, 1)+":7946"
			n.place = func(f func()) error { return lab.In(i+1, f) }
		} else {
			n.http, n.bind = free[2*i], free[2*i+1]
		}
		c.nodes = append(c.nodes, n)
		if err := c.prepare(n); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func here(f func()) error {
	f()
	return nil
}

// prepare makes the files of a node, and a client for it.
func (c *cluster) prepare(n *node) error {
	if err := os.MkdirAll(n.state(), 0o755); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	if c.disks && mountSmall(n.state()) != nil {
		c.disks = false
	}
	if err := c.write(n); err != nil {
		return err
	}
	var err error
	n.ask, err = client.New(client.Config{
		Addrs: []string{n.http}, HTTP: &http.Client{Transport: c.web}, Timeout: patience, Retry: client.Retry{Attempts: 1},
	})
	return err
}

// write writes the file of a node as it is meant to be now.
func (c *cluster) write(n *node) error {
	var join []string
	for i := range c.size {
		if c.lab != nil {
			join = append(join, c.lab.Address(i+1, 1)+":7946")
		} else if i < len(c.nodes) {
			join = append(join, c.nodes[i].bind)
		}
	}
	return n.writeConfig(join, c.secret, c.limits, c.churn, c.size)
}

// regular are the nodes without the guest.
func (c *cluster) regular() []*node { return c.nodes[:c.size] }

func (c *cluster) guest() *node { return c.nodes[c.size] }

// start starts all but the guest and waits until they are one cluster.
func (c *cluster) start(ctx context.Context) error {
	for _, n := range c.regular() {
		if err := n.start(ctx); err != nil {
			return err
		}
	}
	return c.await(ctx, time.Minute, func() error { return c.whole(ctx) })
}

// await asks until there is no error, and returns the last one when it takes too long.
func (c *cluster) await(ctx context.Context, most time.Duration, ask func() error) error {
	end := time.Now().Add(most)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), err)
		case time.Now().After(end):
			return fmt.Errorf("chaos: after %v: %w", most, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// whole is nil when every node that runs is ready, hears all others and has no part of a limit at rest.
func (c *cluster) whole(ctx context.Context) error {
	running := 0
	for _, n := range c.nodes {
		if n.running() != nil {
			running++
		}
	}
	if running < c.size {
		return fmt.Errorf("%d of %d nodes run", running, c.size)
	}
	for _, n := range c.nodes {
		if n.running() == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		v, err := n.ask.Cluster(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		if err := settled(v, running); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// settled is nil if a node sees a cluster of so many, and all is as it is in quiet times.
func settled(v client.Cluster, members int) error {
	alive := 0
	for _, m := range v.Members {
		if m.State == "alive" {
			alive++
		}
		if m.State == "alive" && m.Silent {
			return fmt.Errorf("%s is silent", m.Name)
		}
	}
	switch {
	case !v.Ready:
		return fmt.Errorf("not ready: %s", v.Reason)
	case alive != members:
		return fmt.Errorf("sees %d of %d members", alive, members)
	case v.K != members:
		return fmt.Errorf("divides limits by %d, not by %d", v.K, members)
	case v.Settling > 0:
		return fmt.Errorf("settles for another %v", v.Settling)
	case v.Handing > 0:
		return fmt.Errorf("%d hand-offs are under way", v.Handing)
	}
	return nil
}

// close ends what runs and removes the network and the disks.
func (c *cluster) close() error {
	var failed []error
	for _, n := range c.nodes {
		if p := n.take(); p != nil {
			failed = append(failed, p.Signal(syscall.SIGKILL))
			<-p.Ended()
		}
		unmount(n.state())
	}
	c.web.CloseIdleConnections()
	if c.lab != nil {
		failed = append(failed, c.lab.Close())
	}
	return errors.Join(failed...)
}
