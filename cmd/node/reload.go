package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/cmd/node/internal/watch"
)

const (
	// quietTime is how long the files must stay the same before they are taken: an editor saves in several steps, and of none but the last
	// should anybody hear.
	quietTime = 200 * time.Millisecond
	// restlessness bounds how often files that never stay the same are looked at before they are taken as they are.
	restlessness = 50
	// pollTime is for file systems that do not tell of changes. All that is done is to read the files.
	pollTime = 5 * time.Second
)

// part is something beside the limits that a configuration changes while the node runs. It refuses what it cannot become, and changes nothing; or
// it returns what makes the change, which cannot fail. That is called when all else is agreed, at a moment when the limits of both
// configurations are there.
type part func(next config.Config) (change func(), err error)

// reloader brings a running node to what its files say. Everything is loaded and checked before anything is changed; after a mistake all stays as
// it was. Only run and what it calls use it, apart from the counters.
type reloader struct {
	node     *jatah.Node
	log      *slog.Logger
	parts    []part
	watch    *watch.Watcher // nil: the system tells of nothing
	unwarned bool           // nobody was told yet that a directory cannot be watched
	hangup   <-chan os.Signal
	last     *config.Sources     // read last, whether taken or refused
	blind    bool                // the files could not be read when they were last looked at, for want of file descriptors or the like
	owed     bool                // a hangup was not obeyed for that
	started  config.Config       // as the node was started: some fields of it count until it ends
	current  config.Config       // taken last
	taken    func(config.Config) // is told of each that is taken; nil: nobody is
	counters *reloadCounters
}

func newReloader(node *jatah.Node, sources *config.Sources, cfg config.Config, log *slog.Logger) *reloader {
	return &reloader{node: node, log: log, unwarned: true, last: sources, started: cfg, current: cfg, counters: newReloadCounters(time.Now())}
}

// hangups are the SIGHUPs of this process, if there is something to read again; else they end it, as they end others.
func hangups(sources *config.Sources) chan os.Signal {
	c := make(chan os.Signal, 1)
	if len(sources.Paths()) > 0 {
		signal.Notify(c, syscall.SIGHUP)
	}
	return c
}

// stopTime bounds how long the end of the process waits for a reload: files over a network may keep whoever reads them for ever.
const stopTime = time.Second

// start runs the reloader, if there is something to read again, until ctx ends or stop is called, which waits for it, but for no more than stopTime.
func (r *reloader) start(ctx context.Context, hangup <-chan os.Signal) (stop func()) {
	if len(r.last.Paths()) == 0 {
		return func() {}
	}
	r.hangup = hangup
	var changed <-chan struct{}
	w, err := watch.New()
	if err != nil {
		r.log.Warn("the system does not tell of changed files: they are read from time to time instead", "every", pollTime, "error", err)
	} else {
		r.watch, changed = w, w.Changed()
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx, changed, pollTime)
		if w != nil {
			_ = w.Close() // nothing more is to be told
		}
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(stopTime):
			r.log.Warn("the configuration is still being read; left at that")
		}
	}
}

// run reloads until ctx ends: with each hangup, and when the files have changed, which changed says and which is looked for from time to time.
func (r *reloader) run(ctx context.Context, changed <-chan struct{}, poll time.Duration) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	r.settle(ctx) // they may have changed since they were read
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.hangup:
			r.obey()
			continue
		case <-changed:
			if !r.pause(ctx) {
				return
			}
		case <-ticker.C:
		}
		r.settle(ctx)
	}
}

// settle waits until the files stay the same, and takes them if they are others than before.
func (r *reloader) settle(ctx context.Context) {
	s := r.read()
	if r.sees(s) && r.owed {
		r.obey()
		return
	}
	for i := 0; !same(s, r.last); i++ {
		if !r.sees(s) || !r.pause(ctx) {
			return
		}
		again := r.read()
		if (same(again, s) || i >= restlessness) && !same(again, r.last) { // a hangup may have taken them
			if r.sees(again) {
				r.reload("the files changed", again)
			}
			return
		}
		s = again
	}
}

// pause waits for quietTime, or until a hangup has been obeyed: who sends one knows that the files are complete. False: ctx has ended.
func (r *reloader) pause(ctx context.Context) bool {
	t := time.NewTimer(quietTime)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-r.hangup:
		r.obey()
	case <-t.C:
	}
	return true
}

// obey makes the files count that a hangup is about, as soon as they can be read.
func (r *reloader) obey() {
	s := r.readAtOnce()
	if r.owed = !r.sees(s); !r.owed {
		r.reload("SIGHUP", s)
	}
}

// sees says whether a reading shows the files as they are. One that failed for want of something else is no reason to refuse them.
func (r *reloader) sees(s *config.Sources) bool {
	err := s.Starved()
	switch was := r.blind; {
	case err != nil && !was:
		r.log.Warn("the configuration cannot be looked at for now: what counts stays, and it is tried again", "every", pollTime, "error", err)
	case err == nil && was:
		r.log.Info("the configuration can be looked at again")
	}
	r.blind = err != nil
	return err == nil
}

func same(a, b *config.Sources) bool { return a.Fingerprint() == b.Fingerprint() }

// read reads the files anew. They are watched before, so that no change after it is missed, and what they lead to afterwards.
func (r *reloader) read() *config.Sources {
	r.arm(r.last)
	s := r.last.Again()
	r.arm(s)
	return s
}

// readAtOnce reads files that go together, without waiting for those who write them.
func (r *reloader) readAtOnce() *config.Sources {
	s := r.read()
	for range restlessness {
		again := r.read()
		if same(again, s) {
			break
		}
		s = again
	}
	return s
}

func (r *reloader) arm(s *config.Sources) {
	if r.watch == nil {
		return
	}
	if err := r.watch.Watch(s.Paths()); err != nil && r.unwarned {
		r.unwarned = false
		r.log.Warn("a directory of the configuration cannot be watched: its files are read from time to time instead", "every", pollTime, "error", err)
	}
}

// reload makes the files count, or says why not.
func (r *reloader) reload(why string, s *config.Sources) {
	r.last = s
	before := r.current
	err := r.apply(s)
	r.counters.note(time.Now(), err == nil)
	if err != nil {
		r.logRefusal(why, err)
		r.node.Note(jatah.Event{Kind: "reload refused", Warn: true, Text: "the configuration was refused and nothing changed: " + err.Error()})
		return
	}
	change := describeChange(before.Limits, r.current.Limits)
	r.log.Info("configuration reloaded", append([]any{"why", why}, change...)...)
	r.node.Note(jatah.Event{Kind: "reload", Text: "the configuration was reloaded (" + why + ")" + describeEvent(change)})
	if fields := config.NeedRestart(r.started, r.current); len(fields) > 0 {
		r.log.Warn("restart the node for some settings to count: they differ from those it was started with", "settings", fields)
	}
}

// logRefusal has a line for each mistake, so that every place can be found.
func (r *reloader) logRefusal(why string, err error) {
	lines := []string{err.Error()}
	var all config.Problems
	if errors.As(err, &all) {
		lines = nil
		for _, p := range all[:min(len(all), mostNames)] {
			lines = append(lines, p.Error())
		}
		if more := len(all) - len(lines); more > 0 {
			lines = append(lines, fmt.Sprintf("%d more mistakes; `jatah check` shows all", more))
		}
	}
	for _, line := range lines {
		r.log.Error("configuration refused, nothing was changed", "why", why, "error", line)
	}
}

func (r *reloader) apply(s *config.Sources) error {
	if err := s.Emptied(); err != nil {
		return err
	}
	next, err := s.Config()
	if err != nil {
		return err
	}
	var changes []func()
	for _, prepare := range r.parts {
		change, err := prepare(next)
		if err != nil {
			return err
		}
		changes = append(changes, change)
	}
	if err := r.setLimits(next.Limits, changes); err != nil {
		return s.Blame(err)
	}
	r.current = next
	if r.taken != nil {
		r.taken(next)
	}
	return nil
}

// setLimits changes the limits, and the parts while those of both configurations are there: a part may use a limit that goes until it has
// changed, and one that comes as soon as it has. An error means that nothing was changed.
func (r *reloader) setLimits(next []jatah.Limit, changes []func()) error {
	_, gone, _ := compareLimits(r.current.Limits, next)
	both := slices.Clone(next)
	for _, l := range r.current.Limits {
		if slices.Contains(gone, l.Name) {
			both = append(both, l)
		}
	}
	err := r.node.SetLimits(both...)
	if err != nil && len(gone) > 0 {
		// It may be that those which go do not fit under what their parents become, and that is no reason to refuse the others.
		err = r.node.SetLimits(next...)
	}
	if err != nil {
		return err
	}
	for _, change := range changes {
		change()
	}
	if len(gone) == 0 {
		return nil
	}
	return r.node.SetLimits(next...)
}

// compareLimits names the limits by what becomes of them, in the order of their names.
func compareLimits(before, after []jatah.Limit) (added, removed, changed []string) {
	old := make(map[string]jatah.Limit, len(before))
	for _, l := range before {
		old[l.Name] = l
	}
	for _, l := range after {
		was, known := old[l.Name]
		switch delete(old, l.Name); {
		case !known:
			added = append(added, l.Name)
		case !was.Equal(l):
			changed = append(changed, l.Name)
		}
	}
	for name := range old {
		removed = append(removed, name)
	}
	slices.Sort(added)
	slices.Sort(removed)
	slices.Sort(changed)
	return added, removed, changed
}

// describeChange is what a log line says of a change of limits.
func describeChange(before, after []jatah.Limit) (attrs []any) {
	added, removed, changed := compareLimits(before, after)
	for _, kind := range []struct {
		what  string
		names []string
	}{{"added", added}, {"removed", removed}, {"changed", changed}} {
		if n := len(kind.names); n > mostNames {
			kind.names = append(kind.names[:mostNames:mostNames], fmt.Sprintf("and %d more", n-mostNames))
		}
		if len(kind.names) > 0 {
			attrs = append(attrs, kind.what, kind.names)
		}
	}
	return append(attrs, "limits", len(after))
}

// describeEvent says it in words.
func describeEvent(change []any) string {
	var b strings.Builder
	for i := 0; i+1 < len(change); i += 2 {
		if names, ok := change[i+1].([]string); ok {
			fmt.Fprintf(&b, "; %s: %s", change[i], strings.Join(names, ", "))
		}
	}
	if b.Len() == 0 {
		return "; no limit changed"
	}
	return b.String()
}

// mostNames is how many names a log line has of each kind, and how many mistakes are logged of one file.
const mostNames = 20
