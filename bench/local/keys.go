package local

import (
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
)

// keyOf is the i-th of all keys.
func keyOf(i int) string { return "user:" + strconv.Itoa(i) }

// keyBytes is the length of the first n keys together.
func keyBytes(n int) int {
	total := n * len("user:")
	for digits, from := 1, 0; from < n; digits++ {
		to := 10
		for range digits - 1 {
			to *= 10
		}
		total += digits * (min(to, n) - from)
		from = to
	}
	return total
}

// spread says how keys are drawn.
type spread int

const (
	uniform spread = iota
	zipf           // exponent 1.1: the first of a million keys gets about a tenth of the requests
)

// most draws: more would only take memory.
const mostDraws = 1 << 24

// draws is a sequence of keys that is gone through again and again. It is free of pointers, so that it costs the collector nothing.
type draws struct {
	text string
	ends []uint32 // of each key in text; the first is 0
	mask int      // the number of draws, less one
}

// draw draws keys out of the first n, the same ones each time: at least twice as many as there are keys, up to mostDraws.
func draw(n int, s spread) *draws {
	count := min(max(1<<bits.Len(uint(2*n-1)), 1<<14), mostDraws)
	r := rand.New(rand.NewPCG(1, 2))
	pick := func() int { return r.IntN(n) }
	if s == zipf && n > 1 {
		z := rand.NewZipf(r, 1.1, 1, uint64(n-1))
		pick = func() int { return int(z.Uint64()) }
	}
	text := make([]byte, 0, count*(len("user:")+len(strconv.Itoa(n))))
	d := &draws{ends: make([]uint32, 1, count+1), mask: count - 1}
	for range count {
		text = strconv.AppendInt(append(text, "user:"...), int64(pick()), 10)
		d.ends = append(d.ends, uint32(len(text)))
	}
	d.text = string(text)
	return d
}

// drawOne draws one key every time.
func drawOne(key string) *draws {
	d := &draws{ends: make([]uint32, 1, 1<<12+1), mask: 1<<12 - 1}
	for i := range d.mask + 1 {
		d.ends = append(d.ends, uint32((i+1)*len(key)))
	}
	d.text = strings.Repeat(key, d.mask+1)
	return d
}

// at is the i-th key of the sequence.
func (d *draws) at(i int) string {
	i &= d.mask
	return d.text[d.ends[i]:d.ends[i+1]]
}
