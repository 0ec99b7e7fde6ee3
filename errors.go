package jatah

import (
	"errors"

	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/hybrid"
)

// Errors of this package; match them with errors.Is.
var (
	// ErrConfig: a setting is wrong; the text names it and says what to write.
	ErrConfig = cluster.ErrConfig
	// ErrNameTaken: a live process of the cluster already has this node's name.
	ErrNameTaken = cluster.ErrNameTaken
	// ErrMismatch: a setting that all nodes must share differs from the cluster's, or they speak no protocol in common. See ApartError for one kind of it.
	ErrMismatch = cluster.ErrMismatch
	// ErrSecret: the seeds were reached but do not share the secret.
	ErrSecret = cluster.ErrSecret
	// ErrStateLocked: another process uses this node's file in Config.StateDir.
	ErrStateLocked = errors.New("jatah: the state is in use")
	// ErrAlive: the member cannot be forgotten while it is alive.
	ErrAlive = cluster.ErrAlive
	// ErrLimit: a limit is defined wrongly.
	ErrLimit = hybrid.ErrSpec
	// ErrParent: the parent of a limit was removed; define it again, or the limit without it.
	ErrParent = hybrid.ErrParent
	// ErrUnknownLimit: there is no limit of this name.
	ErrUnknownLimit = errors.New("jatah: unknown limit")
	// ErrUnknownPlan: the limit has no plan of this name.
	ErrUnknownPlan = errors.New("jatah: unknown plan")
	// ErrNegativeCost: a cost, refund or charge is below zero.
	ErrNegativeCost = hybrid.ErrNegativeCost
	// ErrKeyEmpty: the key is the empty string.
	ErrKeyEmpty = errors.New("jatah: the key is empty")
	// ErrKeyTooLong: the key has more than MaxKey bytes.
	ErrKeyTooLong = errors.New("jatah: the key is longer than 1024 bytes")
	// ErrClosed: the node has been closed, or the limit removed.
	ErrClosed = hybrid.ErrClosed
	// ErrUnreachable: the owner of the key did not answer in time.
	ErrUnreachable = hybrid.ErrUnreachable
	// ErrOverflow: a new key found no room; see Config.MaxKeys and Config.Overflow.
	ErrOverflow = hybrid.ErrOverflow
	// ErrPermit: the permit is not held: it was released or has expired, or its node is gone.
	ErrPermit = hybrid.ErrPermit
	// ErrConcurrency: tokens were asked of a limit that counts permits.
	ErrConcurrency = hybrid.ErrConcurrency
	// ErrNotConcurrency: a permit was asked of a limit that counts tokens.
	ErrNotConcurrency = hybrid.ErrNotConcurrency
	// ErrTTL: a permit was asked for longer than its limit gives, or for a negative time.
	ErrTTL = hybrid.ErrTTL
	// ErrNotReady: the node is not ready to decide yet, or no more.
	ErrNotReady = errors.New("jatah: not ready")
	// ErrDeadline: the context ends before the request can pass. Nothing was taken.
	ErrDeadline = errors.New("jatah: the context ends before the request can pass")
	// ErrImpossible: no wait lets the request pass: its cost is above the burst, or the rate is 0.
	ErrImpossible = errors.New("jatah: no wait lets the request pass")
	// ErrSettled: the reservation has been committed or cancelled before.
	ErrSettled = errors.New("jatah: the reservation is settled")
	// ErrUnknownNode: no member of this name is remembered.
	ErrUnknownNode = errors.New("jatah: unknown node")
	// ErrNoAnswer: the member did not answer in time, or is busy or gone. It may have heard the question.
	ErrNoAnswer = errors.New("jatah: no answer")
	// ErrUnknownTopic: the member has no Answerer for the topic, or is of a version without any.
	ErrUnknownTopic = errors.New("jatah: unknown topic")
	// ErrAnswer: the member's Answerer failed, or its answer cannot be used; the text follows.
	ErrAnswer = errors.New("jatah: the answer is an error")
)
