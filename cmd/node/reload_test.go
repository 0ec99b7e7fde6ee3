package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// reloadRig is a node alone with its reloader, whose files are in dir.
type reloadRig struct {
	*reloader
	t       *testing.T
	dir     string
	text    *logBuffer
	changed chan struct{}
	signals chan os.Signal
}

func newReloadRig(t *testing.T, dir string) *reloadRig {
	t.Helper()
	sources := config.Read(filepath.Join(dir, "jatah.yaml"), nil, nil)
	cfg, err := sources.Config()
	if err != nil {
		t.Fatal(err)
	}
	text := &logBuffer{}
	log := slog.New(slog.NewTextHandler(text, nil))
	cfg.Node.Logger = log
	node, err := startNode(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		node.Close()
		if t.Failed() {
			t.Log(text)
		}
	})
	g := &reloadRig{newReloader(node, sources, cfg, log), t, dir, text, make(chan struct{}, 1), make(chan os.Signal, 1)}
	g.hangup = g.signals
	return g
}

// running runs the reloader until the test ends.
func (g *reloadRig) running() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { g.run(ctx, g.changed, pollTime) })
	g.t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func (g *reloadRig) file(name string) string { return filepath.Join(g.dir, name) }

// save writes a file in one step.
func (g *reloadRig) save(name, content string) {
	g.t.Helper()
	if err := os.WriteFile(g.file(name), []byte(content), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

// tell says that something has changed, as the system does.
func (g *reloadRig) tell() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// expect compares what was done so far and what is in force.
func (g *reloadRig) expect(what string, applied, refused uint64, limits ...string) {
	g.t.Helper()
	c := g.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applied != applied || c.refused != refused {
		g.t.Errorf("%s: %d reloads and %d refusals, want %d and %d", what, c.applied, c.refused, applied, refused)
	}
	var have []string
	for _, l := range g.node.Limits() {
		have = append(have, l.Name+"="+l.Rate.String())
	}
	if !slices.Equal(have, limits) {
		g.t.Errorf("%s: the limits are %q, want %q", what, have, limits)
	}
}

const (
	oneLimit  = "limits:\n  - name: api\n    rate: 5/min\n"
	twoLimits = "limits:\n  - name: api\n    rate: 50/min\n  - name: other\n    rate: 7/min\n"
)

func inReloadRig(t *testing.T, content string, f func(t *testing.T, g *reloadRig)) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jatah.yaml"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { f(t, newReloadRig(t, dir)) })
}

// A reload that hangs, as on files over a network that does not answer, does not keep the process from ending.
func TestAReloadThatHangsDoesNotKeepTheProcess(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jatah.yaml"), []byte(oneLimit), 0o644); err != nil {
		t.Fatal(err)
	}
	g := newReloadRig(t, dir)
	hangs, free := make(chan struct{}), make(chan struct{})
	g.parts = append(g.parts, func(config.Config) (func(), error) {
		close(hangs)
		<-free
		return nil, errors.New("too late")
	})
	stop := g.start(t.Context(), g.signals)
	g.signals <- syscall.SIGHUP
	<-hangs
	stop()
	close(free)
	if !strings.Contains(g.text.String(), "still being read") {
		t.Errorf("nothing is said: %s", g.text)
	}
}

// A save in several steps is one reload, of the last of them.
func TestASaveInSeveralStepsIsOneReload(t *testing.T) {
	inReloadRig(t, oneLimit, func(t *testing.T, g *reloadRig) {
		g.running()
		time.Sleep(time.Second)
		g.expect("nothing has changed", 0, 0, "api=5/min")
		for _, step := range []string{"", "limits:\n  - name: api\n    rate: 50/m", "limits:\n  - name: ap", twoLimits} {
			g.save("jatah.yaml", step)
			g.tell()
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		g.expect("a save in four steps", 1, 0, "api=50/min", "other=7/min")
		if n := strings.Count(g.text.String(), `msg="configuration reloaded" why="the files changed" added=[other] changed=[api] limits=2`); n != 1 {
			t.Errorf("the log tells of it %d times", n)
		}
		for range 20 {
			g.save("jatah.yaml", twoLimits) // the same again
			g.save("jatah.yaml.swp", "x")
			g.tell()
			time.Sleep(130 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		g.expect("nothing but noise", 1, 0, "api=50/min", "other=7/min")
	})
}

func TestChangesAreFoundWithoutBeingTold(t *testing.T) {
	inReloadRig(t, oneLimit, func(t *testing.T, g *reloadRig) {
		g.running()
		g.save("jatah.yaml", twoLimits)
		time.Sleep(pollTime + time.Second)
		g.expect("a change of which nobody tells", 1, 0, "api=50/min", "other=7/min")
	})
}

// What is found missing for a moment is not gone; what stays missing is refused once, and taken when it is back.
func TestAFileThatIsMissing(t *testing.T) {
	inReloadRig(t, oneLimit, func(t *testing.T, g *reloadRig) {
		g.running()
		time.Sleep(time.Second)
		remove := func() {
			if err := os.Remove(g.file("jatah.yaml")); err != nil {
				t.Fatal(err)
			}
			g.tell()
		}
		remove()
		time.Sleep(quietTime + quietTime/2)
		g.save("jatah.yaml", oneLimit)
		time.Sleep(time.Minute)
		g.expect("deleted and made anew", 0, 0, "api=5/min")
		remove()
		time.Sleep(time.Minute)
		g.expect("deleted", 0, 1, "api=5/min")
		if !strings.Contains(g.text.String(), "configuration refused, nothing was changed") || !strings.Contains(g.text.String(), g.file("jatah.yaml")) {
			t.Error("the log does not name the missing file")
		}
		g.save("jatah.yaml", oneLimit)
		g.tell()
		time.Sleep(time.Minute)
		g.expect("back", 1, 1, "api=5/min")
	})
}

func TestSIGHUPReloadsWhateverHasChanged(t *testing.T) {
	inReloadRig(t, oneLimit, func(t *testing.T, g *reloadRig) {
		g.running()
		time.Sleep(time.Second)
		g.signals <- os.Interrupt
		synctest.Wait()
		g.expect("nothing has changed", 1, 0, "api=5/min")
		g.save("jatah.yaml", twoLimits)
		g.signals <- os.Interrupt
		synctest.Wait()
		g.expect("at once", 2, 0, "api=50/min", "other=7/min")
		// Also while the files are waited for: it is for who sends the signal to know that they are complete.
		g.save("jatah.yaml", oneLimit)
		g.tell()
		time.Sleep(quietTime / 2)
		g.signals <- os.Interrupt
		synctest.Wait()
		g.expect("in the quiet time", 3, 0, "api=5/min")
		time.Sleep(time.Minute)
		g.expect("which ends with nothing to do", 3, 0, "api=5/min")
		// Files that change without end are taken as they are, and signals are still heard.
		for i := range 200 {
			g.save("new", strings.ReplaceAll(twoLimits, "7/min", fmt.Sprintf("%d/min", 100+i)))
			if err := os.Rename(g.file("new"), g.file("jatah.yaml")); err != nil { // nobody may find half of it
				t.Fatal(err)
			}
			g.tell()
			time.Sleep(quietTime / 2)
		}
		time.Sleep(time.Minute)
		applied, refused := g.outcomes()
		if applied < 5 || applied > 7 || refused != 0 {
			t.Errorf("%d reloads and %d refusals, with a file that changed for 20 seconds", applied, refused)
		}
		g.expect("in the end", applied, 0, "api=50/min", "other=299/min")
	})
}

// Whatever is wrong with a new configuration, nothing of it counts, and the log has the place.
func TestARefusedConfigurationChangesNothing(t *testing.T) {
	const start = "limits:\n  - {name: jobs, algorithm: concurrency, max: 2}\n"
	for _, c := range []struct {
		name, content string
		want          []string
	}{
		{"a bad value after good ones", twoLimits + "  - name: bad\n    rate: abc\n", []string{`jatah.yaml:7:11: limits[2].rate: `}},
		{"two mistakes", "limits:\n  - name: api\n    rate: 5\n  - name: b\n    rte: 5/s\n", []string{`jatah.yaml:3:11: limits[0].rate: needs a rate`, `jatah.yaml:5:5: limits[1].rte: `}},
		{"an unknown parent", twoLimits + "    parent: apo\n", []string{`jatah.yaml:4:5: limits.other.parent: `}},
		{"nothing at all", "", []string{`jatah.yaml:1:1: the file is empty`}},
		{"a field of the node", "htp: x\n" + twoLimits, []string{`jatah.yaml:1:1: htp: `}},
		{"permits that become tokens", twoLimits + "  - name: jobs\n    rate: 5/s\n", []string{`jatah.yaml:6:5: limits.jobs: it cannot become concurrency`}},
		{"many mistakes", "limits:\n" + strings.Repeat("  - {name: a, rate: 5}\n", mostNames+7), append(slices.Repeat([]string{"limits[0].rate: "}, mostNames), "error=\"7 more mistakes; `jatah check` shows all")},
		{"a directory that is not there", twoLimits + "limits_dir: none\n", []string{`jatah.yaml:6:13: limits_dir: `}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inReloadRig(t, start, func(t *testing.T, g *reloadRig) {
				defined := g.node.Limits()
				g.save("jatah.yaml", c.content)
				g.reload("a test", g.read())
				if got := g.node.Limits(); !slices.EqualFunc(got, defined, jatah.Limit.Equal) {
					t.Errorf("the limits are now %+v", got)
				}
				if g.counters.refused != 1 || g.counters.applied != 0 || g.counters.successful {
					t.Errorf("counted as %+v", g.counters)
				}
				for _, want := range c.want {
					if !strings.Contains(g.text.String(), want) {
						t.Errorf("the log does not say %s", want)
					}
				}
				if n := strings.Count(g.text.String(), "level=ERROR"); n != len(c.want) {
					t.Errorf("%d mistakes are told, want %d", n, len(c.want))
				}
				g.save("jatah.yaml", start+"  - {name: api, rate: 1/s}\n")
				g.reload("a test", g.read())
				var events []string
				for _, e := range g.node.Events(0) {
					if strings.HasPrefix(e.Kind, "reload") {
						events = append(events, e.Kind+": "+e.Text)
					}
				}
				if len(events) != 2 || !strings.HasPrefix(events[0], "reload refused: ") || events[1] != "reload: the configuration was reloaded (a test); added: api" {
					t.Errorf("the events are %q", events)
				}
				if len(g.node.Limits()) != 2 || !g.counters.successful {
					t.Errorf("a good file after the bad one is not taken: %+v", g.node.Limits())
				}
			})
		})
	}
}

func TestSettingsThatNeedARestartAreNamed(t *testing.T) {
	inReloadRig(t, "http: 127.0.0.1:1\n"+oneLimit, func(t *testing.T, g *reloadRig) {
		g.save("jatah.yaml", "http: 127.0.0.1:2\ncluster: {grace: 5s, bind: 127.0.0.1:0}\n"+twoLimits)
		g.reload("a test", g.read())
		g.expect("the limits count", 1, 0, "api=50/min", "other=7/min")
		if !strings.Contains(g.text.String(), "level=WARN") || !strings.Contains(g.text.String(), `settings="[http cluster.bind cluster.grace]"`) {
			t.Error("the log does not name them")
		}
		warned := strings.Count(g.text.String(), "level=WARN")
		g.save("jatah.yaml", "http: 127.0.0.1:1\n"+twoLimits)
		g.reload("a test", g.read())
		if strings.Count(g.text.String(), "level=WARN") != warned {
			t.Error("it is warned of settings that are again what they were")
		}
	})
}

// Parts are asked before anything changes, and change while the limits of both configurations are there.
func TestPartsChangeWithTheLimits(t *testing.T) {
	inReloadRig(t, oneLimit+"  - {name: old, rate: 1/s}\n", func(t *testing.T, g *reloadRig) {
		refuse, present := errors.New("the rules are wrong"), ""
		verdict := refuse
		g.parts = []part{func(next config.Config) (func(), error) {
			if len(next.Limits) != 2 {
				t.Errorf("the part sees %+v", next.Limits)
			}
			return func() {
				for _, l := range g.node.Limits() {
					present += l.Name + " "
				}
			}, verdict
		}}
		g.save("jatah.yaml", twoLimits)
		g.reload("a test", g.read())
		g.expect("a part refuses", 0, 1, "api=5/min", "old=1/s")
		if present != "" || !strings.Contains(g.text.String(), refuse.Error()) {
			t.Errorf("a part that refused has changed: %q", present)
		}
		verdict = nil
		g.reload("a test", g.read())
		g.expect("a part agrees", 1, 1, "api=50/min", "other=7/min")
		if present != "api old other " {
			t.Errorf("when the part changed there were %q", present)
		}
	})
}

// A limit that goes and does not fit under what its parent becomes keeps nobody else from changing.
func TestALimitThatGoesDoesNotStandInTheWay(t *testing.T) {
	chain := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("  - {name: c%d, rate: 1/s, parent: c%d}\n", i, i+1)
		}
		return "limits:\n" + text + fmt.Sprintf("  - {name: c%d, rate: 1/s}\n", n)
	}
	inReloadRig(t, chain(1)+"  - {name: leaf, rate: 1/s, parent: c0}\n", func(t *testing.T, g *reloadRig) {
		g.save("jatah.yaml", chain(8))
		g.reload("a test", g.read())
		if g.counters.applied != 1 || len(g.node.Limits()) != 9 {
			t.Errorf("counted as %+v, with the limits %+v", g.counters, g.node.Limits())
		}
	})
}

// With real notifications: a directory, and the steps in which editors save.
func TestEditorsSaveOnceForOneReload(t *testing.T) {
	dir := t.TempDir()
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(name string) string { return filepath.Join(dir, "d", name) }
	write := func(name, content string) { must(os.WriteFile(file(name), []byte(content), 0o644)) }
	must(os.WriteFile(filepath.Join(dir, "jatah.yaml"), []byte("limits_dir: d\n"), 0o644), os.Mkdir(filepath.Join(dir, "d"), 0o755))
	write("limits.yaml", oneLimit)
	write("README", "limits: [")
	g := newReloadRig(t, dir)
	defer g.start(t.Context(), g.signals)()
	for i, save := range []struct {
		name string
		do   func(content string)
	}{
		{"by writing over", func(content string) { write("limits.yaml", content) }},
		{"by a backup and a new file", func(content string) {
			write("4913", "")
			must(os.Remove(file("4913")))
			write(".limits.yaml.swp", "swap")
			must(os.Rename(file("limits.yaml"), file("limits.yaml~")))
			write("limits.yaml", "")
			write("limits.yaml", content[:len(content)/2])
			write("limits.yaml", content)
			must(os.Chmod(file("limits.yaml"), 0o600), os.Remove(file("limits.yaml~")), os.Remove(file(".limits.yaml.swp")))
		}},
		{"by a temporary file", func(content string) {
			write("limits.yaml.tmp", content)
			must(os.Symlink("me@host.1:2", file(".#limits.yaml")), os.Rename(file("limits.yaml.tmp"), file("limits.yaml")), os.Remove(file(".#limits.yaml")))
		}},
	} {
		for attempt := 0; ; attempt++ {
			rate := fmt.Sprintf("%d/min", 10+i+100*attempt)
			applied, refused := g.outcomes()
			begin := time.Now()
			save.do("limits:\n  - name: api\n    rate: " + rate + "\n")
			took := time.Since(begin)
			wait(t, "the new limit, saved "+save.name, func() bool { l, ok := g.node.Lookup("api"); return ok && l.Limit().Rate.String() == rate })
			before, _ := g.outcomes()
			g.signals <- os.Interrupt // whatever came before it is done
			wait(t, "the reload", func() bool { n, _ := g.outcomes(); return n > before })
			if took >= quietTime { // this machine was busy with something else, so the steps may have been seen one by one
				continue
			}
			if n, no := g.outcomes(); n != applied+2 || no != refused {
				t.Errorf("saved %s: %d reloads and %d refusals, want one, and one by the signal", save.name, n-applied, no-refused)
			}
			break
		}
	}
}

func TestCheckReadsTheDirectoryToo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "jatah.yaml")
	write := func(path, content string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	limits := filepath.Join(dir, "d")
	write(file, "limits_dir: d\n"+oneLimit)
	write(filepath.Join(limits, "README"), "")
	if code, out, text := runCommand(nil, "check", file); code != 0 || !strings.Contains(out, "limits also from "+limits+": no files yet\n") {
		t.Errorf("code %d, %q, %q", code, out, text)
	}
	write(filepath.Join(limits, "a.yaml"), "limits: [{name: a, rate: 1/s}]\n")
	write(filepath.Join(limits, "b.yml"), "limits: []\n")
	if code, out, text := runCommand(nil, "check", file); code != 0 || !strings.Contains(out, "limits also from "+limits+": a.yaml, b.yml\n") || !strings.Contains(out, "limit a: 1/s") {
		t.Errorf("code %d, %q, %q", code, out, text)
	}
	write(filepath.Join(limits, "b.yml"), oneLimit)
	if code, _, text := runCommand(nil, "check", file); code != exitFailed || !strings.Contains(text, "b.yml:2:5: ") || !strings.Contains(text, "line 3 of "+file) {
		t.Errorf("code %d, %q", code, text)
	}
}

func (g *reloadRig) outcomes() (applied, refused uint64) {
	g.counters.mu.Lock()
	defer g.counters.mu.Unlock()
	return g.counters.applied, g.counters.refused
}
