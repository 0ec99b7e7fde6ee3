package main

import (
	"context"
	"fmt"
	"runtime/debug"
)

// build is what the binary knows about how it was made.
type build struct {
	version, revision, time, goVersion string
	modified                           bool
}

// stamped is the version where the sources have no history to read it from, as in a container:
//
//	go build -ldflags "-X main.stamped=v0.1.0" ...
var stamped string

func readVersion() build {
	b := build{version: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.goVersion = info.GoVersion
	switch v := info.Main.Version; {
	case stamped != "":
		b.version = stamped
	case v != "" && v != "(devel)":
		b.version = v
	default:
		b.version = "devel"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.time":
			b.time = s.Value
		case "vcs.modified":
			b.modified = s.Value == "true"
		}
	}
	return b
}

// short is what is told to the other members, who accept 64 bytes.
func (b build) short() string { return b.version[:min(len(b.version), 64)] }

func version(_ context.Context, c console, args []string) error {
	flags := newFlags("version", "Prints the version, the revision it was built from, and the version of Go.")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	b := readVersion()
	fmt.Fprintf(c.out, "jatah %s", b.version)
	if b.revision != "" {
		fmt.Fprintf(c.out, ", revision %.12s of %s", b.revision, b.time)
		if b.modified {
			fmt.Fprint(c.out, " with changes")
		}
	}
	fmt.Fprintf(c.out, ", %s\n", b.goVersion)
	return nil
}
