package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemberlistLinesGoToSlog(t *testing.T) {
	for line, want := range map[string]string{
		"[DEBUG] memberlist: Stream connection from=1":                              "DEBUG Stream connection from=1",
		"[ERR] memberlist: Decrypt packet failed: x":                                "WARN Decrypt packet failed: x",
		"[WARN] memberlist: Got ping for unexpected node 'n1/00' from=1.2.3.4:5":    "DEBUG Got ping for unexpected node 'n1/00' from=1.2.3.4:5",
		"[INFO] memberlist: Marking n1/00 as failed, suspect timeout reached (0 x)": "DEBUG Marking n1/00 as failed, suspect timeout reached (0 x)",
		"no level": "INFO no level",
	} {
		level, text := logLevel(line)
		if got := level.String() + " " + text; got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestRepeatedLinesAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLogBridge(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 40 {
			l.Printf("[ERR] memberlist: Conflicting address for n%d. Mine: 10.0.0.%d:1 Theirs: 10.0.0.9:1", i, i)
			time.Sleep(time.Second)
		}
		l.Printf("[ERR] memberlist: Something else")
		if n := strings.Count(out.String(), "Conflicting"); n != 1 {
			t.Errorf("%d lines:\n%s", n, out.String())
		}
		if !strings.Contains(out.String(), "Something else") {
			t.Error("another line was kept back")
		}
		time.Sleep(quietFor)
		l.Printf("[ERR] memberlist: Conflicting address for n1. Mine: x")
		if want := fmt.Sprint("like_it_since=", 39); !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	})
}
