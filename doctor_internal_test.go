package jatah

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/cluster"
)

// well is a node with nothing wrong.
func well() *checkup {
	return &checkup{Version: "v1", Addr: "10.0.0.1:7946", Protocol: 2, Members: []string{"n1", "n2"}, PacketSize: 1400,
		BufferWanted: 4 << 20, BufferGiven: 4 << 20, Files: 30, FilesMax: 1024, MemoryUsed: 100 << 20, MemoryMax: 500 << 20, MemoryGo: 450 << 20}
}

// TestFindingsOfANode: each fact by itself, on n2 of n1 and n2.
func TestFindingsOfANode(t *testing.T) {
	reach := cluster.Reach{Packet: true, Full: true, Stream: true}
	for _, c := range []struct {
		name   string
		change func(w *ward, c *checkup)
		check  string // "": nothing is found
		note   bool
		want   string
	}{
		{"well", func(*ward, *checkup) {}, "", false, ""},
		{"clock", func(_ *ward, c *checkup) { c.ahead, c.unsure = -3*time.Second, 100*time.Millisecond }, "clock", false, "The clock of n2 is 3s behind that of n1."},
		{"clock, as far as can be told", func(_ *ward, c *checkup) { c.ahead, c.unsure = 900*time.Millisecond, 450*time.Millisecond }, "", false, ""},
		{"step", func(_ *ward, c *checkup) { c.Step = -2 * time.Second }, "clock", true, "set back by 2s"},
		{"small buffer", func(_ *ward, c *checkup) { c.BufferGiven = 208 << 10 }, "buffer", true, "of 4096 KiB and got 208 KiB; no packet was dropped"},
		{"too small buffer", func(_ *ward, c *checkup) { c.BufferGiven, c.BufferDrops = 208<<10, 7 }, "buffer", false, "dropped 7 packets"},
		{"late reader", func(_ *ward, c *checkup) { c.BufferDrops = 7 }, "buffer", true, "dropped 7 packets"},
		{"no buffer known", func(_ *ward, c *checkup) { c.BufferGiven, c.BufferWanted = 0, 0 }, "", false, ""},
		{"files", func(_ *ward, c *checkup) { c.Files = 900 }, "files", false, "900 files"},
		{"no GOMEMLIMIT", func(_ *ward, c *checkup) { c.MemoryGo = 0 }, "memory", true, "nine tenths of that: 450MiB"},
		{"no GOMEMLIMIT and half used", func(_ *ward, c *checkup) { c.MemoryGo, c.MemoryUsed = 0, 300<<20 }, "memory", false, "GOMEMLIMIT is not set"},
		{"GOMEMLIMIT above", func(_ *ward, c *checkup) { c.MemoryGo = 600 << 20 }, "memory", false, "600 MiB, is above"},
		{"full", func(_ *ward, c *checkup) { c.MemoryUsed = 490 << 20 }, "memory", false, "uses 490 MiB of the 500 MiB"},
		{"asks", func(_ *ward, c *checkup) { c.Asks, c.AsksResent = 2000, 300 }, "asks", true, "repeat 300 of 2000"},
		{"few asks", func(_ *ward, c *checkup) { c.Asks, c.AsksResent = 20, 15 }, "", false, ""},
		{"state", func(_ *ward, c *checkup) { c.StateFailures = 3 }, "state", false, "could not write its state 3 times"},
		{"version", func(_ *ward, c *checkup) { c.Version = "v2" }, "versions", true, "n1: v1, protocol 2; n2: v2, protocol 2"},
		{"view", func(_ *ward, c *checkup) { c.Members = []string{"n2"} }, "views", false, "n1 does not count as a member with n2"},
		{"TCP", func(_ *ward, c *checkup) { c.Links[0].Reach.Stream = false }, "streams", false, "TCP from n2 to n1 is closed"},
		{"silent", func(_ *ward, c *checkup) { c.Links[0].Silent = 4 * time.Second }, "silence", false, "n1 has answered no report of n2 for 4s"},
		{"not ready", func(w *ward, _ *checkup) { w.info.Ready, w.info.Reason = false, "settling" }, "members", false, "not ready to decide: settling"},
		{"missing", func(w *ward, _ *checkup) { w.missing["n3"] = ErrNoAnswer }, "members", false, "n3 counts as a member and has not answered n1"},
		{"old", func(w *ward, _ *checkup) { w.missing["n3"] = ErrUnknownTopic }, "versions", true, "n3 is of a version"},
	} {
		w := ward{asker: "n1", info: Info{Ready: true, K: 2, Members: []MemberInfo{{Name: "n1", State: Alive}, {Name: "n2", State: Alive}}},
			reports: map[string]*checkup{"n1": well(), "n2": well()}, missing: map[string]error{}}
		w.reports["n1"].Links = []linkup{{To: "n2", Addr: "10.0.0.2:7946", Reach: reach}}
		w.reports["n2"].Links = []linkup{{To: "n1", Addr: "10.0.0.1:7946", Reach: reach}}
		c.change(&w, w.reports["n2"])
		got := w.findings()
		if c.check == "" {
			if len(got) > 0 {
				t.Errorf("%s: %+v", c.name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Check != c.check || got[0].Note != c.note || !strings.Contains(got[0].Problem+" "+got[0].Advice, c.want) || got[0].Advice == "" {
			t.Errorf("%s: %+v; want %q", c.name, got, c.want)
		}
		if len(got) > 0 && !slices.IsSorted(got[0].Nodes) {
			t.Errorf("%s: the nodes are not sorted: %v", c.name, got[0].Nodes)
		}
	}
}

// TestManyFindingsOfAKindAreCounted, and problems come before notes.
func TestManyFindingsOfAKindAreCounted(t *testing.T) {
	all := []Finding{{Check: "clock", Note: true}}
	for range mostFindings + 5 {
		all = append(all, Finding{Check: "packets"})
	}
	all = append(all, Finding{Check: "limits"})
	got := ordered(all)
	if len(got) != 1+mostFindings+1+1 || got[0].Check != "limits" || !strings.Contains(got[1+mostFindings].Problem, "5 more") || !got[len(got)-1].Note {
		t.Errorf("%+v", got)
	}
}

// TestAnExaminationIsShared by all who ask within a second, also while it runs.
func TestAnExaminationIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e exams
		var made atomic.Int64
		examine := func(context.Context) checkup {
			time.Sleep(100 * time.Millisecond)
			return checkup{Asks: uint64(made.Add(1))}
		}
		ask := func(want uint64) {
			if c, err := e.recent(t.Context(), examine); err != nil || c.Asks != want {
				t.Errorf("examination %d, want %d (%v)", c.Asks, want, err)
			}
		}
		for range 3 {
			go ask(1)
		}
		ask(1)
		time.Sleep(800 * time.Millisecond)
		ask(1)
		time.Sleep(200 * time.Millisecond)
		ask(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		time.Sleep(time.Second)
		if _, err := e.recent(ctx, examine); err == nil {
			t.Error("an asker whose time is over waits on")
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

// TestDigestsTellDefinitionsApart, and do not change with fields that are not used.
func TestDigestsTellDefinitionsApart(t *testing.T) {
	a := Limit{Name: "api", Rate: PerMinute(5), Overrides: []Override{{Key: "vip", Rate: PerSecond(1)}}}
	b := a
	b.Overrides = []Override{{Key: "vip", Rate: PerSecond(2)}}
	same := a
	same.Costs, same.Plans = map[string]int64{}, map[string]Plan{}
	if digestLimit(a) != digestLimit(same) || digestLimit(a) == digestLimit(b) || digestLimit(a) == digestLimit(Limit{Name: "api", Rate: PerMinute(5)}) {
		t.Error(digestLimit(a), digestLimit(same), digestLimit(b))
	}
}

func TestClocksAreComparedAtTheMiddle(t *testing.T) {
	sent := time.Now()
	c := checkup{Took: 2 * time.Second, Wall: sent.Add(2*time.Second + 50*time.Millisecond + time.Minute).UnixNano()}
	c.compareClock(sent, sent.Add(2*time.Second+100*time.Millisecond))
	if off := (c.ahead - time.Minute).Abs(); off > time.Millisecond || c.unsure != 50*time.Millisecond {
		t.Errorf("%v ahead, give or take %v", c.ahead, c.unsure)
	}
}

// TestACheckupOfALaterVersionIsRead, padded or not; what is none is an error.
func TestACheckupOfALaterVersionIsRead(t *testing.T) {
	b, err := json.Marshal(well())
	if err != nil {
		t.Fatal(err)
	}
	later := append([]byte(`{"Novel":[{"x":1}],`), b[1:]...)
	c, err := readCheckup(append(later, slices.Repeat([]byte{' '}, 2000)...))
	if err != nil || c.Files != 30 || !slices.Equal(c.Members, well().Members) {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{"", "{", `{"Links":7}`, "[]"} {
		if _, err := readCheckup([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
