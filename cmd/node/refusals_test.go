package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// metric is the sum of the series of a metric that begin so.
func (s *server) metric(t *testing.T, series string) (sum float64) {
	t.Helper()
	resp, err := s.web.Get("http://" + s.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	found := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if !ok || name != series && !strings.HasPrefix(name, series+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum, found = sum+n, true
	}
	if !found {
		t.Fatalf("no series %s", series)
	}
	return sum
}

// A flood of requests for one key that is refused stays on the node that it hits: a denial stands for at least one sync interval, or a
// quarter of the time in which the key fills where that is less. So the owner is asked so often and not more, however hard the flood is.
func TestAFloodOfRefusalsHardlyAsksTheOwner(t *testing.T) {
	needProcesses(t) // alone: the flood takes all that the machine has
	const flooders, length = 16, time.Second
	nodes := startCluster(t, 2, "--limit", "hybrid=20/s,burst=20", "--limit", "strict=20/s,burst=20,mode=strict", "--limit", "never=0/s")
	for _, limit := range []string{"hybrid", "strict", "never"} {
		t.Run(limit, func(t *testing.T) {
			key := ""
			for i := 0; key == ""; i++ {
				if k := fmt.Sprint("k", i); nodes[0].owner(t, limit, k) == "n1" {
					key = k
				}
			}
			edge := nodes[1] // does not own the key
			asked, sent := edge.metric(t, "jatah_asks_total"), edge.metric(t, "jatah_packets_total")
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: flooders}}
			defer client.CloseIdleConnections()
			var flood sync.WaitGroup
			var allowed, denied, ahead, late atomic.Int64
			begin := time.Now()
			for range flooders {
				flood.Go(func() {
					for time.Since(begin) < length {
						d, err := edge.ask(client, limit, key)
						if err != nil {
							t.Error(err)
							return
						}
						if d.Source == "share" || d.Source == "ahead" {
							late.Add(1)
						}
						if ahead.Add(int64(spentAhead(d))); d.Allowed {
							allowed.Add(1)
						} else {
							denied.Add(1)
						}
					}
				})
			}
			flood.Wait()
			took := time.Since(begin)
			asked, sent = edge.metric(t, "jatah_asks_total")-asked, edge.metric(t, "jatah_packets_total")-sent
			t.Logf("%d allowed and %d denied in %v, %d when the owner was late: %v asks, %v packets in and out",
				allowed.Load(), denied.Load(), took, late.Load(), asked, sent)

			ticks := took.Seconds()/0.1 + 2
			// A request that passes may have asked, as may one for each denial that has run out; the burst adds its own. What is
			// decided without the owner, because this machine let it answer late, is asked again.
			if most := ticks + float64(allowed.Load()+late.Load()) + 20; asked > most {
				t.Errorf("%v asks for %d allowed in %v, want at most %.0f", asked, allowed.Load(), took, most)
			}
			// Besides, each tick has a packet each way, the members' gossip and probes some more.
			if most := 2*asked + 6*ticks + 50; sent > most {
				t.Errorf("%v packets in %v, want at most %.0f", sent, took, most)
			}
			// A pause of a process may let the burst through once more, and an owner that is late what is spent ahead.
			if most := 20*float64(1+paused(nodes)) + 20*took.Seconds() + 1 + float64(ahead.Load()); float64(allowed.Load()) > most {
				t.Errorf("%d allowed in %v, want at most %.0f", allowed.Load(), took, most)
			}
		})
	}
}
