//go:build !nogubernator

// Command gubernator runs one process of a cluster of gubernator whose members are given. The peer's own program cannot be used for several
// processes on one machine: it finds members by memberlist under the name of the host, which they would share. All else is configured as there,
// by GUBER_... in the environment.
//
//	gubernator -peers 127.0.0.1:1051,127.0.0.1:1052
//
// The suites build and start it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"
)

func main() {
	peers := flag.String("peers", "", "gRPC `addresses` of all processes, with commas between")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *peers); err != nil {
		fmt.Fprintln(os.Stderr, "gubernator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, peers string) error {
	if peers == "" {
		return errors.New("name the members of the cluster, this process too, with -peers")
	}
	conf, err := gubernator.SetupDaemonConfig(logrus.StandardLogger(), nil)
	if err != nil {
		return err
	}
	conf.PeerDiscoveryType = "none"
	daemon, err := gubernator.SpawnDaemon(ctx, conf)
	if err != nil {
		return err
	}
	defer daemon.Close()
	var members []gubernator.PeerInfo
	for addr := range strings.SplitSeq(peers, ",") {
		members = append(members, gubernator.PeerInfo{GRPCAddress: addr})
	}
	daemon.SetPeers(members)
	<-ctx.Done()
	return nil
}
