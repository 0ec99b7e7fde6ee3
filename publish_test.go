package jatah

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/cluster"
)

func mustPublish(t *testing.T, n *Node, l Limit) *Limiter {
	t.Helper()
	x, err := n.Publish(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func hourly(name string, burst int64) Limit {
	return Limit{Name: name, Rate: PerHour(burst), Burst: burst}
}

// One node without a network publishes too, and what was used stays used through all that can happen to a definition.
func TestPublishAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, log := begin(t, "", "n1")
		x := mustPublish(t, n, hourly("api", 10))
		used := func(want int64, published bool) {
			t.Helper()
			now, ok := n.Lookup("api")
			if !ok || n.Published("api") != published {
				t.Fatalf("there %v, published %v", ok, n.Published("api"))
			}
			if got := remaining(t, now, "k"); got != want {
				t.Errorf("%d remain, want %d", got, want)
			}
		}
		x.Take(t.Context(), "k", 4)
		used(6, true)
		if y := mustPublish(t, n, hourly("api", 8)); y != x {
			t.Error("another handle")
		}
		used(6, true)
		if n.RemoveLimit("api") {
			t.Error("RemoveLimit removed what was published")
		}
		// The program's own takes over and hands over again.
		if _, err := n.Limit(hourly("api", 7)); err != nil {
			t.Fatal(err)
		}
		used(6, false)
		if !strings.Contains(log.String(), "its own definition counts here") {
			t.Errorf("nothing is said: %s", log)
		}
		for _, err := range []error{func() error { _, err := n.Publish(t.Context(), hourly("api", 9)); return err }(), n.Unpublish(t.Context(), "api")} {
			if !errors.Is(err, ErrDefined) {
				t.Errorf("%v", err)
			}
		}
		used(6, false)
		if !n.RemoveLimit("api") {
			t.Error("there was one")
		}
		used(6, true)
		if l := x.Limit(); l.Burst != 8 {
			t.Errorf("burst %d", l.Burst)
		}
		if err := n.Unpublish(t.Context(), "api"); err != nil {
			t.Fatal(err)
		}
		if _, ok := n.Lookup("api"); ok || n.Published("api") {
			t.Error("still there")
		}
		if err := n.Unpublish(t.Context(), "api"); !errors.Is(err, ErrUnknownLimit) {
			t.Errorf("%v", err)
		}
		if err := n.Unpublish(t.Context(), "day"); !errors.Is(err, ErrDefined) {
			t.Errorf("%v", err)
		}
		n.Close()
		if _, err := n.Publish(t.Context(), hourly("late", 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if err := n.Unpublish(t.Context(), "late"); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// What is wrong with a limit is said before anything changes.
func TestPublishChecksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := begin(t, "", "n1")
		x := mustPublish(t, n, hourly("api", 10))
		x.Take(t.Context(), "k", 4)
		for _, bad := range []Limit{
			{Name: "a b", Rate: PerSecond(1)},
			{Name: "api", Rate: PerHour(20), Parent: "none"},
			{Name: "api", Rate: PerHour(20), Parent: "api"},
			{Name: "api", Rate: PerHour(20), Algorithm: "none"},
			{Name: "new", Rate: PerHour(20), Parent: "none"},
		} {
			if _, err := n.Publish(t.Context(), bad); !errors.Is(err, ErrLimit) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		huge := hourly("api", 10)
		huge.Costs = map[string]int64{}
		for i := range 100 {
			huge.Costs[fmt.Sprint(i, strings.Repeat("x", 900))] = 1
		}
		if _, err := n.Publish(t.Context(), huge); !errors.Is(err, ErrFull) {
			t.Errorf("%v", err)
		}
		if y, ok := n.Lookup("api"); !ok || y != x || remaining(t, x, "k") != 6 || !n.Published("api") || len(x.Limit().Costs) > 0 {
			t.Errorf("it changed: %v %+v", ok, x.Limit())
		}
		if _, ok := n.Lookup("new"); ok {
			t.Error("defined after all")
		}
	})
}

// A limit that counts permits can take the place of one that counts tokens, and the reverse, when it is published anew.
func TestPublishAnotherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := begin(t, "", "n1")
		kinds := []Limit{hourly("x", 5), {Name: "x", Algorithm: Concurrency, Max: 3}, hourly("x", 6)}
		for _, l := range kinds {
			if x := mustPublish(t, n, l); x.Limit().Algorithm != map[bool]string{true: Concurrency, false: TokenBucket}[l.Max > 0] {
				t.Errorf("%+v", x.Limit())
			}
		}
		if _, err := n.Limit(kinds[1]); err != nil || n.Published("x") {
			t.Fatalf("%v", err)
		}
		if err := n.SetLimits(); err != nil || !n.Published("x") {
			t.Errorf("%v", err)
		}
		if x, ok := n.Lookup("x"); !ok || x.Limit().Burst != 6 {
			t.Error("the published one has not taken over")
		}
		if err := n.SetLimits(kinds[1], hourly("bad", -1)); !errors.Is(err, ErrLimit) || !n.Published("x") {
			t.Errorf("%v, published %v", err, n.Published("x"))
		}
		if err := n.SetLimits(kinds[1], Limit{Name: "child", Rate: PerHour(1), Parent: "none"}); !errors.Is(err, ErrLimit) || !n.Published("x") {
			t.Errorf("%v, published %v", err, n.Published("x"))
		}
		if err := n.SetLimits(kinds[1]); err != nil || n.Published("x") {
			t.Errorf("%v, published %v", err, n.Published("x"))
		}
	})
}

// What a program cannot define takes nothing from a published limit of the name: its permits stay held, and who has them can give them back.
func TestARefusedDefinitionLeavesThePublishedOneAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := begin(t, "", "n1")
		x := mustPublish(t, n, Limit{Name: "x", Algorithm: Concurrency, Max: 1})
		p, d := x.Acquire(t.Context(), "k", 0)
		if !d.OK {
			t.Fatalf("%+v", d)
		}
		orphan := Limit{Name: "x", Rate: PerHour(5), Parent: "none"}
		_, alone := n.Limit(orphan)
		for what, err := range map[string]error{
			"itself": alone, "of a set": n.SetLimits(orphan), "for another of the set": n.SetLimits(hourly("x", 5), Limit{Name: "y", Rate: PerHour(5), Parent: "none"}),
		} {
			if !errors.Is(err, ErrLimit) {
				t.Errorf("refused for %s: %v", what, err)
			}
		}
		if now, ok := n.Lookup("x"); !ok || now != x || !n.Published("x") {
			t.Fatal("it is gone, or another")
		}
		if _, d := x.Acquire(t.Context(), "k", 0); d.OK || d.Err != nil {
			t.Errorf("a second permit of one: %+v", d)
		}
		if err := p.Release(t.Context()); err != nil {
			t.Errorf("its permits are not known any more: %v", err)
		}
		if y, err := n.Limit(hourly("x", 5)); err != nil || y.Limit().Algorithm != TokenBucket {
			t.Errorf("a good definition: %v", err)
		}
	})
}

// arrive is what another node has said.
func arrive(t *testing.T, n *Node, change func(r *cluster.Register)) {
	t.Helper()
	r := cluster.NewRegister(nil)
	if err := r.Restore(n.pub.reg.Encode()); err != nil {
		t.Fatal(err)
	}
	change(r)
	if err := n.pub.reg.Restore(r.Encode()); err != nil {
		t.Fatal(err)
	}
	n.defining.Lock()
	defer n.defining.Unlock()
	n.adopt(r.Names()...)
}

func put(t *testing.T, r *cluster.Register, ls ...Limit) {
	t.Helper()
	for _, l := range ls {
		b, err := encodeLimit(l)
		if err == nil {
			err = r.Put(l.Name, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Children that arrive before their parents are in use as soon as those are, however deep, and whoever defines them.
func TestPublishedChildrenWaitForTheirParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, log := begin(t, "", "n1")
		chain := []Limit{hourly("a", 5), hourly("b", 6), hourly("c", 7)}
		chain[0].Parent, chain[1].Parent, chain[2].Parent = "b", "c", "d"
		arrive(t, n, func(r *cluster.Register) { put(t, r, chain...) })
		for _, l := range chain {
			if _, ok := n.Lookup(l.Name); ok {
				t.Errorf("%s is in use without its parent", l.Name)
			}
		}
		arrive(t, n, func(r *cluster.Register) { put(t, r, hourly("other", 1)) })
		if got := strings.Count(log.String(), "a published limit is not in use"); got != 3 {
			t.Errorf("said %d times: %s", got, log)
		}
		if _, err := n.Limit(hourly("d", 8)); err != nil {
			t.Fatal(err)
		}
		for _, l := range chain {
			if x, ok := n.Lookup(l.Name); !ok || x.Limit().Parent != l.Parent {
				t.Errorf("%s is not in use", l.Name)
			}
		}
		log.Reset()
		more := []Limit{hourly("e", 5), hourly("f", 6)}
		more[0].Parent = "f"
		arrive(t, n, func(r *cluster.Register) { put(t, r, more...) })
		if _, ok := n.Lookup("e"); !ok || strings.Contains(log.String(), "not in use") {
			t.Errorf("%v: %s", ok, log)
		}
	})
}

// What cannot go together is in use nowhere, whatever arrived first, and what would make it so is refused where it is known.
func TestPublishedLimitsThatGoWithNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := func(l Limit, parent string) Limit {
			l.Parent = parent
			return l
		}
		start := func() *Node {
			n, _, _ := begin(t, "", "n1")
			for _, name := range []string{"a", "b", "c"} {
				mustPublish(t, n, hourly(name, 5))
			}
			mustPublish(t, n, under(hourly("c", 5), "a"))
			return n
		}
		changes := []func(*cluster.Register){
			func(r *cluster.Register) { put(t, r, under(hourly("a", 6), "b")) },
			func(r *cluster.Register) { put(t, r, under(hourly("b", 6), "a")) },
		}
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			n := start()
			for _, i := range order {
				arrive(t, n, changes[i])
			}
			for _, name := range []string{"a", "b", "c"} {
				if _, ok := n.Lookup(name); ok || n.Published(name) {
					t.Errorf("order %v: %s is in use", order, name)
				}
			}
			mustPublish(t, n, hourly("a", 7))
			for _, name := range []string{"a", "b", "c"} {
				if _, ok := n.Lookup(name); !ok {
					t.Errorf("order %v: %s is not in use", order, name)
				}
			}
		}
		n := start()
		for name, l := range map[string]Limit{"itself": under(hourly("a", 5), "c"), "permits": {Name: "a", Algorithm: Concurrency, Max: 1}} {
			if _, err := n.Publish(t.Context(), l); !errors.Is(err, ErrLimit) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := n.Unpublish(t.Context(), "a"); !errors.Is(err, ErrParent) || !strings.Contains(err.Error(), `"c"`) {
			t.Errorf("a parent: %v", err)
		}
		last := "c"
		for i := range 7 {
			name := fmt.Sprint("deep", i)
			mustPublish(t, n, under(hourly(name, 5), last))
			last = name
		}
		if _, err := n.Publish(t.Context(), under(hourly("a", 5), "b")); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), `"deep6"`) {
			t.Errorf("one parent too many, for others: %v", err)
		}
		if x, ok := n.Lookup(last); !ok || x.Limit().Parent != "deep5" {
			t.Error("it changed")
		}
	})
}

// What this version cannot read is kept for others, said once, and not used; what was in use stays.
func TestPublishedLimitsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	n, _, log := begin(t, dir, "n1")
	mustPublish(t, n, hourly("api", 10))
	odd := []byte("\x92\x02\x80 of another version")
	for range 2 {
		arrive(t, n, func(r *cluster.Register) {
			if err := errors.Join(r.Put("api", odd), r.Put("new", odd)); err != nil {
				t.Fatal(err)
			}
		})
	}
	if x, ok := n.Lookup("api"); !ok || x.Limit().Burst != 10 {
		t.Error("what was in use is not")
	}
	if _, ok := n.Lookup("new"); ok || strings.Count(log.String(), "this version cannot read") != 2 {
		t.Errorf("%v: %s", ok, log)
	}
	n.pub.changed()
	n.Close()
	n, _, log = begin(t, dir, "n1")
	if b, _ := n.pub.reg.Get("new"); string(b) != string(odd) {
		t.Errorf("kept as %q", b)
	}
	if strings.Count(log.String(), "cannot read") != 2 {
		t.Errorf("%s", log)
	}
	mustPublish(t, n, hourly("api", 11)) // anew
	if err := n.Unpublish(t.Context(), "new"); err != nil {
		t.Error(err)
	}
}

// A restart keeps what is published and what was removed; a file that cannot be used is set aside, with a line in the log.
func TestPublishedLimitsOnDisk(t *testing.T) {
	dir := t.TempDir()
	n, _, _ := begin(t, dir, "n1")
	x := mustPublish(t, n, hourly("api", 10))
	mustPublish(t, n, hourly("gone", 10))
	old := n.pub.reg.Encode()
	if err := n.Unpublish(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	x.Take(t.Context(), "k", 3)
	name := filepath.Join(dir, "n1.limits")
	crashed, err := os.ReadFile(name) // as it is when the machine stops now
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	if err := os.WriteFile(name, crashed, 0o600); err != nil {
		t.Fatal(err)
	}
	n, _, _ = begin(t, dir, "n1")
	x, ok := n.Lookup("api")
	if !ok || !n.Published("api") || remaining(t, x, "k") != 7 {
		t.Fatalf("after a restart: %v", ok)
	}
	if err := n.pub.reg.Restore(old); err != nil {
		t.Fatal(err)
	}
	if _, ok := n.pub.reg.Get("gone"); ok {
		t.Error("a removed limit is back")
	}
	n.Close()
	for what, data := range map[string][]byte{"torn": crashed[:len(crashed)-9], "another file": []byte("text\n"), "empty": nil,
		"no register": sealed(t, name, n.state.limitsHeader(), []byte("\xc1"))} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		n, _, log := begin(t, dir, "n1")
		if _, ok := n.Lookup("api"); ok || !strings.Contains(log.String(), "set_aside_as") || !strings.Contains(log.String(), "published limits are those that other members have") {
			t.Errorf("%s: %v, %s", what, ok, log)
		}
		n.Close()
	}
}

// What could not be written, as on a full disk, is written as soon as it can be, without another change; at the latest when the node ends.
func TestPublishedLimitsAreWrittenOnceTheDiskHasRoom(t *testing.T) {
	for _, ended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			n, _, log := begin(t, dir, "n1")
			inTheWay := filepath.Join(dir, "n1.limits.tmp")
			if err := os.Mkdir(inTheWay, 0o700); err != nil {
				t.Fatal(err)
			}
			mustPublish(t, n, hourly("api", 10))
			arrive(t, n, func(r *cluster.Register) { put(t, r, hourly("other", 10)) })
			n.pub.changed()
			time.Sleep(2*stateInterval + time.Second)
			synctest.Wait()
			if !strings.Contains(log.String(), "published limits not written") {
				t.Errorf("nothing is said: %s", log)
			}
			if err := os.Remove(inTheWay); err != nil {
				t.Fatal(err)
			}
			if ended {
				n.Close()
			} else {
				time.Sleep(stateInterval + time.Second)
				synctest.Wait()
			}
			r := cluster.NewRegister(nil)
			data, err := os.ReadFile(filepath.Join(dir, "n1.limits"))
			if err == nil {
				data, err = readState(data, n.state.limitsHeader())
			}
			if err == nil {
				err = r.Restore(data)
			}
			if names := r.Names(); err != nil || strings.Join(names, " ") != "api other" {
				t.Errorf("ended %v: %q, %v", ended, names, err)
			}
		})
	}
}

// sealed is a good file with any payload.
func sealed(t *testing.T, name string, h stateHeader, payload []byte) []byte {
	t.Helper()
	if err := replaceSealed(name, h, time.Unix(0, 0), payload); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
