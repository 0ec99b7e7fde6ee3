package bucket

// Move is Resize for a key that goes to another plan: what was used stays used, in buckets too. A larger burst gives the difference at once, a
// smaller one may leave a debt. A rate that has none in its place before goes on from the most that the others count as used. Do not use
// old afterwards.
func Move(old Meter, a *Algorithm) Meter {
	olds := parts(old)
	taken, begun := make([]float64, len(olds)), old.at().begun
	most := 0.0
	for i, o := range olds {
		if begun {
			taken[i] = o.taken()
			most = max(most, taken[i])
		}
	}
	m := Resize(old, a)
	if !begun {
		return m
	}
	for i, x := range parts(m) {
		want := most
		if i < len(taken) {
			want = taken[i]
		} else if _, isBucket := x.(*bucketMeter); !isBucket {
			x.Use(max(0, most), x.at().out)
			continue
		}
		if b, ok := x.(*bucketMeter); ok {
			if d := want - b.taken(); d > 0 {
				b.Use(d, b.out)
			} else if d < 0 {
				b.Return(-d, b.out)
			}
		}
	}
	return m
}

func parts(m Meter) []Meter {
	if x, ok := m.(*multiMeter); ok {
		return x.meters
	}
	return []Meter{m}
}

// KeepUsed is the same algorithm, to which a MeterTable brings keys by Move instead of Resize.
func (a *Algorithm) KeepUsed() *Algorithm {
	c := *a
	c.used = true
	return &c
}
