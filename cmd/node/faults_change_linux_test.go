package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jatah-io/jatah/internal/envelope"
)

// hourly is a limit whose keys gain one token in 36 s. Its fallback is share: with
// wait, keys that a new owner is told nothing of would start empty, and nothing
// could be seen to be remembered.
const (
	hourly     = "hourly"
	perHour    = 100
	hourlyFlag = "hourly=100/h,burst=100,fallback=share"
)

// slow is a key of hourly.
type slow struct {
	key string
	flood
}

// take asks a node for some tokens of the key, and says whether it got them.
func (k *slow) take(r *rig, m *member, cost int) (bool, error) {
	down, sent := m.isDown(), time.Since(r.begin)
	d, err := m.server().askFor(r.web, hourly, k.key, cost)
	if err != nil && (down || m.isDown()) {
		return false, nil
	}
	a := envelope.Admission{Sent: sent, Done: time.Since(r.begin)}
	k.add(a, d, err)
	for i := 1; i < cost && err == nil && d.Allowed; i++ {
		k.add(a, d, nil)
	}
	return d.Allowed, err
}

// askFor takes tokens over HTTP.
func (s *server) askFor(client *http.Client, limit, key string, cost int) (d decision, err error) {
	body := fmt.Sprintf(`{"limit":%q,"key":%q,"cost":%d}`, limit, key, cost)
	resp, err := client.Post("http://"+s.http+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		return d, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		answer, _ := io.ReadAll(resp.Body)
		return d, fmt.Errorf("status %s: %s", resp.Status, answer)
	}
	return d, json.NewDecoder(resp.Body).Decode(&d)
}

// exhaust takes tokens at all nodes in turn until each refuses, by the owner's word: what is decided without it,
// because this machine let it answer late, says nothing.
func (k *slow) exhaust(t *testing.T, r *rig) {
	t.Helper()
	for cost := 10; cost >= 1; cost -= 9 {
		late := func() int { return k.count("share") + k.count("ahead") }
		for refused, i := 0, 0; refused < len(r.nodes); i++ {
			if i == 10*perHour {
				t.Fatalf("%s: not exhausted after %d requests, of which %d were not answered by the owner", k.key, i, late())
			}
			before := late()
			allowed, err := k.take(r, r.nodes[i%len(r.nodes)], cost)
			switch {
			case err != nil:
				t.Fatal(err)
			case allowed:
				refused = 0
			case late() == before:
				refused++
			}
		}
	}
}

// Three nodes are stopped and started again one after the other, under load. What
// was used before stays used, and nothing is let through meanwhile.
func TestARollingRestartForgetsNothing(t *testing.T) {
	besideOthers(t)
	r := newRig(t, 3, kinds(), "--limit", hourlyFlag)
	var keys []*slow
	for i := range 30 {
		k := &slow{key: fmt.Sprintf("key-%d-%x", i, r.rng.Uint32())}
		k.sources = map[string]int{}
		k.exhaust(t, r)
		if n := len(k.admitted); n < perHour*97/100 && r.unmeant() == 0 { // who is paused burns the credit it has
			t.Errorf("%s: refused after %d of %d", k.key, n, perHour)
		}
		keys = append(keys, k)
	}

	busy := r.everyKind(r.rng.IntN(3))
	var ended atomic.Bool
	var workers sync.WaitGroup
	t.Cleanup(func() { ended.Store(true) })
	for i, m := range r.nodes {
		workers.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for n := i * 10; !ended.Load(); <-pace.C {
				keys[n%len(keys)].take(r, m, 1) // errors are kept with the key
				n++
			}
		})
	}
	for i, m := range r.nodes {
		m.setDown(true)
		asked := time.Now()
		terminate(t, m.server())
		took := time.Since(asked)
		t.Logf("%s ended %v after SIGTERM", m.name, took.Round(time.Millisecond))
		if took > 10*time.Second {
			t.Errorf("%s took %v to end, longer than 10 s", m.name, took)
		}
		if text := m.server().text(); strings.Contains(text, "without all that was used") {
			t.Errorf("%s did not hand everything off:\n%s", m.name, text)
		}
		r.launch(i, 1)
		m.server().waitReady()
		m.setDown(false)
		r.waitWhole()
	}
	ended.Store(true)
	workers.Wait()
	for _, k := range keys {
		for _, m := range r.nodes {
			if _, err := k.take(r, m, 1); err != nil {
				t.Error(err)
			}
		}
	}
	judgeSlow(t, r, keys)
	for _, s := range busy {
		s.waitUsed()
		s.judge("rolling restart, saturated", 0)
	}
}

// judgeSlow compares each key with burst and refill, and logs the sums and the worst.
func judgeSlow(t *testing.T, r *rig, keys []*slow) {
	t.Helper()
	admitted, allowed, worst, asked := 0, 0.0, 0.0, 0
	bound := 1 + float64(r.unmeant()*perHour)
	for _, k := range keys {
		for _, err := range k.errors {
			t.Errorf("%s: no decision: %v", k.key, err)
		}
		admitted, asked = admitted+len(k.admitted), asked+len(k.admitted)+k.refused
		allowed += perHour + perHour*(k.last-k.first).Hours()
		over := envelope.WorstExcess(k.admitted, perHour/3600.0, perHour).Tokens
		worst = max(worst, over)
		if over > bound {
			t.Errorf("%s: %d admitted, %.1f beyond b + r·t", k.key, len(k.admitted), over)
		}
	}
	t.Logf("| rolling restart, %d exhausted keys | hybrid | share | admitted %d | allowed %.1f | used %.1f %% | worst excess of a key %.2f | of %d requests, %d pauses",
		len(keys), admitted, allowed, 100*float64(admitted)/allowed, worst, asked, r.unmeant())
}

func TestSecretsBeyondLoopback(t *testing.T) {
	besideOthers(t)
	r := newRig(t, 2, nil, "--limit", "api=1/h,burst=2")
	client := r.web
	for i, want := range []bool{true, true, false} {
		var d decision
		wait(t, "a decision that both nodes agree to", func() (ok bool) {
			var err error
			d, err = r.nodes[i%2].server().ask(client, "api", "user")
			return err == nil
		})
		if d.Allowed != want {
			t.Errorf("take %d of a burst of 2, at either node in turn: allowed %v", i+1, d.Allowed)
		}
	}

	seed := r.nodes[0].server().bind
	other := r.run(0, 2, "--node", "stranger", "--join", seed, "--secret-file", secretFile(t))
	if code, text := other.exitCode(), other.text(); code != exitFailed || !strings.Contains(text, "secret") || !strings.Contains(text, seed) {
		t.Errorf("a node with another secret: exit code %d, says %q; want %d, the word secret and the seed", code, text, exitFailed)
	}
	open := r.run(0, 2, "--node", "stranger", "--join", seed, "--insecure")
	if code, text := open.exitCode(), open.text(); code != exitFailed || !strings.Contains(text, "secret") || !strings.Contains(text, seed) {
		t.Errorf("a node without encryption: exit code %d, says %q; want %d, the word secret and the seed", code, text, exitFailed)
	}
	bare := r.run(0, 2, "--node", "stranger", "--join", seed)
	if code, text := bare.exitCode(), bare.text(); code != exitFailed || !strings.Contains(text, "secret") || !strings.Contains(text, "insecure") {
		t.Errorf("a node without a secret: exit code %d, says %q; want %d, and both ways out", code, text, exitFailed)
	}
	for what, s := range map[string]*server{"another secret": other, "no encryption": open, "no secret": bare} {
		t.Logf("%s: %s", what, strings.TrimSpace(s.text()))
	}
	for _, m := range r.nodes {
		r.waitAlive(m, 2) // the two nodes, and no stranger
		m.server().signal(syscall.SIGTERM)
	}
	for _, m := range r.nodes {
		if code := m.server().exitCode(); code != 0 {
			t.Errorf("%s: exit code %d", m.name, code)
		}
	}
}
