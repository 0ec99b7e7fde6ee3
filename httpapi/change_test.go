package httpapi

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jatah-io/jatah"
)

// A limit that is changed while its keys are in use: what was used stays used, a lower burst cuts what is there, a higher one
// gives nothing, and every answer speaks of the limit as it is now.
func TestAnswersSpeakOfTheChangedLimit(t *testing.T) {
	for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict, jatah.Split} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, Config{})
			for _, step := range []struct {
				burst     int64
				policy    string
				limit     string
				remaining string
			}{
				{100, `"api";q=100;w=60`, "100", "99"},
				{10, `"api";q=10;w=60`, "10", "9"},
				{1000, `"api";q=1000;w=60`, "1000", "8"},
			} {
				l := perMinute("api", step.burst, step.burst)
				l.Mode = mode
				if _, err := a.node.Limit(l); err != nil {
					t.Fatal(err)
				}
				h := a.take(`{"limit":"api","key":"u"}`).Header()
				if h.Get("RateLimit-Policy") != step.policy || h.Get("X-RateLimit-Limit") != step.limit || h.Get("X-RateLimit-Remaining") != step.remaining {
					t.Errorf("%v, burst %d: %v, want %+v", mode, step.burst, h, step)
				}
				w := a.call("GET", "/v1/peek?limit=api&key=u", "")
				if want := `"burst":` + step.limit + `,"remaining":` + step.remaining + `,`; !strings.Contains(w.Body.String(), want) {
					t.Errorf("%v, burst %d: peek says %s, want %s", mode, step.burst, w.Body, want)
				}
			}
		})
	}
}
