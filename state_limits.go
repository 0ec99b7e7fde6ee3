package jatah

import (
	"fmt"
	"strings"
	"time"
)

// Beside what was used, a node's directory keeps the published limits, in a file of their own in the same form: it is written when one of
// them changes, and nothing is lost with it but the limits.

const (
	limitsFormat  = "jatah limits"
	limitsVersion = 1
)

func (s *state) limitsPath() string { return strings.TrimSuffix(s.path, ".state") + ".limits" }

func (s *state) limitsHeader() stateHeader {
	h := s.header()
	h.Format, h.Version = limitsFormat, limitsVersion
	return h
}

// loadLimits gives the register what the file has.
func (s *state) loadLimits() error {
	return s.read(s.limitsPath(), s.limitsHeader(), "published limits are those that other members have", s.n.pub.reg.Restore)
}

// writeLimits replaces the file. An error is counted and logged, never more; the file is then due again.
func (s *state) writeLimits() error {
	p := s.n.pub
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.ended {
		return nil
	}
	now := time.Now()
	err := replaceSealed(s.limitsPath(), s.limitsHeader(), now, p.reg.Encode())
	if err == nil {
		p.due = false
		return nil
	}
	p.due = true
	s.failures.Add(1)
	if p.failed.IsZero() || now.Sub(p.failed) >= stateWarnEvery {
		p.failed = now
		s.n.cfg.Logger.Error("published limits not written; a stop of the whole cluster would forget what changed", "file", s.limitsPath(), "err", err)
	}
	return fmt.Errorf("jatah: published limits not written: %w", err)
}

// limitsDue says whether the last attempt to write the file has failed.
func (s *state) limitsDue() bool {
	s.n.pub.writing.Lock()
	defer s.n.pub.writing.Unlock()
	return s.n.pub.due
}

// runLimits writes whenever others have changed something, and every interval while that fails, until the state ends.
func (s *state) runLimits(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.n.pub.changes:
		case <-t.C:
			if !s.limitsDue() {
				continue
			}
		}
		_ = s.writeLimits() // which has logged it
	}
}

// endLimits writes what is left to be written, for the last time.
func (s *state) endLimits() (err error) {
	due := s.limitsDue()
	select {
	case <-s.n.pub.changes:
		due = true
	default:
	}
	if due {
		err = s.writeLimits()
	}
	s.n.pub.writing.Lock()
	s.n.pub.ended = true
	s.n.pub.writing.Unlock()
	return err
}
