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

// writeLimits replaces the file. An error is counted and logged, never more.
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
		return nil
	}
	s.failures.Add(1)
	if p.failed.IsZero() || now.Sub(p.failed) >= stateWarnEvery {
		p.failed = now
		s.n.cfg.Logger.Error("published limits not written; a stop of the whole cluster would forget what changed", "file", s.limitsPath(), "err", err)
	}
	return fmt.Errorf("jatah: published limits not written: %w", err)
}

// runLimits writes whenever others have changed something, until the state ends.
func (s *state) runLimits() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.n.pub.changes:
			_ = s.writeLimits() // which has logged it
		}
	}
}

// endLimits writes what is left to be written, for the last time.
func (s *state) endLimits() (err error) {
	select {
	case <-s.n.pub.changes:
		err = s.writeLimits()
	default:
	}
	s.n.pub.writing.Lock()
	s.n.pub.ended = true
	s.n.pub.writing.Unlock()
	return err
}
