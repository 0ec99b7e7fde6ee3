package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func TestFingerprintsNameSecrets(t *testing.T) {
	a, b := secret('a', 16), secret('b', 16)
	if f := Fingerprint(a); len(f) != 8 || f != Fingerprint(bytes.Clone(a)) || f == Fingerprint(b) || f == Fingerprint(secret('a', 32)) {
		t.Errorf("%q", f)
	}
	want := []string{Fingerprint(a), Fingerprint(b)}
	if got := splitFingerprints(fingerprints([][]byte{a, b})); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if hashSeed(a, "x") == hashSeed(b, "x") || hashSeed(a, "x") == hashSeed(a, "y") {
		t.Error("the seed does not depend on the secret, or not on the label")
	}
}

func TestKeyringsBecomeWhatTheyAreToBe(t *testing.T) {
	k := func(names string) (list [][]byte) {
		for _, c := range names {
			list = append(list, secret(byte(c), 16))
		}
		return list
	}
	for _, c := range [][2]string{{"a", "a"}, {"a", "b"}, {"a", "ab"}, {"ab", "ba"}, {"ba", "b"}, {"abc", "c"}, {"abc", "ac"}, {"abc", "ca"},
		{"abcd", "bd"}, {"abcd", "dxb"}, {"abcdefgh", "hgfedcba"}, {"abcdefgh", "x"}} {
		ring, err := memberlist.NewKeyring(k(c[0]), k(c[0])[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range k(c[1]) {
			if err := ring.AddKey(key); err != nil {
				t.Fatal(err)
			}
		}
		before := ring.GetKeys()
		was := slices.Clone(before)
		if err := useKeys(ring, k(c[1])); err != nil {
			t.Errorf("%s to %s: %v", c[0], c[1], err)
		}
		got := ring.GetKeys()
		same := len(got) == len(c[1]) && bytes.Equal(got[0], k(c[1])[0])
		for _, key := range k(c[1]) {
			same = same && slices.ContainsFunc(got, func(o []byte) bool { return bytes.Equal(o, key) })
		}
		if !same {
			t.Errorf("%s to %s: %q", c[0], c[1], got)
		}
		if !reflect.DeepEqual(before, was) { // memberlist's readers go through such lists without a lock
			t.Errorf("%s to %s: a list that somebody may read has changed", c[0], c[1])
		}
	}
}

func TestBadListsOfSecretsChangeNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := secret('a', 16), secret('b', 32)
		cfg := w.config("n1")
		cfg.Secrets = [][]byte{a}
		n := w.start(1, cfg)
		var many [][]byte
		for i := range MaxSecrets + 1 {
			many = append(many, secret(byte(i), 16))
		}
		for name, list := range map[string][][]byte{"none": nil, "a short one": {a, secret('b', 15)}, "one twice": {a, b, a}, "too many": many} {
			if err := n.SetSecrets(list); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), string(a)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := n.Secrets(); len(got) != 1 || !bytes.Equal(got[0], a) {
			t.Errorf("%q", got)
		}
		mine := bytes.Clone(b)
		if err := n.SetSecrets([][]byte{mine, a}); err != nil {
			t.Fatal(err)
		}
		clear(mine) // the list is the caller's
		if m, _ := n.View().Member("n1"); !slices.Equal(m.Secrets(), []string{Fingerprint(b), Fingerprint(a)}) {
			time.Sleep(time.Second)
			if m, _ = n.View().Member("n1"); !slices.Equal(m.Secrets(), []string{Fingerprint(b), Fingerprint(a)}) {
				t.Errorf("%q", m.Secrets())
			}
		}
		cfg = w.config("n2")
		cfg.Join = nil
		open := w.start(2, cfg)
		if err := open.SetSecrets([][]byte{a}); !errors.Is(err, ErrConfig) {
			t.Errorf("of a node without one: %v", err)
		}
		_ = n.Close()
		if err := n.SetSecrets([][]byte{a}); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// What was sealed with a secret that is gone is refused, also by a reader that has kept its key; what others sealed is read on.
func TestRemovedSecretsAreRefusedAtOnce(t *testing.T) {
	a, b := secret('a', 16), secret('b', 32)
	r, old, next := newSealingFor(t, "x", a, b), newSealingFor(t, "x", a), newSealingFor(t, "x", b)
	for _, w := range []*sealing{old, next} {
		if _, ok := r.open(w.sealed([]byte("p"))); !ok {
			t.Fatal("refused before")
		}
	}
	salt := r.writer.Load().salt
	if err := r.set([][]byte{a}); err != nil {
		t.Fatal(err)
	}
	if r.writer.Load().salt != salt {
		t.Error("a secret that stays in use has another salt")
	}
	if err := r.set([][]byte{b}); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.open(old.sealed([]byte("p"))); ok {
		t.Error("the old one passes")
	}
	if _, ok := r.open(next.sealed([]byte("p"))); !ok {
		t.Error("the new one is refused")
	}
	if _, ok := next.open(r.sealed([]byte("p"))); !ok || r.writer.Load().salt == salt {
		t.Error("the new one is not in use")
	}
}

// Five nodes change their secret one after the other through all three steps, while they talk in packets and streams: nothing is dropped, and
// nothing is sent again.
func TestSecretsChangeWithoutAGap(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old, next := secret('a', 16), secret('b', 32)
		var ns []*node
		for i := range 5 {
			cfg := w.config(fmt.Sprint("n", i+1))
			cfg.Secrets = [][]byte{old}
			ns = append(ns, w.start(i+1, cfg))
		}
		w.within(time.Minute, "five members", func() bool { return alive("n1 n2 n3 n4 n5", ns...) })
		time.Sleep(5 * time.Second)
		var before []Stats
		for _, n := range ns {
			before = append(before, n.Stats())
		}
		done := make(chan bool)
		stop := make(chan bool)
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				from, to := ns[i%5], ns[(i+1+i/5%4)%5].cfg.Name
				req := fmt.Sprint(i)
				if i%10 == 0 {
					req = strings.Repeat("x", 5000) // over a stream
				}
				if _, err := from.Call(t.Context(), to, []byte(req)); err != nil {
					t.Errorf("%s to %s: %v", from.cfg.Name, to, err)
				}
				time.Sleep(3 * time.Millisecond)
			}
		}()
		for _, list := range [][][]byte{{old, next}, {next, old}, {next}} {
			for _, n := range ns {
				if err := n.SetSecrets(list); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			want := splitFingerprints(fingerprints(list))
			w.within(time.Minute, "all tell which secrets they have", func() bool {
				return !slices.ContainsFunc(ns, func(n *node) bool {
					return slices.ContainsFunc(n.View().Members, func(m Member) bool { return !slices.Equal(m.Secrets(), want) })
				})
			})
		}
		close(stop)
		<-done
		for i, n := range ns {
			s, was := n.Stats(), before[i]
			if s.DropForeign+s.DropMalformed+s.DropUnknown+s.Resends+s.SendErrors != was.DropForeign+was.DropMalformed+was.DropUnknown+was.Resends+was.SendErrors ||
				s.DropForeign != 0 || s.Calls < was.Calls+100 {
				t.Errorf("%s: %+v, before %+v", n.cfg.Name, s, was)
			}
			for _, v := range n.views {
				if len(v.Lost) > 0 {
					t.Errorf("%s: lost %s", n.cfg.Name, lostNames(v))
				}
			}
		}
		// Who has the old one only is a stranger now.
		cfg := w.config("n6")
		cfg.Secrets = [][]byte{old}
		if _, err := w.try(6, cfg); !errors.Is(err, ErrSecret) {
			t.Errorf("with the old secret: %v", err)
		}
	})
}
