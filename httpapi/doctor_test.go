package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

func TestDoctor(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 1, 10))
	w := a.call("GET", "/v1/doctor", "")
	var b doctorBody
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if len(b.Answered) != 1 || b.Answered[0] != b.Node || b.Missing == nil || b.Findings == nil ||
		slices.ContainsFunc(b.Findings, func(f findingBody) bool { return f.Level != "note" }) {
		t.Errorf("%s", w.Body)
	}
	if w := a.call("GET", "/v1/doctor?all=1", ""); w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := a.call("POST", "/v1/doctor", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	a.node.Close()
	if w := a.call("GET", "/v1/doctor", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("closed: %d %s", w.Code, w.Body)
	}
}

func TestFindingsOverHTTP(t *testing.T) {
	d := jatah.Diagnosis{Node: "n1", Answered: []string{"n1"}, Missing: []string{"n2"}, Findings: []jatah.Finding{
		{Check: "packets", Nodes: []string{"n1", "n2"}, Problem: "p", Advice: "a"}, {Check: "clock", Note: true}}}
	got, err := json.Marshal(doctorOf(&d))
	want := `{"node":"n1","answered":["n1"],"missing":["n2"],"findings":[{"check":"packets","level":"problem","nodes":["n1","n2"],"problem":"p","advice":"a"},` +
		`{"check":"clock","level":"note","nodes":[],"problem":"","advice":""}]}`
	if err != nil || string(got) != want {
		t.Errorf("%s\nwant %s (%v)", got, want, err)
	}
}

func TestThoseWhoAskAtOnceShareARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v visits
		var rounds atomic.Int32
		look := func(ctx context.Context) (jatah.Diagnosis, error) {
			rounds.Add(1)
			time.Sleep(time.Second)
			return jatah.Diagnosis{Node: "n1"}, ctx.Err()
		}
		first, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if e := v.join(first, look); e != nil {
				t.Errorf("%+v for who has left", e)
			}
		})
		synctest.Wait()
		for range 40 {
			wg.Go(func() {
				if e := v.join(t.Context(), look); e == nil || e.err != nil || e.found.Node != "n1" {
					t.Errorf("%+v", e)
				}
			})
		}
		synctest.Wait()
		leave()
		wg.Wait()
		if e := v.join(t.Context(), look); e == nil || e.err != nil || rounds.Load() != 2 {
			t.Errorf("%+v after %d rounds", e, rounds.Load())
		}
	})
}
