package hybrid

import (
	"testing"
)

func TestCalm(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, loss := range []float64{0, 0.02, 0.2} {
			spec := testSpec(200, 50)
			spec.Mode = mode
			w := newWorld(t, 1, 5, 0, spec, 1)
			w.loss = loss
			w.start(5)
			w.load(800, 5, func() bool { return true })
			w.run(20 * sec)
			t.Logf("%v loss %v: excess %.2f utilization %.3f waited %.4f of %d, messages/s/node %.1f slowest %d ms sources %v", mode, loss, w.worst(), w.utilization(), float64(w.waited)/float64(w.offered), w.offered, float64(w.messages)/20/5, w.slowest/ms, w.sources)
		}
	}
}
