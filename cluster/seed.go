package cluster

import (
	"cmp"
	"fmt"
	"time"
)

// The hash seed decides which key belongs to which partition and partition to which owner, so all members have the same, and one that
// nobody else knows keeps others from aiming keys at one owner. It lives as long as the cluster does, whatever becomes of the secret that it was made
// of: a process that joins takes over what it finds, before it is a member. Who finds nobody makes one of its first secret.
//
// So processes that begin apart have the same seed as long as their first secrets are the same. Where they are not, or where one of two clusters has
// members that do not make any, two clusters with different seeds can meet. Then the members of one of them give up, so that they are
// started again and join the other one: who has never had another member before who has, so that no cluster goes for one process that began by itself
// with a wrong clock; else those whose seed was made later, by the clocks of those who made them. That may be wrong by what the clocks are
// wrong; but all who compare the same two come to the same answer, and this is all that it takes.

// apart says whether two processes can share no view, as they have different seeds or one has none yet.
func (m *meta) apart(o *meta) bool { return m.Seed != o.Seed || m.extra.Seeking || o.extra.Seeking }

// yields says whether of two clusters with different seeds this one gives up.
func (m *meta) yields(o *meta) bool {
	if m.extra.Lonely != o.extra.Lonely {
		return m.extra.Lonely
	}
	return cmp.Or(cmp.Compare(m.extra.Born, o.extra.Born), cmp.Compare(m.Seed, o.Seed)) > 0
}

// decideSeed takes over the seed of the processes that were met, or makes one. Until then this one has been joining.
func (c *Cluster) decideSeed() {
	c.mu.Lock()
	seeking := c.meta.extra.Seeking
	c.mu.Unlock()
	if !seeking {
		return
	}
	made := hashSeed(c.cfg.Secrets[0], c.cfg.ClusterName)
	c.setMeta(func(m *meta) {
		var found *meta
		for _, p := range c.peers {
			if o := &p.meta; !p.left && !o.extra.Seeking && (found == nil || found.yields(o)) {
				found = o
			}
		}
		if m.extra.Seeking = false; found != nil {
			m.Seed, m.extra.Born = found.Seed, found.extra.Born
		} else {
			m.Seed, m.extra.Born, m.extra.Lonely = made, uint64(max(1, time.Now().UnixMilli())), true
		}
		c.cfg.Ring.Seed = m.Seed
	})
}

// ApartError is why a node goes that began apart from an older cluster, which it has met now: their hash seeds differ. Start it again with Addr in
// Config.Join, and it joins that. It is an ErrMismatch.
type ApartError struct {
	Node, Addr string // a member of the older cluster
}

func (e *ApartError) Error() string {
	return fmt.Sprintf("%v: this node began apart from the older cluster of %q at %s, so its hash seed is another; start it again with that address among its seeds to join it",
		ErrMismatch, e.Node, e.Addr)
}

func (e *ApartError) Unwrap() error { return ErrMismatch }

// sameSeed is an error for a process with another seed, and makes this node go if it is the one to yield and the other one answers: what is known of
// that may be old, or a packet that somebody kept and has sent again. The seeds are not named: the log is for others to read. Called with mu held.
func (c *Cluster) sameSeed(name, addr string, theirs *meta) error {
	ours := &c.meta
	switch {
	case ours.extra.Seeking, theirs.extra.Seeking && theirs.State == joining, theirs.Seed == ours.Seed:
		return nil
	case !c.cfg.SecretSeed || !ours.yields(theirs):
		return fmt.Errorf("%w: hash seed is another here and there: the cluster of that node began apart from this one", ErrMismatch)
	}
	err := &ApartError{Node: name, Addr: addr}
	// What is joining, or leaves, may be gone before anybody could join it.
	if theirs.State == active && c.ready.Load() && c.yielding.CompareAndSwap(false, true) {
		wire := wireName(name, process(theirs.Incarnation))
		c.spawn(func() {
			if c.ping(wire, addr) {
				c.fail(err)
			} else {
				c.yielding.Store(false)
			}
		})
	}
	return err
}

// notLonely takes note that this process has, or had, another member with it. Called with mu held.
func (c *Cluster) notLonely() {
	if c.meta.extra.Lonely {
		c.spawn(func() { c.setMeta(func(m *meta) { m.extra.Lonely = false }) })
	}
}

// older takes note of when the seed was made from a process that knows of an earlier time: those that make the same seed of the same secret agree
// on the first of them, so that none of them yields to a cluster to which the others do not. Called with mu held.
func (c *Cluster) older(theirs *meta) {
	born := theirs.extra.Born
	if !c.cfg.SecretSeed || theirs.apart(&c.meta) || born >= c.meta.extra.Born {
		return
	}
	c.spawn(func() { c.setMeta(func(m *meta) { m.extra.Born = min(m.extra.Born, born) }) })
}
