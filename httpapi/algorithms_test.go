package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // a calendar is tested in a real zone

	"github.com/jatah-io/jatah"
)

// These tests tell the time of a bubble, which begins at 2000-01-01T00:00:00Z: a minute, an hour, a day, a month and a year begin with it.

const takeX = `{"limit":"x","key":"u"}`

// allHeads are the headers of a decision: RateLimit | RateLimit-Policy | X-RateLimit-Limit, -Remaining, -Reset | Retry-After.
func allHeads(w *httptest.ResponseRecorder) string {
	h := w.Header()
	return fmt.Sprintf("%s | %s | %s %s %s | %s", h.Get("RateLimit"), h.Get("RateLimit-Policy"),
		h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"), h.Get("X-RateLimit-Reset"), h.Get("Retry-After"))
}

// takes asks n times and returns how many were allowed, and the last answer.
func (a *api) takes(n int) (allowed int, last *httptest.ResponseRecorder) {
	for range n {
		if last = a.take(takeX); last.Code == 200 {
			allowed++
		}
	}
	return allowed, last
}

// want compares the last answer.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, body, heads string) {
	t.Helper()
	if w.Code != status || strings.TrimSpace(w.Body.String()) != body || allHeads(w) != heads {
		t.Errorf(" got %d %s %s\nwant %d %s\n%s", w.Code, w.Body, allHeads(w), status, body, heads)
	}
}

func TestAFixedWindowSaysWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, jatah.Limit{Name: "x", Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(100)})
		time.Sleep(59*time.Second + 900*time.Millisecond)
		want(t, a.take(takeX), 200, `{"allowed":true,"limit":"x","key":"u","cost":1,"remaining":99,"retry_after_ms":0,"reset_after_ms":100,"mode":"hybrid","source":"local"}`,
			`"x";r=99;t=1 | "x";q=100;w=60 | 100 99 1 | `)
		ok, w := a.takes(100)
		if ok != 99 {
			t.Errorf("%d more are allowed", ok)
		}
		want(t, w, 429, `{"allowed":false,"limit":"x","key":"u","cost":1,"remaining":0,"retry_after_ms":100,"reset_after_ms":100,"mode":"hybrid","source":"local"}`,
			`"x";r=0;t=1 | "x";q=100;w=60 | 100 0 1 | 1`)
		time.Sleep(100 * time.Millisecond)
		if ok, w = a.takes(100); ok != 100 {
			t.Errorf("in the next window %d are allowed", ok)
		}
		want(t, w, 200, `{"allowed":true,"limit":"x","key":"u","cost":1,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"mode":"hybrid","source":"local"}`,
			`"x";r=0;t=60 | "x";q=100;w=60 | 100 0 60 | `)
		time.Sleep(10 * time.Second)
		want(t, a.take(takeX), 429, `{"allowed":false,"limit":"x","key":"u","cost":1,"remaining":0,"retry_after_ms":50000,"reset_after_ms":50000,"mode":"hybrid","source":"local"}`,
			`"x";r=0;t=50 | "x";q=100;w=60 | 100 0 50 | 50`)
		want(t, a.take(`{"limit":"x","key":"u","cost":101}`), 429,
			`{"allowed":false,"limit":"x","key":"u","cost":101,"remaining":0,"retry_after_ms":null,"reset_after_ms":50000,"mode":"hybrid","source":"local","reason":"the cost 101 exceeds the most that can pass at once, 100; it is never possible"}`,
			`"x";r=0;t=50 | "x";q=100;w=60 | 100 0 50 | `)
	})
}

func TestADayInBerlinEndsAtItsMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{ResetEpoch: true}, jatah.Limit{Name: "x", Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(1), Calendar: "day", Timezone: "Europe/Berlin"})
		midnight := time.Date(2000, 1, 1, 23, 0, 0, 0, time.UTC)
		ok, w := a.takes(2)
		if heads := fmt.Sprintf(`"x";r=0;t=82800 | "x";q=1;w=86400 | 1 0 %d | 82800`, midnight.Unix()); ok != 1 || allHeads(w) != heads {
			t.Errorf("%d allowed, %s\nwant %s", ok, allHeads(w), heads)
		}
	})
}

func TestSlidingWindowsSayWhenAllIsBack(t *testing.T) {
	for algorithm, heads := range map[string][2]string{
		// After 59.9 s of a window: what was used is out of sight when the next window has ended too.
		jatah.SlidingWindow: {`"x";r=0;t=61 | "x";q=100;w=60 | 100 0 61 | `, `"x";r=0;t=61 | "x";q=100;w=60 | 100 0 61 | 1`},
		jatah.SlidingLog:    {`"x";r=0;t=60 | "x";q=100;w=60 | 100 0 60 | `, `"x";r=0;t=60 | "x";q=100;w=60 | 100 0 60 | 60`},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, Config{}, jatah.Limit{Name: "x", Algorithm: algorithm, Rate: jatah.PerMinute(100)})
			time.Sleep(59*time.Second + 900*time.Millisecond)
			ok, w := a.takes(100)
			if ok != 100 || allHeads(w) != heads[0] {
				t.Errorf("%s: %d allowed, %s\nwant %s", algorithm, ok, allHeads(w), heads[0])
			}
			if ok, w = a.takes(5); ok != 0 || allHeads(w) != heads[1] {
				t.Errorf("%s: %d more allowed, %s\nwant %s", algorithm, ok, allHeads(w), heads[1])
			}
		})
	}
}

func TestAQueueSaysHowLongToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, jatah.Limit{Name: "x", Algorithm: jatah.LeakyBucket, Rate: jatah.PerMinute(5), Queue: 5})
		policy := `"x";q=6;w=72`
		for i := range 6 {
			delay := ""
			if i > 0 {
				delay = fmt.Sprintf(`"delay_ms":%d,`, 12000*i)
			}
			want(t, a.take(takeX), 200, fmt.Sprintf(`{"allowed":true,"limit":"x","key":"u","cost":1,"remaining":%d,"retry_after_ms":0,"reset_after_ms":%d,%s"mode":"strict","source":"local"}`, 5-i, 12000*(i+1), delay),
				fmt.Sprintf(`"x";r=%d;t=%d | %s | 6 %d %d | `, 5-i, 12*(i+1), policy, 5-i, 12*(i+1)))
		}
		want(t, a.take(takeX), 429, `{"allowed":false,"limit":"x","key":"u","cost":1,"remaining":0,"retry_after_ms":12000,"reset_after_ms":72000,"mode":"strict","source":"local"}`,
			`"x";r=0;t=72 | `+policy+` | 6 0 72 | 12`)
	})
}

// Five are let in, one each second; whoever would wait for 5 s is turned away and takes no place.
func TestAQueueWithALongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, jatah.Limit{Name: "x", Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(1), Queue: 10, MaxWait: 4 * time.Second})
		type result struct {
			Allowed bool
			Delay   int64  `json:"delay_ms"`
			Retry   *int64 `json:"retry_after_ms"`
		}
		var batch struct{ Results []result }
		ask := func(n int) []result {
			t.Helper()
			w := a.call("POST", "/v1/batch", `{"takes":[`+takeX+strings.Repeat(","+takeX, n-1)+`]}`)
			batch.Results = nil
			if err := json.Unmarshal(w.Body.Bytes(), &batch); err != nil || len(batch.Results) != n {
				t.Fatalf("%v: %s", err, w.Body)
			}
			return batch.Results
		}
		for i, r := range ask(7) {
			switch in := i < 5; {
			case r.Allowed != in, in && (r.Delay != int64(i)*1000 || *r.Retry != 0), !in && (r.Delay != 0 || *r.Retry != 1000):
				t.Errorf("request %d: %+v, retry %v", i, r, *r.Retry)
			}
		}
		time.Sleep(time.Second)
		if r := ask(1)[0]; !r.Allowed || r.Delay != 4000 {
			t.Errorf("a second later: %+v, want it to depart at 5 s", r)
		}
	})
}

// A repeat of a queued request waits for the place that the first one has, and takes none.
func TestARepeatHasThePlaceOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, jatah.Limit{Name: "x", Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(1), Queue: 10})
		a.take(takeX)
		first, again := a.take(takeX, "Idempotency-Key", "k"), a.take(takeX, "Idempotency-Key", "k")
		if !strings.Contains(first.Body.String(), `"delay_ms":1000,`) || first.Body.String() != again.Body.String() {
			t.Errorf("%s, then %s", first.Body, again.Body)
		}
		if third := a.take(takeX); !strings.Contains(third.Body.String(), `"delay_ms":2000,`) {
			t.Errorf("the next one: %s", third.Body)
		}
	})
}

func TestEachOfSeveralRatesHasAPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rates := []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(12), jatah.PerDay(5000)}
		a := newAPI(t, Config{}, jatah.Limit{Name: "x", Algorithm: jatah.FixedWindow, Rates: rates})
		ok, w := a.takes(11)
		if heads := `"x";r=0;t=86400 | "x";q=10;w=1, "x-2";q=12;w=3600, "x-3";q=5000;w=86400 | 10 0 86400 | 1`; ok != 10 || allHeads(w) != heads {
			t.Errorf("%d allowed, %s\nwant %s", ok, allHeads(w), heads)
		}
		items, err := parseSF(w.Header().Get("RateLimit-Policy"))
		if err != nil || len(items) != 3 || items[1].name != "x-2" || items[1].params["q"] != 12 {
			t.Errorf("%v, %+v", err, items)
		}
		time.Sleep(time.Second)
		if ok, w = a.takes(11); ok != 2 || !strings.HasPrefix(allHeads(w), `"x";r=0;t=86399 | `) || w.Header().Get("Retry-After") != "3599" {
			t.Errorf("%d allowed, %s", ok, allHeads(w))
		}
		b := newAPI(t, Config{}, jatah.Limit{Name: "x", Rates: rates[:2], Burst: 30})
		if w := b.take(takeX); allHeads(w) != `"x";r=11;t=300 | "x";q=30;w=3, "x-2";q=12;w=3600 | 12 11 300 | ` {
			t.Errorf("two buckets: %s", allHeads(w))
		}
	})
}

func TestOtherPolicies(t *testing.T) {
	for want, l := range map[string]jatah.Limit{
		`"x";q=5;w=60`:       {Algorithm: jatah.LeakyBucket, Rate: jatah.PerMinute(5)},
		`"x";q=1;w=1`:        {Algorithm: jatah.BurstAverage, Rate: jatah.PerSecond(2), BurstRate: jatah.PerSecond(8), BurstThreshold: jatah.PerSecond(1), BurstTime: 16 * time.Second},
		`"x";q=3;w=5`:        {Rates: []jatah.Rate{jatah.Per(2, 3*time.Second)}, Burst: 3},
		`"x";q=0`:            {Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(0)},
		`"x";q=10;w=2592000`: {Algorithm: jatah.FixedWindow, Rate: jatah.Per(10, 30*24*time.Hour), Calendar: "month"},
	} {
		l.Name = "x"
		if got := newAPI(t, Config{}, l).take(takeX).Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("%+v: %s, want %s", l, got, want)
		}
	}
}

func TestDefinitionsHaveTheFieldsOfTheirAlgorithm(t *testing.T) {
	const end = `,"mode":"hybrid","overshoot":0,"fallback":"share","dry_run":false,"origin":"local"`
	for want, l := range map[string]jatah.Limit{
		`"rates":["10/s","500/h"],"burst":10,"algorithm":"token_bucket"` + end:                                                     {Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(500)}},
		`"rate":"9/d","algorithm":"fixed_window"` + end + `,"calendar":"day","timezone":"Europe/Berlin"`:                           {Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(9), Calendar: "day", Timezone: "Europe/Berlin"},
		`"rate":"9/h","algorithm":"sliding_window"` + end:                                                                          {Algorithm: jatah.SlidingWindow, Rate: jatah.PerHour(9)},
		`"rate":"9/h","algorithm":"sliding_log"` + end + `,"max_log":50`:                                                           {Algorithm: jatah.SlidingLog, Rate: jatah.PerHour(9), MaxLog: 50},
		`"rate":"9/h","burst":9,"algorithm":"leaky_bucket"` + end:                                                                  {Algorithm: jatah.LeakyBucket, Rate: jatah.PerHour(9)},
		`"rate":"9/h","algorithm":"leaky_bucket"` + strings.Replace(end, "hybrid", "strict", 1) + `,"queue":7,"max_wait":"1h0m0s"`: {Algorithm: jatah.LeakyBucket, Rate: jatah.PerHour(9), Queue: 7, MaxWait: time.Hour},
		`"rate":"2/s","burst":1,"algorithm":"burst_average"` + end + `,"burst_rate":"8/s","burst_threshold":"1/s","burst_time":"16s"`: {Algorithm: jatah.BurstAverage, Rate: jatah.PerSecond(2),
			BurstRate: jatah.PerSecond(8), BurstThreshold: jatah.PerSecond(1), BurstTime: 16 * time.Second},
	} {
		l.Name = "x"
		w := newAPI(t, Config{}, l).call("GET", "/v1/limits/x", "")
		if got := strings.TrimSpace(w.Body.String()); got != `{"name":"x",`+want+`}` {
			t.Errorf("%+v\n got %s\nwant {\"name\":\"x\",%s}", l, got, want)
		}
	}
}
