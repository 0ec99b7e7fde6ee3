package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

// dialTime is how long a seed may take to answer a connection.
const dialTime = 2 * time.Second

// machineFindings looks at what a node that does not run yet would meet: its ports, its seeds, its socket's buffer.
func machineFindings(ctx context.Context, cfg *config.Config) (all []finding) {
	all = append(all, portFindings("tcp", cfg.HTTP, "http")...)
	if cfg.Node.Bind == "" {
		return all
	}
	all = append(all, portFindings("tcp", cfg.Node.Bind, "bind under cluster")...)
	all = append(all, portFindings("udp", cfg.Node.Bind, "bind under cluster")...)
	all = append(all, seedFindings(ctx, cfg)...)
	if most, ok := receiveBufferMax(); ok && most < wantedBuffer {
		all = append(all, noteOf("buffer", "Set it to 4194304 (deploy/sysctl-jatah.conf). Clusters of some nodes do without.",
			"The sysctl net.core.rmem_max is %d: nodes ask for a UDP receive buffer of %d bytes.", most, wantedBuffer))
	}
	return all
}

// wantedBuffer is what package cluster asks for.
const wantedBuffer = 4 << 20

// portFindings tries to listen where a node would.
func portFindings(network, address, setting string) []finding {
	var err error
	if network == "udp" {
		var conn net.PacketConn
		if conn, err = net.ListenPacket(network, address); err == nil {
			conn.Close()
		}
	} else {
		var ln net.Listener
		if ln, err = net.Listen(network, address); err == nil {
			ln.Close()
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		who := "another process"
		if name := whoListens(network, address); name != "" {
			who = name
		}
		return []finding{problemOf("ports", "Stop it, or choose another address with "+setting+".", "%s listens on %s (%s), and it is no node that answers.", who, address, network)}
	}
	// The error has its own advice.
	what, advice, ok := strings.Cut(bindError(err, address, setting).Error(), "; choose ")
	if advice = "Choose " + advice + "."; !ok {
		advice = "Choose another address with " + setting + "."
	}
	return []finding{problemOf("ports", advice, "%s (%s).", what, network)}
}

// seedFindings looks names up and connects to the other nodes.
func seedFindings(ctx context.Context, cfg *config.Config) []finding {
	found := make([][]finding, len(cfg.Node.Join))
	var wg sync.WaitGroup
	for i, seed := range cfg.Node.Join {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, dialTime)
			defer cancel()
			found[i] = seedFinding(ctx, seed)
		})
	}
	wg.Wait()
	var all []finding
	for _, f := range found {
		all = append(all, f...)
	}
	return all
}

func seedFinding(ctx context.Context, seed string) []finding {
	if host := seedHost(seed); host != "" {
		if _, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return []finding{problemOf("join", "Correct the name, or the DNS; a headless service of Kubernetes needs publishNotReadyAddresses.", "%s in join cannot be looked up: %v.", host, err)}
		}
	}
	if _, _, err := net.SplitHostPort(seed); err != nil {
		return nil // another form than host:port
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", seed)
	switch {
	case err == nil:
		conn.Close()
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil // it does not run yet, or is this node itself
	}
	return []finding{problemOf("join", "Open TCP and UDP to it in firewalls and network policies, or remove it from join if it is gone for good.", "%s in join does not answer: %v.", seed, err)}
}
