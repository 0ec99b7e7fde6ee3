package hybrid

// Signs is what an engine notices beside decisions, cheap enough to be read each second. Counters only grow.
type Signs struct {
	Pauses                                uint64
	HandOffsIn, HandOffsOut, HandOffsLost uint64
	Silent                                []string // members that have not answered for three ticks, in no order
}

// Signs reads them.
func (e *Engine) Signs() Signs {
	s := Signs{Pauses: e.stats.pauses.Load(), HandOffsIn: e.stats.handOffsIn.Load(), HandOffsOut: e.stats.handOffsOut.Load(), HandOffsLost: e.stats.handOffsLost.Load()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.alone() {
		return s
	}
	now := e.now()
	for _, p := range e.peers {
		if p.present && e.silent(p, now) {
			s.Silent = append(s.Silent, p.name)
		}
	}
	return s
}
