package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/cmd/node/internal/demo"
)

func runDemo(ctx context.Context, c console, args []string) error {
	flags := newFlags("demo", "Starts three nodes on this machine, each with a small HTTP service before it, sends\n"+
		"far more than the limit lets through, kills one node with SIGKILL and brings it back,\n"+
		"and says what was measured. Ends with 0 if the limit was kept, 1 if not.")
	limitText := flags.String("limit", "api=200/s,burst=200", "the `limit`, for each user")
	mode := flags.String("mode", "hybrid", "hybrid, strict or split; `mode`")
	length := flags.Duration("duration", 20*time.Second, "`time` of the load, at least 5s")
	plain := flags.Bool("plain", false, "print lines instead of a picture that moves")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	limit, err := demoLimit(*limitText, *mode)
	if err != nil {
		return usageError{"demo", err}
	}
	if *length < 5*time.Second {
		return usageError{"demo", fmt.Errorf("--duration %v is too short to kill a node and bring it back: use 5s or more", *length)}
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: finding this program's file to run it as a node: %w", err)
	}
	kept, err := demo.Run(ctx, demo.Options{
		Limit: limit, Duration: *length, Executable: executable, Environ: withoutSettings(c.environ),
		Out: c.out, Terminal: !*plain && isTerminal(c.out, c.environ),
	})
	switch {
	case err != nil:
		return err
	case !kept:
		return errors.New("demo: more was admitted than the limit promises")
	}
	return nil
}

// demoLimit is the limit of the flags; a mode that is part of the limit wins.
func demoLimit(text, mode string) (jatah.Limit, error) {
	if !strings.Contains(text, "mode=") {
		text += ",mode=" + mode
	}
	cfg, err := config.Merge(nil, nil, []config.Setting{{Flag: "--limit", Field: "limits", Value: text}})
	if err != nil {
		return jatah.Limit{}, err
	}
	if len(cfg.Limits) != 1 {
		return jatah.Limit{}, fmt.Errorf("--limit has %d limits: the demo shows one", len(cfg.Limits))
	}
	if l := cfg.Limits[0]; l.Algorithm != "" && l.Algorithm != jatah.TokenBucket || len(l.Rates) > 0 {
		return l, errors.New("--limit is no plain token_bucket: the demo's verdict is about one rate and a burst; try others with `jatah serve --limit ...`")
	}
	if cfg.Limits[0].Rate.Count == 0 {
		return jatah.Limit{}, errors.New("--limit has the rate 0, which admits nothing: there would be nothing to see")
	}
	return cfg.Limits[0], nil
}

// withoutSettings keeps what this shell has set for its own node from the
// nodes of the demo.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool { return strings.HasPrefix(e, "JATAH_") })
}

// isTerminal says whether escape codes are welcome; see https://no-color.org.
func isTerminal(out io.Writer, environ []string) bool {
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); name == "NO_COLOR" && value != "" || name == "TERM" && value == "dumb" {
			return false
		}
	}
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
