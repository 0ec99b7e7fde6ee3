package oteljatah

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/jatah-io/jatah"
)

// scope names this package to providers.
const scope = "github.com/jatah-io/jatah/httpapi/oteljatah"

// Metrics registers instruments that read node.Stats and node.Info whenever the provider's readers collect. provider nil: the global one. End it with Unregister
// before the node is closed, or soon after: a closed node's counters stand still. One provider takes one node, since nothing in the
// attributes tells two apart; that is for the resource to do.
func Metrics(node *jatah.Node, provider metric.MeterProvider) (metric.Registration, error) {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	i := &instruments{meter: provider.Meter(scope)}
	observe := append(i.ofStats(), i.ofInfo()...)
	if i.err != nil {
		return nil, i.err
	}
	return i.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s, info := node.Stats(), node.Info()
		for _, f := range observe {
			f(o, &s, &info)
		}
		return nil
	}, i.all...)
}

// observer reports what it reads.
type observer func(o metric.Observer, s *jatah.Stats, i *jatah.Info)

type instruments struct {
	meter metric.Meter
	all   []metric.Observable
	err   error
}

func (i *instruments) counter(name, unit, help string) metric.Int64ObservableCounter {
	c, err := i.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	i.all, i.err = append(i.all, c), errors.Join(i.err, err)
	return c
}

func (i *instruments) seconds(name, help string) metric.Float64ObservableCounter {
	c, err := i.meter.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(help))
	i.all, i.err = append(i.all, c), errors.Join(i.err, err)
	return c
}

// sum is a number that goes up and down, and makes sense added up over the nodes.
func (i *instruments) sum(name, unit, help string) metric.Int64ObservableUpDownCounter {
	c, err := i.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(help))
	i.all, i.err = append(i.all, c), errors.Join(i.err, err)
	return c
}

// gauge is one that does not.
func (i *instruments) gauge(name, unit, help string) metric.Float64ObservableGauge {
	c, err := i.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	i.all, i.err = append(i.all, c), errors.Join(i.err, err)
	return c
}

// with is attributes, given as names without their prefix and values in turn.
func with(pairs ...string) metric.MeasurementOption {
	var all []attribute.KeyValue
	for n := 0; n+1 < len(pairs); n += 2 {
		all = append(all, attribute.String("jatah."+pairs[n], pairs[n+1]))
	}
	return metric.WithAttributes(all...)
}

func (i *instruments) ofStats() []observer {
	decisions := i.counter("jatah.decisions", "{decision}", "Decisions, by what was decided and how.")
	near := i.counter("jatah.decisions.near_limit", "{decision}", "Decisions that admitted and left less than 20 % of the burst.")
	dryRun := i.counter("jatah.decisions.dry_run_denied", "{decision}", "Requests that passed only because the limit is in dry run.")
	keys := i.sum("jatah.limit.keys", "{key}", "Keys of which the node remembers something.")
	permits := i.sum("jatah.limit.permits", "{permit}", "Permits of concurrency limits that the node holds.")
	asks := i.counter("jatah.asks", "{message}", "Questions to owners of keys.")
	resent := i.counter("jatah.asks.resent", "{message}", "Questions that were sent again.")
	failures := i.counter("jatah.ask.failures", "{request}", "Requests that their owner did not answer.")
	answers := i.counter("jatah.ask.answers", "{request}", "Requests that their owner answered.")
	waited := i.seconds("jatah.ask.duration", "Time that these waited, in all: divide by jatah.ask.answers.")
	entries := i.sum("jatah.table.entries", "{key}", "Keys in memory.")
	evictions := i.counter("jatah.table.evictions", "{key}", "Keys that were forgotten because they were full again.")
	overflows := i.counter("jatah.table.overflows", "{request}", "Requests of new keys that were refused for lack of room.")
	debt := i.counter("jatah.debt", "{token}", "Tokens that were spent beyond credit and charged when the node, as owner, heard of it.")
	pauses := i.counter("jatah.pauses", "{pause}", "Times that the node noticed that it had stood still.")
	handOffs := i.counter("jatah.hand_offs", "{hand_off}", "Hand-offs of owned keys between nodes.")
	packets := i.counter("jatah.network.packets", "{packet}", "Packets between nodes.")
	bytes := i.counter("jatah.network.io", "By", "Bytes in these packets.")
	dropped := i.counter("jatah.network.packets.dropped", "{packet}", "Packets that were not used.")
	ticks := i.counter("jatah.syncs", "{sync}", "Syncs.")
	ticking := i.seconds("jatah.sync.duration", "Time that syncs took, in all: divide by jatah.syncs.")
	writes := i.counter("jatah.state.writes", "{write}", "Times that the state file was written, or could not be.")

	return []observer{func(o metric.Observer, s *jatah.Stats, _ *jatah.Info) {
		count := func(c metric.Int64Observable, n uint64, pairs ...string) { o.ObserveInt64(c, int64(n), with(pairs...)) }
		for _, l := range s.Limits {
			for _, d := range decisionsOf(&l) {
				count(decisions, d.Count, "limit", l.Name, "result", result(d.Allowed), "source", d.Source.String())
			}
			count(near, l.Near, "limit", l.Name)
			count(dryRun, l.DryRun, "limit", l.Name)
			count(keys, uint64(l.Keys), "limit", l.Name)
			count(permits, uint64(l.Permits), "limit", l.Name)
		}
		count(asks, s.Ask.Sent)
		count(resent, s.Ask.Resent)
		count(failures, s.Ask.TimedOut, "reason", "timeout")
		count(failures, s.Ask.Silent, "reason", "silent")
		count(failures, s.Ask.Canceled, "reason", "canceled")
		count(answers, s.Ask.Latency.Count)
		o.ObserveFloat64(waited, s.Ask.Latency.Sum.Seconds())
		for kind, n := range map[string]int{"account": s.Accounts, "active": s.Active, "ledger": s.Ledgers, "bucket": s.Buckets} {
			count(entries, uint64(n), "kind", kind)
		}
		count(evictions, s.Evictions)
		count(overflows, s.Overflows)
		count(debt, s.Debt)
		count(pauses, s.Pauses)
		for result, n := range map[string]uint64{"received": s.HandOffsIn, "sent": s.HandOffsOut, "lost": s.HandOffsLost} {
			count(handOffs, n, "result", result)
		}
		count(packets, s.PacketsIn, "direction", "in")
		count(packets, s.PacketsOut, "direction", "out")
		count(bytes, s.BytesIn, "direction", "in")
		count(bytes, s.BytesOut, "direction", "out")
		for reason, n := range s.Dropped {
			count(dropped, n, "reason", reason)
		}
		count(ticks, s.Ticks.Count)
		o.ObserveFloat64(ticking, s.Ticks.Sum.Seconds())
		count(writes, s.StateWrites, "result", "ok")
		count(writes, s.StateFailures, "result", "failed")
	}}
}

// decisionsOf are the counts of all results and sources, also of those that never decided: a series that begins with its first decision hides that one.
func decisionsOf(l *jatah.LimitStats) []jatah.DecisionCount {
	const sources = int(jatah.SourceAllow) + 1
	all := make([]jatah.DecisionCount, 2*sources)
	for n := range all {
		all[n].Allowed, all[n].Source = n%2 == 0, jatah.Source(n/2)
	}
	for _, d := range l.Decisions {
		n := 2 * int(d.Source)
		if !d.Allowed {
			n++
		}
		if n < len(all) {
			all[n].Count = d.Count
		}
	}
	return all
}

func result(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

func (i *instruments) ofInfo() []observer {
	members := i.gauge("jatah.members", "{node}", "Members as the node sees them.")
	counted := i.gauge("jatah.members.counted", "{node}", "Members among whom limits are divided.")
	silent := i.gauge("jatah.members.silent", "{node}", "Members that have not answered the node for three syncs.")
	ready := i.gauge("jatah.ready", "1", "1: the node decides. 0: it does not yet, or no more.")
	weight := i.gauge("jatah.weight", "1", "The part of every limit that is the node's own.")
	held := i.gauge("jatah.shares.held", "1", "The part of every limit that the node holds as owner, on average.")
	loans := i.sum("jatah.loans", "{partition}", "Partitions for which a share is on loan: lent by the node, borrowed by it.")
	owned := i.sum("jatah.partitions.owned", "{partition}", "Partitions whose keys the node owns.")

	return []observer{func(o metric.Observer, s *jatah.Stats, info *jatah.Info) {
		var quiet, share, isReady float64
		var own, lent, borrowed int
		for _, m := range info.Members {
			share += m.Share
			switch {
			case m.Self:
				own = m.Partitions
				continue
			case m.Silent:
				quiet++
			}
			lent, borrowed = lent+m.LendsTo, borrowed+m.LentBy
		}
		if info.Ready {
			isReady = 1
		}
		o.ObserveFloat64(members, float64(s.Members), with("state", jatah.Alive))
		o.ObserveFloat64(members, float64(s.MembersFailed), with("state", jatah.Failed))
		o.ObserveFloat64(counted, float64(info.K))
		o.ObserveFloat64(silent, quiet)
		o.ObserveFloat64(ready, isReady)
		o.ObserveFloat64(weight, info.Weight)
		o.ObserveFloat64(held, share)
		o.ObserveInt64(loans, int64(lent), with("direction", "lent"))
		o.ObserveInt64(loans, int64(borrowed), with("direction", "borrowed"))
		o.ObserveInt64(owned, int64(own))
	}}
}
