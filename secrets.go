package jatah

import (
	"fmt"

	"github.com/jatah-io/jatah/cluster"
)

// ApartError is why a node went down that had begun apart from an older cluster, which it has met: see Node.Down. Open it again with Addr among
// Config.Join to join that. It is an ErrMismatch.
type ApartError = cluster.ApartError

// MaxSecrets is how many secrets a node accepts at once.
const MaxSecrets = cluster.MaxSecrets

// Fingerprint names a secret without giving it away, by 8 hexadecimal digits.
func Fingerprint(secret []byte) string { return cluster.Fingerprint(secret) }

// SetSecrets changes Config.Secrets of a node that runs: the first is used from now on, all are accepted, and no other is. So that nothing is
// dropped while a cluster changes them, do it in three steps, each on all nodes before the next: add the new one behind the old, put it first, remove the
// old. MemberInfo.Secrets says how far the others are.
//
// Errors: ErrConfig, and nothing is changed, for a malformed list, and where the node is to begin or cease to encrypt, which takes a stop of
// all nodes; ErrClosed.
func (n *Node) SetSecrets(secrets ...[]byte) error {
	if n.c == nil {
		if len(secrets) == 0 {
			return nil
		}
		return fmt.Errorf("%w: this node is alone, and has nothing to encrypt", ErrConfig)
	}
	before := n.secrets()
	if err := n.c.SetSecrets(secrets); err != nil {
		return err
	}
	if after := n.secrets(); fmt.Sprint(before) != fmt.Sprint(after) {
		n.cfg.Logger.Info("secrets changed", "uses", after[0], "accepts", after, "before", before)
	}
	return nil
}

// secrets are the fingerprints of this node's.
func (n *Node) secrets() (list []string) {
	for _, s := range n.c.Secrets() {
		list = append(list, Fingerprint(s))
	}
	return list
}

// Down is closed when the node has gone down by itself, and Err says why: another process holds its name by now (ErrNameTaken), or it has met an
// older cluster that it began apart from (an *ApartError). It decides on its own share from then on; close it, and open it again.
func (n *Node) Down() <-chan struct{} { return n.downed }

// Err is why the node has gone down by itself; nil: it has not.
func (n *Node) Err() error {
	if err := n.down.Load(); err != nil {
		return *err
	}
	return nil
}
