package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sample is what the metrics of a process said.
type sample struct {
	at     time.Duration
	node   int
	start  int // which process of the node
	values map[string]float64
}

// The metrics that are kept.
const (
	mResident = "process_resident_memory_bytes"
	mNextGC   = "go_memstats_next_gc_bytes"
	mHeap     = "go_memstats_heap_alloc_bytes"
	mRoutines = "go_goroutines"
	mFiles    = "process_open_fds"
	mPauses   = "jatah_pauses_total"
	mApplied  = `jatah_config_reloads_total{result="applied"}`
	mRefused  = `jatah_config_reloads_total{result="refused"}`
	mWrites   = `jatah_state_writes_total{result="ok"}`
	mFailures = `jatah_state_writes_total{result="failed"}`
	mAccounts = `jatah_table_entries{kind="account"}`
	mLedgers  = `jatah_table_entries{kind="ledger"}`
)

// watch reads the metrics of all nodes from time to time. Safe for concurrent use.
type watch struct {
	load    *load
	web     *http.Client
	mu      sync.Mutex
	samples []sample
	last    map[[2]int]sample // by node and process
	paused  []event           // pauses that nodes noticed, wherever they came from
}

func newWatch(l *load, transport http.RoundTripper) *watch {
	return &watch{load: l, web: &http.Client{Transport: transport, Timeout: patience}, last: make(map[[2]int]sample)}
}

// run samples until ctx ends.
func (w *watch) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		w.all(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// all samples every node that answers, all at once.
func (w *watch) all(ctx context.Context) {
	var readers sync.WaitGroup
	for _, n := range w.load.nodes {
		if n.running() != nil {
			readers.Go(func() { w.one(ctx, n) })
		}
	}
	readers.Wait()
}

func (w *watch) one(ctx context.Context, n *node) {
	start := n.started()
	values, err := w.read(ctx, n)
	if err != nil || n.started() != start {
		return // it is down or paused; the next time it answers tells
	}
	s := sample{at: w.load.now(), node: n.index, start: start, values: values}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples = append(w.samples, s)
	before, known := w.last[[2]int{s.node, s.start}]
	if !known {
		before.at = s.at - time.Second
	}
	if known && s.values[mPauses] > before.values[mPauses] || !known && s.values[mPauses] > 0 {
		// A pause is noticed when it is over, so it began some time before.
		w.paused = append(w.paused, event{
			from: before.at - patience, to: s.at + time.Second, kind: Pause, times: int(s.values[mPauses] - before.values[mPauses]), nodes: []int{s.node},
		})
	}
	w.last[[2]int{s.node, s.start}] = s
}

// value is one metric of a node, now.
func (w *watch) value(ctx context.Context, n *node, name string) (float64, error) {
	values, err := w.read(ctx, n)
	return values[name], err
}

// read gets the metrics that are kept.
func (w *watch) read(ctx context.Context, n *node) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.http+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("chaos: %s answers its metrics with %s", n.name, resp.Status)
	}
	values := make(map[string]float64)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, text, ok := cutLast(lines.Text())
		if !ok || !kept(name) {
			continue
		}
		if values[name], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("chaos: a metric of %s: %w", n.name, err)
		}
	}
	return values, nil
}

func kept(name string) bool {
	switch name {
	case mResident, mNextGC, mHeap, mRoutines, mFiles, mPauses, mApplied, mRefused, mWrites, mFailures, mAccounts, mLedgers:
		return true
	}
	return false
}

// cutLast splits a line of metrics at its last space.
func cutLast(line string) (name, value string, ok bool) {
	if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
		return line[:i], line[i+1:], true
	}
	return "", "", false
}
