package main

import (
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// withoutDescriptors calls f while this process can open nothing.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// A process without file descriptors knows nothing of its files: they have neither changed nor are they refused.
func TestWithoutDescriptorsNothingIsRefused(t *testing.T) {
	for _, content := range []string{oneLimit, "limits_dir: " + t.TempDir() + "\n" + oneLimit} {
		inReloadRig(t, content, func(t *testing.T, g *reloadRig) {
			g.running()
			time.Sleep(time.Second)
			withoutDescriptors(t, func() {
				time.Sleep(time.Minute)
				g.tell()
				time.Sleep(time.Minute)
			})
			g.expect("nothing was read", 0, 0, "api=5/min")
			if n := strings.Count(g.text.String(), "cannot be looked at for now"); n != 1 || !strings.Contains(g.text.String(), "too many open files") {
				t.Errorf("the log tells of it %d times: %s", n, g.text)
			}
			time.Sleep(time.Minute)
			g.expect("nothing has changed", 0, 0, "api=5/min")
			if text := g.text.String(); strings.Contains(text, "refused") || strings.Contains(text, "reloaded") || !strings.Contains(text, "can be looked at again") {
				t.Errorf("the log: %s", text)
			}
			g.save("jatah.yaml", strings.Replace(content, "5/min", "6/min", 1))
			withoutDescriptors(t, func() {
				g.signals <- syscall.SIGHUP
				synctest.Wait()
				g.expect("a signal that cannot be obeyed yet", 0, 0, "api=5/min")
			})
			time.Sleep(pollTime + time.Second)
			g.expect("a signal that is obeyed as soon as it can be", 1, 0, "api=6/min")
		})
	}
}
