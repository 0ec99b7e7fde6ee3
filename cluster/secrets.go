package cluster

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

const (
	// MaxSecrets is how many secrets a node accepts at once. A change of secrets needs two.
	MaxSecrets = 8
	// fingerprintSize is short, so that it says nothing about a secret but which one it is.
	fingerprintSize = 4
)

// Fingerprint names a secret without giving it away: 8 hexadecimal digits, made of it by HKDF. Two secrets have the same once in four
// thousand millions.
func Fingerprint(secret []byte) string { return hex.EncodeToString(fingerprint(secret)) }

func fingerprint(secret []byte) []byte { return derive(secret, "jatah fingerprint", fingerprintSize) }

// hashSeed is the seed of a cluster that begins with this secret. Its name is part of it, as it is of the keys that datagrams are sealed with.
func hashSeed(secret []byte, label string) uint64 {
	return binary.BigEndian.Uint64(derive(secret, "jatah hash seed\x00"+label, 8))
}

func derive(secret []byte, info string, size int) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, info, size)
	if err != nil {
		panic("cluster: " + err.Error()) // only for more bytes than SHA-256 can give
	}
	return key
}

// fingerprints are those of all secrets, one after the other.
func fingerprints(secrets [][]byte) string {
	var b []byte
	for _, s := range secrets {
		b = append(b, fingerprint(s)...)
	}
	return string(b)
}

// splitFingerprints are fingerprints as they are shown.
func splitFingerprints(s string) (list []string) {
	for one := range slices.Chunk([]byte(s), fingerprintSize) {
		list = append(list, hex.EncodeToString(one))
	}
	return list
}

// checkSecrets says what is wrong with a list, by place and never by content.
func checkSecrets(secrets [][]byte) error {
	if len(secrets) > MaxSecrets {
		return fmt.Errorf("%w: %d secrets, at most %d: drop those that no node uses any more", ErrConfig, len(secrets), MaxSecrets)
	}
	for i, s := range secrets {
		if err := memberlist.ValidateKey(s); err != nil {
			return fmt.Errorf("%w: secret %d has %d bytes, want 16, 24 or 32", ErrConfig, i+1, len(s))
		}
		if slices.ContainsFunc(secrets[:i], func(o []byte) bool { return bytes.Equal(o, s) }) {
			return fmt.Errorf("%w: secret %d is there twice, keep one of them", ErrConfig, i+1)
		}
	}
	return nil
}

// SetSecrets changes the secrets of a node that runs: the first is used from now on, all are accepted, and no other is. What is under way under
// a secret that is accepted before and after the call is not lost. So that nothing is dropped, change them in three steps, each on all nodes
// before the next one: add the new one behind the old, put it first, remove the old. What other members accept is in their Member.Secrets.
//
// Errors: ErrConfig, and nothing is changed, for a malformed list, and where a node is to begin or cease to encrypt: that takes a restart of the
// whole cluster. ErrClosed.
func (c *Cluster) SetSecrets(secrets [][]byte) error {
	if err := checkSecrets(secrets); err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	c.rekey.lock()
	defer c.rekey.unlock()
	before := c.sealing.accepted()
	switch {
	case len(before) == 0 && len(secrets) > 0:
		return fmt.Errorf("%w: this node runs without a secret: stop all nodes to give them one", ErrConfig)
	case len(before) > 0 && len(secrets) == 0:
		return fmt.Errorf("%w: no secret is left: stop all nodes to do without", ErrConfig)
	case slices.EqualFunc(before, secrets, bytes.Equal):
		return nil
	}
	secrets = cloneSecrets(secrets)
	// memberlist accepts old and new ones while the datagrams change, and forgets the old ones last.
	for _, s := range secrets {
		if err := c.keyring.AddKey(s); err != nil {
			return fmt.Errorf("%w: secrets: %w", ErrConfig, err)
		}
	}
	if err := c.sealing.set(secrets); err != nil {
		return fmt.Errorf("%w: secrets: %w", ErrConfig, err)
	}
	if err := useKeys(c.keyring, secrets); err != nil {
		return fmt.Errorf("%w: secrets: %w", ErrConfig, err)
	}
	c.setMeta(func(m *meta) { m.tellSecrets(secrets) })
	return nil
}

// useKeys makes a keyring that has all of these keys, and others, hold these, the first one in use.
//
// A key is removed only from the end: RemoveKey moves what comes after it within the memory that readers of the list look at without a lock. Those
// that stay come to the front by being used, the last of them first; for the microseconds of this a key is in use that the node accepts
// and that others have most likely had for long.
func useKeys(ring *memberlist.Keyring, keys [][]byte) error {
	has := ring.GetKeys()
	stays := func(k []byte) bool {
		return slices.ContainsFunc(keys, func(o []byte) bool { return bytes.Equal(o, k) })
	}
	first := slices.IndexFunc(has, func(k []byte) bool { return !stays(k) })
	if first >= 0 && slices.ContainsFunc(has[first:], stays) {
		for _, k := range slices.Backward(keys[1:]) {
			if err := ring.UseKey(k); err != nil {
				return err
			}
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return err
	}
	for _, k := range slices.Backward(ring.GetKeys()) {
		if stays(k) {
			break
		}
		if err := ring.RemoveKey(k); err != nil {
			return err
		}
	}
	return nil
}

func cloneSecrets(secrets [][]byte) [][]byte {
	list := make([][]byte, len(secrets))
	for i, s := range secrets {
		list[i] = bytes.Clone(s)
	}
	return list
}

// Secrets are those that this node accepts, the one it uses first. They must not be changed.
func (c *Cluster) Secrets() [][]byte { return c.sealing.accepted() }
