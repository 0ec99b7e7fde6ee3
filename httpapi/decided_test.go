package httpapi

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jatah-io/jatah"
)

func TestTheProgramIsToldOfEachCallThatWasDecided(t *testing.T) {
	type contextKey struct{}
	var told []string
	a := newAPI(t, Config{Decided: func(ctx context.Context, d *Decided) {
		line := d.Call
		for _, k := range d.Takes {
			line += fmt.Sprintf(" %s/%s/%d=%v", k.Limit, k.Key, k.Cost, k.Decision.OK)
			if k.Decision.Err != nil {
				line += "!"
			}
		}
		if d.Began.IsZero() || ctx.Value(contextKey{}) != nil {
			t.Errorf("%s: began %v", d.Call, d.Began)
		}
		told = append(told, line)
	}}, perMinute("api", 1, 2), perMinute("other", 1, 1), jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1})
	for _, c := range []struct {
		path, body string
		want       string // "": nothing was decided
	}{
		{"/v1/take", `{"limit":"api","key":"u"}`, "take api/u/1=true"},
		{"/v1/take", `{"limit":"api","key":"u","cost":2}`, "take api/u/2=false"},
		{"/v1/take", `{"limit":"nope","key":"u"}`, ""},
		{"/v1/take", `{"limit":"jobs","key":"u"}`, "take jobs/u/1=false!"},
		{"/v1/charge", `{"limit":"api","key":"v","cost":1}`, "charge api/v/1=true"},
		{"/v1/refund", `{"limit":"api","key":"v","cost":1}`, "refund api/v/1=true"},
		{"/v1/batch", `{"takes":[{"limit":"api","key":"a"},{"limit":"nope","key":"b"},{"limit":"other","key":"c"}]}`, "batch api/a/1=true other/c/1=true"},
		{"/v1/take-all", `{"takes":[{"limit":"api","key":"u"},{"limit":"other","key":"c"}]}`, "take-all api/u/1=true other/c/1=false"},
		{"/v1/acquire", `{"limit":"jobs","key":"j"}`, "acquire jobs/j/1=true"},
		{"/v1/acquire", `{"limit":"jobs","key":"j"}`, "acquire jobs/j/1=false"},
	} {
		told = nil
		w := a.call("POST", c.path, c.body)
		if want := []string{c.want}; c.want == "" && len(told) != 0 || c.want != "" && !slices.Equal(told, want) {
			t.Errorf("%s %s: told %q, want %q; answered %d %s", c.path, c.body, told, c.want, w.Code, w.Body)
		}
	}
}
