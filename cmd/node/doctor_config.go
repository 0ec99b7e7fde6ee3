package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

const (
	// shortGrace is too short for a process to be started again: a crash is noticed after up to eight seconds.
	shortGrace = 15 * time.Second
	// longAsk is longer than callers of a limiter are willing to wait.
	longAsk = time.Second
	// longLimit is how long a limit counts for which it matters that a stop of all nodes is survived.
	longLimit = time.Hour
	// leastSpace is what a state file and its successor take, and more.
	leastSpace = 64 << 20
)

// configFindings are what a configuration without mistakes may still do wrong.
func configFindings(sources *config.Sources, cfg *config.Config) (all []finding) {
	all = append(all, secretFindings(sources, cfg)...)
	all = append(all, stateFindings(sources, cfg)...)
	if cfg.Node.Bind != "" {
		all = append(all, clusterFindings(cfg)...)
	}
	for _, l := range cfg.Limits {
		all = append(all, limitFindings(cfg, l)...)
	}
	if len(cfg.Limits) == 0 {
		all = append(all, noteOf("limits", "Define limits in the file, in limits_dir, or over the API.", "There are no limits: every take is answered with 404."))
	}
	return all
}

func secretFindings(sources *config.Sources, cfg *config.Config) (all []finding) {
	if cfg.Node.Bind == "" {
		return nil
	}
	if cfg.Node.Insecure && len(cfg.Node.Secrets) == 0 {
		all = append(all, problemOf("secret", "Set cluster.secret_file (make the secret with: openssl rand -base64 32) and remove insecure.",
			"cluster.insecure is set: who can send packets to %s can join, and read and change what is counted.", cfg.Node.Bind))
	}
	path, field := cfg.SecretFile, "cluster.secret_file"
	for _, f := range []string{"cluster.secret", "cluster.secrets"} {
		if path == "" && sources.InFile(f) {
			path, field = sources.Path(), f
		}
	}
	if path == "" {
		return all
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && othersRead(info.Mode()) {
		all = append(all, problemOf("secret", fmt.Sprintf("Run: chmod o-rwx %s. Who may have read it before should not know the secret that counts: make another.", path),
			"Every user of this machine can read %s, with the value of %s (its mode is %04o).", path, field, info.Mode().Perm()))
	}
	return all
}

// othersRead says that every user of the machine may read a file of this mode. Windows has no such modes.
func othersRead(m fs.FileMode) bool { return runtime.GOOS != "windows" && m.Perm()&0o004 != 0 }

func stateFindings(sources *config.Sources, cfg *config.Config) (all []finding) {
	dir := cfg.Node.StateDir
	if dir == "" {
		for _, l := range cfg.Limits {
			if per := longest(l); per >= longLimit {
				return []finding{noteOf("state", "Set state_dir on every node, to a directory that survives a restart.",
					"The limit %s counts over %v and state_dir is not set: after a stop of all nodes its keys start full.", l.Name, per)}
			}
		}
		return nil
	}
	if !sources.Given("node") {
		all = append(all, problemOf("state", "Set node (JATAH_NODE, --node) to a name that stays: in Kubernetes that of a pod of a StatefulSet.",
			"state_dir is set and node is not: the files are named after the host, %s, and found again only where that stays the same.", cfg.Node.Node))
	}
	return append(all, directoryFindings(dir)...)
}

// longest is over how long the limit counts.
func longest(l jatah.Limit) (per time.Duration) {
	if l.Algorithm == jatah.Concurrency {
		return 0
	}
	for _, r := range append([]jatah.Rate{l.Rate}, l.Rates...) {
		if r.Count > 0 {
			per = max(per, r.Per)
		}
	}
	return per
}

// directoryFindings tries what a node does in state_dir: to write a file and rename it.
func directoryFindings(dir string) (all []finding) {
	in, advice := dir, "Give the user of the service the directory: in a unit of systemd StateDirectory=, in Kubernetes fsGroup, else chown."
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		for in = filepath.Dir(dir); in != filepath.Dir(in); in = filepath.Dir(in) {
			if _, err := os.Stat(in); err == nil {
				break
			}
		}
	}
	f, err := os.CreateTemp(in, ".jatah-doctor-*")
	if err != nil {
		return []finding{problemOf("state", advice, "This user cannot write to %s, where state_dir is: %v.", in, reason(err))}
	}
	name := f.Name()
	defer os.Remove(name)
	_, err = f.WriteString("x")
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		renamed := name + ".renamed"
		if err = os.Rename(name, renamed); err == nil {
			err = os.Remove(renamed)
		}
	}
	if err != nil {
		all = append(all, problemOf("state", "Use a directory of an ordinary local file system.", "A file in %s cannot be written and renamed: %v.", in, reason(err)))
	}
	if free, ok := freeSpace(in); ok && free < leastSpace {
		all = append(all, problemOf("state", "Make room, or use another directory.", "%s has %d MiB left.", in, free>>20))
	}
	return all
}

// reason is an error without the name of a temporary file.
func reason(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

func clusterFindings(cfg *config.Config) (all []finding) {
	n := &cfg.Node
	if n.Grace != 0 && n.Grace < shortGrace {
		all = append(all, problemOf("grace", "Leave grace at 60s, or set it above the time that a restart takes.",
			"grace is %v: a node that is away for longer, as in a restart after a crash, counts as gone, and each side of a cut then enforces the whole limit by itself.", n.Grace))
	}
	if n.AskTimeout > longAsk {
		all = append(all, problemOf("ask_timeout", "Leave ask_timeout at 50ms, or set it to some round trips.", "ask_timeout is %v: so long requests wait when an owner is silent.", n.AskTimeout))
	}
	if n.Expect > 0 && len(n.Join) > n.Expect {
		all = append(all, problemOf("expect", "Set expect to the number of nodes, or remove from join who is none.", "join lists %d addresses and expect is %d.", len(n.Join), n.Expect))
	}
	if len(n.Join) == 0 {
		all = append(all, noteOf("join", "Name the other nodes in join, on all of them.", "join is empty: this node finds the others only if they name it, and after a cut not by itself."))
	}
	if len(n.Join) == 1 && n.Expect == 0 && n.Grace != jatah.Never {
		all = append(all, noteOf("expect", "Set expect to the number of nodes, or list all of them in join, if limits must hold for all sides of a long cut together.",
			"join has one entry and expect is not set: a cut longer than grace gives each side the whole limit."))
	}
	return all
}

func limitFindings(cfg *config.Config, l jatah.Limit) (all []finding) {
	if l.DryRun {
		all = append(all, noteOf("limits", "Remove dry_run when its numbers are as they should be.", "The limit %s counts and refuses nothing.", l.Name))
	}
	if l.Fallback == jatah.FallbackAllow {
		all = append(all, problemOf("limits", "Use fallback: share, or wait, unless passing everything is meant.", "The limit %s has fallback: allow: while the owner of a key is silent everything passes.", l.Name))
	}
	most := l.Capacity()
	if most == 0 && l.Algorithm != jatah.Concurrency {
		all = append(all, noteOf("limits", "Set another rate if that is not meant.", "The limit %s has rate 0: it refuses everything.", l.Name))
	}
	nodes := int64(max(cfg.Node.Expect, len(cfg.Node.Join)))
	if l.Mode == jatah.Split && cfg.Node.Bind != "" && most > 0 && most < nodes {
		all = append(all, problemOf("limits", "Use mode: hybrid, or a burst of at least the number of nodes.", "The limit %s is split and lets %d through at once: of %d nodes some have nothing.", l.Name, most, nodes))
	}
	return all
}

// seedHost is the host that an entry of join names; "": it is another form, or an address.
func seedHost(seed string) string {
	if strings.Contains(seed, "://") {
		return ""
	}
	host, _, err := net.SplitHostPort(seed)
	if err != nil {
		host = seed
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return ""
	}
	return host
}
