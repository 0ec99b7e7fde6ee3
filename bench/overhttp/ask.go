package overhttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// asking is requests that one server understands.
type asking struct {
	path    string
	bodies  []string
	size    int    // decisions that one asks for
	allowed string // what the answer says for each that is allowed
}

func keyName(i int) string { return fmt.Sprintf("user:%d", 10_000+i) }

// itemsOf returns the items of requests that together ask for all keys once.
func itemsOf(size, keys int, item func(key string) string) [][]string {
	var all [][]string
	for at := 0; at < keys; at += size {
		var items []string
		for i := range size {
			items = append(items, item(keyName((at+i)%keys)))
		}
		all = append(all, items)
	}
	return all
}

// questions are takes, or batches of them, of the limit "api".
func questions(size, keys int) asking {
	a := asking{path: "/v1/take", size: size, allowed: `"allowed":true`}
	if size > 1 {
		a.path = "/v1/batch"
	}
	for _, items := range itemsOf(size, keys, func(key string) string { return `{"limit":"api","key":"` + key + `","cost":1}` }) {
		body := items[0]
		if size > 1 {
			body = `{"takes":[` + strings.Join(items, ",") + `]}`
		}
		a.bodies = append(a.bodies, body)
	}
	return a
}

// gubernatorQuestions are the same for gubernator, as its README has them.
func gubernatorQuestions(size, keys int) asking {
	a := asking{path: "/v1/GetRateLimits", size: size, allowed: `"UNDER_LIMIT"`}
	for _, items := range itemsOf(size, keys, func(key string) string {
		return `{"name":"api","uniqueKey":"` + key + `","hits":"1","limit":"1000000000","duration":"1000"}`
	}) {
		a.bodies = append(a.bodies, `{"requests":[`+strings.Join(items, ",")+`]}`)
	}
	return a
}

// sample asks once, checks that all is allowed and returns the answer as it was on the wire.
func (a asking) sample(ctx context.Context, addr string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+a.path, strings.NewReader(a.bodies[0]))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("overhttp: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("overhttp: %w", err)
	}
	if resp.StatusCode != http.StatusOK || bytes.Count(body, []byte(a.allowed)) != a.size {
		return nil, fmt.Errorf("overhttp: asked for %d decisions, %s answers %s: %s", a.size, addr+a.path, resp.Status, body)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	var wire bytes.Buffer
	if err := resp.Write(&wire); err != nil {
		return nil, fmt.Errorf("overhttp: %w", err)
	}
	return wire.Bytes(), nil
}
