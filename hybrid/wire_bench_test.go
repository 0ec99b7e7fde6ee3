package hybrid

import (
	"fmt"
	"math"
	"testing"
)

// packets are what goes over the wire in numbers, with as many entries as fit in a packet, and the one of an ask. Counters, keys
// and times are those of a day of uptime, and no two entries have the same lengths.
func packets() map[string]*message {
	const day = int64(86400e9)
	head := func(m message) *message {
		m.stamp, m.echo = stamp{math.MaxUint64 / 3, 12, day}, stamp{math.MaxUint64 / 5, 12, day}
		return &m
	}
	var rs []report
	var gs []grant
	var cs []copyOf
	for i := range 20 {
		n := int64(i+1) * int64(i+1) * 97
		key := fmt.Sprintf("user:%d", 1234567*(i+1))
		rs = append(rs, report{limit: "api", key: key, gen: 4000 + uint64(i), g: 15 * n, c: 14 * n, u: int64(i % 3), denied: int64(i), want: 15*n + 1, least: 14 * n})
		gs = append(gs, grant{gen: 4000 + uint64(i), g: 15 * n, c: 14 * n, u: int64(i % 3), bal: 12.25, rate: 100.0 / 60, out: n, flags: uint64(i % 16)})
		cs = append(cs, copyOf{part: 13 * i, limit: "api", key: key, bal: 12.25, cap: 20, out: 5})
	}
	return map[string]*message{
		"reports": head(message{reports: rs}), "grants": head(message{re: day, grants: gs}), "standby": head(message{seq: 70000, standby: cs}),
		"ask": head(message{reports: rs[7:8]}),
	}
}

// entries of a packet: times are per entry.
func entries(m *message) int { return len(m.reports) + len(m.grants) + len(m.standby) }

// perEntry runs f, which handles a packet of m, by hand and by its twin.
func perEntry(b *testing.B, name string, m *message, hand, twin func()) {
	for _, way := range []struct {
		name string
		f    func()
	}{{"hand", hand}, {"twin", twin}} {
		b.Run(name+"/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				way.f()
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N*entries(m)), "ns/entry")
		})
	}
}

// BenchmarkEncode writes packets; ns/entry is what an entry costs with its part of the packet's head. allocs/op are of a whole packet.
func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"reports", "grants", "standby", "ask"} {
		m := packets()[name]
		w, twin := newWriter(), newTwinWriter()
		perEntry(b, name, m, func() {
			w.buf = w.buf[:0]
			w.message(m)
		}, func() { encodeTwin(twin, m) })
	}
}

// BenchmarkDecode reads what BenchmarkEncode writes.
func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"reports", "grants", "standby", "ask"} {
		m := packets()[name]
		msg := encode(newWriter(), m)
		var d decoder
		perEntry(b, name, m, func() {
			if _, err := d.decode(msg); err != nil {
				b.Fatal(err)
			}
			d.release()
		}, func() {
			if _, err := decodeTwin(msg); err != nil {
				b.Fatal(err)
			}
		})
	}
}
