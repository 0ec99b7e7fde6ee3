package cluster

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"testing"
	"time"
)

func secret(c byte, size int) []byte { return bytes.Repeat([]byte{c}, size) }

func newSealingFor(t testing.TB, label string, secrets ...[]byte) *sealing {
	t.Helper()
	s, err := newSealing(label, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sealed is a datagram with this packet.
func (s *sealing) sealed(packet []byte) []byte {
	return s.seal(append(make([]byte, s.head()), packet...))
}

func TestDatagramsAreReadWhereTheyAreMeantToBe(t *testing.T) {
	a16, a24, a32, b := secret('a', 16), secret('a', 24), secret('a', 32), secret('b', 16)
	for _, c := range []struct {
		name           string
		writes, reads  [][]byte
		wLabel, rLabel string
		want           bool
	}{
		{"plain", nil, nil, "x", "x", true},
		{"AES-128", [][]byte{a16}, [][]byte{a16}, "x", "x", true},
		{"AES-192", [][]byte{a24}, [][]byte{a24}, "x", "x", true},
		{"AES-256", [][]byte{a32}, [][]byte{a32}, "x", "x", true},
		{"a reader that has the new key as well", [][]byte{a16}, [][]byte{b, a16}, "x", "x", true},
		{"a writer that has changed keys already", [][]byte{b, a16}, [][]byte{a16, b}, "x", "x", true},
		{"another secret", [][]byte{b}, [][]byte{a16}, "x", "x", false},
		{"a longer one of the same bytes", [][]byte{a32}, [][]byte{a16}, "x", "x", false},
		{"sealed in a cluster of another name", [][]byte{a16}, [][]byte{a16}, "x", "y", false},
		{"plain in a cluster of another name", nil, nil, "x", "y", false},
		{"plain in a cluster whose name is longer", nil, nil, "x", "xy", false},
		{"plain where there is a secret", nil, [][]byte{a16}, "x", "x", false},
		{"sealed where there is none", [][]byte{a16}, nil, "x", "x", false},
	} {
		w, r := newSealingFor(t, c.wLabel, c.writes...), newSealingFor(t, c.rLabel, c.reads...)
		for range 3 { // the first makes a key, the others find it
			for _, size := range []int{0, 1, 100, 1400} {
				packet := bytes.Repeat([]byte("p"), size)
				d := w.sealed(packet)
				if len(d) != w.head()+size+w.tail() || !ours(d) {
					t.Errorf("%s: %d bytes became %d", c.name, size, len(d))
				}
				if size > 4 && bytes.Contains(d, packet) != (len(c.writes) == 0) {
					t.Errorf("%s: it is readable, or not", c.name)
				}
				got, ok := r.open(d)
				if ok != c.want || ok && !bytes.Equal(got, packet) {
					t.Errorf("%s: %d bytes: %v, want %v", c.name, size, ok, c.want)
				}
			}
		}
		if kept := len(r.readers); kept > 1 || !c.want && kept > 0 {
			t.Errorf("%s: %d keys are kept", c.name, kept)
		}
	}
}

// Whatever is changed in a datagram, it is refused, by a reader that knows its sender and by one that does not.
func TestDamagedDatagramsAreRefused(t *testing.T) {
	for _, secrets := range [][][]byte{nil, {secret('a', 16)}, {secret('b', 16), secret('a', 16)}} {
		w := newSealingFor(t, "jatah", secrets[max(0, len(secrets)-1):]...)
		knows := newSealingFor(t, "jatah", secrets...)
		good := w.sealed([]byte("some packet"))
		if _, ok := knows.open(bytes.Clone(good)); !ok {
			t.Fatal("the whole one is refused")
		}
		refused := func(what string, d []byte) {
			t.Helper()
			for _, r := range []*sealing{knows, newSealingFor(t, "jatah", secrets...)} {
				if _, ok := r.open(bytes.Clone(d)); ok {
					t.Errorf("%d secrets: %s passes", len(secrets), what)
				}
			}
		}
		for i := range good {
			refused(fmt.Sprint("cut to ", i), good[:i])
			d := bytes.Clone(good)
			d[i] ^= 1 << (i % 8)
			refused(fmt.Sprint("with byte ", i, " changed"), d)
		}
		refused("with a byte more", append(bytes.Clone(good), 0))
		if _, ok := knows.open(bytes.Clone(good)); !ok {
			t.Error("the whole one is refused after the damaged ones")
		}
	}
}

// What the same secret encrypts for memberlist cannot be passed off as ours.
func TestMemberlistsCiphertextIsRefused(t *testing.T) {
	key := secret('a', 16)
	r := newSealingFor(t, "jatah", key)
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	d := append([]byte{sealedDatagram}, make([]byte, saltSize+nonceSize)...)
	for _, label := range []string{"", "jatah"} {
		if _, ok := r.open(gcm.Seal(bytes.Clone(d), d[1+saltSize:], []byte("packet"), []byte(label))); ok {
			t.Errorf("under the secret itself, with label %q", label)
		}
	}
}

func TestNoNonceIsUsedTwice(t *testing.T) {
	s := newSealingFor(t, "jatah", secret('a', 16))
	seen := make(map[string]bool)
	for i := range 3000 {
		if i%1000 == 999 {
			if err := s.renew(); err != nil {
				t.Fatal(err)
			}
		}
		head := string(s.sealed(nil)[1+saltSize+4 : sealedHead]) // the counter
		salt := string(s.writer.Load().salt[:])
		if seen[salt+head] {
			t.Fatalf("datagram %d: %x again", i, head)
		}
		seen[salt+head] = true
	}
}

func TestKeptKeysAreBounded(t *testing.T) {
	key := secret('a', 16)
	r, w := newSealingFor(t, "jatah", key), newSealingFor(t, "jatah", key)
	for i := range sendersKept + 10 {
		if err := w.renew(); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.open(w.sealed(nil)); !ok || len(r.readers) > sendersKept {
			t.Fatalf("sender %d: %v, %d keys are kept", i, ok, len(r.readers))
		}
	}
}

func TestSealingDoesNotAllocate(t *testing.T) {
	for _, secrets := range [][][]byte{nil, {secret('a', 16)}} {
		s := newSealingFor(t, "jatah", secrets...)
		b := make([]byte, s.head()+100, s.head()+100+s.tail())
		s.open(s.seal(bytes.Clone(b))) // the key of the sender
		if n := testing.AllocsPerRun(100, func() {
			if _, ok := s.open(s.seal(b)); !ok {
				t.Fatal("refused")
			}
		}); n != 0 {
			t.Errorf("%d secrets: %v allocations", len(secrets), n)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	plain, sealed := newSealingFor(f, "jatah"), newSealingFor(f, "jatah", secret('a', 16))
	f.Add(plain.sealed([]byte("packet")))
	f.Add(sealed.sealed([]byte("packet")))
	f.Add([]byte{plainDatagram, 255})
	// Readers with a secret that nobody knows: whatever comes, nothing passes.
	other := newSealingFor(f, "jatah", secret('z', 32), secret('y', 16))
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, ok := other.open(bytes.Clone(in)); ok {
			t.Errorf("%x passes", in)
		}
		if packet, ok := plain.open(bytes.Clone(in)); ok && !bytes.Equal(plain.sealed(packet), in) {
			t.Errorf("%x is read otherwise than it is written", in)
		}
	})
}

// A stranger at the network who knows all but the secret cannot make a node take anything for a member's.
func TestForgedDatagramsReachNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		key := secret('a', 16)
		cfg := func(name string) Config {
			c := w.config(name)
			c.Secrets = [][]byte{key}
			return c
		}
		n1, n2 := w.start(1, cfg("n1")), w.start(2, cfg("n2"))
		w.within(time.Minute, "two members", func() bool { return alive("n1 n2", n1, n2) })
		stranger, err := w.net.Transport(at(9))
		if err != nil {
			t.Fatal(err)
		}
		send := func(s *sealing, body string) {
			t.Helper()
			h := header{from: "n1", sender: n1.Incarnation(), receiver: n2.Incarnation()}
			packet := appendPacket(nil, &h, 1, appendFrame(nil, kindMsg, 0, []byte(body)))
			if _, err := stranger.WriteTo(s.sealed(packet), at(2)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		send(newSealingFor(t, "jatah"), "plain")
		send(newSealingFor(t, "jatah", secret('b', 16)), "another secret")
		send(newSealingFor(t, "other", key), "another cluster")
		if n := n2.Stats().DropForeign; n != 3 {
			t.Errorf("%d were dropped, want 3", n)
		}
		send(newSealingFor(t, "jatah", key), "with the secret")
		n2.mu.Lock()
		defer n2.mu.Unlock()
		if len(n2.packets) != 1 || n2.packets[0] != "n1 with the secret" {
			t.Errorf("n2 got %q", n2.packets)
		}
	})
}

// Keys are changed one node at a time: all learn the new one, then each begins to use it.
func TestSecretsCanBeChangedWhileTheClusterRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old, new := secret('a', 16), secret('b', 32)
		cfg := func(name string, secrets ...[]byte) Config {
			c := w.config(name)
			c.Secrets = secrets
			return c
		}
		n1, n2, n3 := w.start(1, cfg("n1", old, new)), w.start(2, cfg("n2", new, old)), w.start(3, cfg("n3", old, new))
		w.within(time.Minute, "three members", func() bool { return alive("n1 n2 n3", n1, n2, n3) })
		for _, from := range []*node{n1, n2, n3} {
			for _, to := range []string{"n1", "n2", "n3"} {
				if to == from.cfg.Name {
					continue
				}
				got, err := from.Call(t.Context(), to, []byte("x"))
				if err != nil || string(got) != "re x" {
					t.Errorf("%s to %s: %q, %v", from.cfg.Name, to, got, err)
				}
			}
			if s := from.Stats(); s.DropForeign != 0 || s.Resends != 0 {
				t.Errorf("%s: dropped %d, sent again %d", from.cfg.Name, s.DropForeign, s.Resends)
			}
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	for _, secrets := range [][][]byte{nil, {secret('a', 16)}, {secret('a', 32)}} {
		b.Run(fmt.Sprintf("secrets=%d", len(bytes.Join(secrets, nil))), func(b *testing.B) {
			s := newSealingFor(b, "jatah", secrets...)
			d := make([]byte, s.head()+200, s.head()+200+s.tail())
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.open(s.seal(d)); !ok {
					b.Fatal("refused")
				}
			}
		})
	}
}
