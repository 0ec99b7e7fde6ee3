package hybrid

// recall calls credit back from lenders that do not use it. It says whether some came, which only this node's own can do at once, and
// whether some may come soon.
func (e *Engine) recall(p *partition, x *ledger, asker *entry, now int64) (came, coming bool) {
	if now < x.recallUntil {
		if !x.recalledTwice && now >= x.recallUntil-recallWait+resendAfter { // who asks says it again as well: something was lost
			x.recalledTwice = true
			came, _ = e.callBack(p, x, asker, now)
		}
		return came, true
	}
	if now < x.recallUntil+e.tick {
		return false, false
	}
	if came, coming = e.callBack(p, x, asker, now); coming {
		x.recallUntil, x.recalledTwice = now+recallWait, false
	}
	return came, coming
}

// callBack takes back this node's own idle credit, and asks the others for theirs.
func (e *Engine) callBack(p *partition, x *ledger, asker *entry, now int64) (came, coming bool) {
	for _, y := range x.entries {
		if y == asker || y.out() < 1 || e.wanted(y, now)*float64(2*e.tick) >= 1 {
			continue
		}
		if y.lender == e.cfg.Node {
			if a := e.byGen[y.gen]; a != nil && y.inc == e.inc {
				before := y.out()
				e.giveBack(a, now)
				came = came || y.out() < before
			}
			continue
		}
		if to := e.byName[y.lender]; to != nil && to.present && to.inc == y.inc {
			coming = true
			e.send(to, &message{re: 0, grants: []grant{e.grantOf(p, x, y, grantRecall, now)}}, now, false)
		}
	}
	return came, coming
}

// lateRecall is a key of which somebody was refused while others held credit that they had just used. Whether they go on using it shows later.
type lateRecall struct {
	p     *partition
	x     *ledger
	at    int64 // when to look
	looks int   // that are left
}

// A lender's demand is believed for two and a half ticks after its last report, so by then it shows.
const (
	lateRecallTicks = 3
	lateRecallLooks = 4
)

// recallLater has credit called back once it turns out to be idle. What is in the pool at that moment those who were refused are told.
func (e *Engine) recallLater(p *partition, x *ledger, now int64) {
	if x.recalling != nil {
		x.recalling.looks = lateRecallLooks
		return
	}
	if x.outstanding() < 1 {
		return
	}
	x.recalling = &lateRecall{p, x, now + lateRecallTicks*e.tick, lateRecallLooks}
	e.recalling = append(e.recalling, x.recalling)
}

// recallIdle does what recallLater put off.
func (e *Engine) recallIdle(now int64) {
	keep := e.recalling[:0]
	for _, r := range e.recalling {
		if !r.p.has(r.x) || r.looks == 0 || !r.x.refuses(nil, now) {
			r.x.recalling = nil
			continue
		}
		keep = append(keep, r)
		if now >= r.at {
			r.at = now + lateRecallTicks*e.tick
			r.looks--
			e.settleShares(r.p, now)
			r.p.refill(r.x, now)
			e.recall(r.p, r.x, nil, now)
		}
	}
	clear(e.recalling[len(keep):])
	e.recalling = keep
}
