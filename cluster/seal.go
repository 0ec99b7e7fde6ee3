package cluster

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"sync"
	"sync/atomic"
)

// Our packets share a socket with memberlist's and never enter its queues. The first byte tells them apart: memberlist's begin
// with that of its label (244), or where there is none with the number of a version or message, below 20.
//
//	plain:  0xb5, length of the label, label, CRC-32C of the packet, packet
//	sealed: 0xb6, salt (16), nonce (12), packet under AES-GCM, tag (16)
//
// A sealed one is under a key made of the secret, the salt and the label. So it can be read only with the same secret in a
// cluster of the same name, and no nonce ever meets one that memberlist drew for the secret itself. Each process draws a salt of its
// own, and another one with each incarnation; a nonce is a counter and 32 random bits. The counter alone makes it unique, but for a
// machine that is copied while it runs: there the random bits do until the copy has found out and renewed its incarnation.
const (
	plainDatagram  = 0xb5
	sealedDatagram = 0xb6

	saltSize   = 16
	nonceSize  = 12
	tagSize    = 16
	sealedHead = 1 + saltSize + nonceSize

	// sendersKept bounds the keys kept for reading; beyond it they are made anew as they are needed.
	sendersKept = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ours says whether a datagram is one of this package's.
func ours(b []byte) bool { return len(b) > 0 && (b[0] == plainDatagram || b[0] == sealedDatagram) }

// sealing is how one process's datagrams are made and read. Writing and changing the secrets is safe for concurrent use, reading is not.
type sealing struct {
	label   string
	plain   bool // without a secret, which does not change
	secrets atomic.Pointer[[][]byte]
	writer  atomic.Pointer[sealer]
	change  sync.Mutex // one change of the writer at a time

	readers map[[saltSize]byte]cipher.AEAD
	made    *[][]byte // the secrets that readers were made of
}

// sealer makes datagrams under one salt.
type sealer struct {
	salt  [saltSize]byte
	aead  cipher.AEAD
	count atomic.Uint64
}

func newSealing(label string, secrets [][]byte) (*sealing, error) {
	s := &sealing{label: label, plain: len(secrets) == 0, readers: make(map[[saltSize]byte]cipher.AEAD)}
	return s, s.set(secrets)
}

// set changes the secrets. What was sealed with one that is gone is refused from the next datagram on.
func (s *sealing) set(secrets [][]byte) error {
	s.change.Lock()
	defer s.change.Unlock()
	before := s.secrets.Load()
	s.secrets.Store(&secrets)
	if before != nil && len(secrets) > 0 && bytes.Equal((*before)[0], secrets[0]) {
		return nil
	}
	return s.renewLocked()
}

// accepted are the secrets. They must not be changed.
func (s *sealing) accepted() [][]byte { return *s.secrets.Load() }

// renew begins to seal under another salt.
func (s *sealing) renew() error {
	s.change.Lock()
	defer s.change.Unlock()
	return s.renewLocked()
}

func (s *sealing) renewLocked() error {
	if s.plain {
		return nil
	}
	w := &sealer{}
	_, _ = rand.Read(w.salt[:]) // never fails, see crypto/rand
	var err error
	if w.aead, err = s.key(s.accepted()[0], w.salt[:]); err != nil {
		return err
	}
	s.writer.Store(w)
	return nil
}

func (s *sealing) key(secret, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, salt, "jatah datagram\x00"+s.label, len(secret))
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// head is how many bytes come before the packet in a datagram, and tail how many after it.
func (s *sealing) head() int {
	if !s.plain {
		return sealedHead
	}
	return 1 + 1 + len(s.label) + crc32.Size
}

func (s *sealing) tail() int {
	if !s.plain {
		return tagSize
	}
	return 0
}

// seal makes a datagram of b, which has the packet after head bytes of any content. It works in place and may move b to grow it by tail.
func (s *sealing) seal(b []byte) []byte {
	head := s.head()
	w := s.writer.Load()
	if w == nil {
		b[0], b[1] = plainDatagram, byte(len(s.label))
		copy(b[2:], s.label)
		binary.BigEndian.PutUint32(b[head-crc32.Size:], crc32.Checksum(b[head:], castagnoli))
		return b
	}
	b[0] = sealedDatagram
	copy(b[1:], w.salt[:])
	nonce := b[sealedHead-nonceSize : sealedHead]
	_, _ = rand.Read(nonce[:4])
	binary.BigEndian.PutUint64(nonce[4:], w.count.Add(1))
	return w.aead.Seal(b[:head], nonce, b[head:], nil)
}

// open gives the packet of a datagram, which it changes; false: it is not whole, or not of a process of this cluster with one of our secrets.
func (s *sealing) open(b []byte) ([]byte, bool) {
	if s.plain {
		return s.openPlain(b)
	}
	secrets := s.secrets.Load()
	if secrets != s.made {
		clear(s.readers) // some may be of a secret that is not accepted any more
		s.made = secrets
	}
	if len(b) < sealedHead+tagSize || b[0] != sealedDatagram {
		return nil, false
	}
	salt := [saltSize]byte(b[1:])
	nonce, sealed := b[sealedHead-nonceSize:sealedHead], b[sealedHead:]
	if aead := s.readers[salt]; aead != nil {
		packet, err := aead.Open(sealed[:0], nonce, sealed, nil)
		return packet, err == nil
	}
	for _, secret := range *secrets {
		aead, err := s.key(secret, b[1:1+saltSize])
		if err != nil {
			return nil, false
		}
		// Not in place: what fails to open is cleared, and the next key is to be tried.
		packet, err := aead.Open(nil, nonce, sealed, nil)
		if err != nil {
			continue
		}
		if len(s.readers) >= sendersKept {
			clear(s.readers)
		}
		s.readers[salt] = aead
		return packet, true
	}
	return nil, false
}

func (s *sealing) openPlain(b []byte) ([]byte, bool) {
	head := s.head()
	if len(b) < head || b[0] != plainDatagram || int(b[1]) != len(s.label) || string(b[2:2+len(s.label)]) != s.label {
		return nil, false
	}
	return b[head:], binary.BigEndian.Uint32(b[head-crc32.Size:]) == crc32.Checksum(b[head:], castagnoli)
}
