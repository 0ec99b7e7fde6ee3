package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// outcome is what became of a request.
type outcome uint8

const (
	admitted outcome = iota
	refused
	failed // the node did not answer
)

// record is one decision as the service saw it; times since the start.
type record struct {
	sent, done time.Duration
	node, key  int
	outcome    outcome
	elsewhere  bool // not decided by credit or owner but by a fallback
	ahead      bool // the fallback was to spend ahead of a share
}

// service is a small web application before one node: it says hello to a user
// who is within the limit.
type service struct {
	node   int
	limit  string
	api    string // the node's HTTP API
	client *http.Client
	log    *journal
	server *http.Server
	addr   string
}

// startService begins to answer requests; before the first one, say the address of its node.
func startService(node int, limit string, log *journal) (*service, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{
		node: node, limit: limit, log: log, addr: ln.Addr().String(),
		// No time limit of its own: how long a decision takes while a node is
		// down is what the demo shows.
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}},
	}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go s.server.Serve(ln)
	return s, nil
}

func (s *service) close() {
	s.server.Close()
	s.client.CloseIdleConnections()
}

// ServeHTTP answers GET /hello?user=NAME.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := r.URL.Query().Get("user")
	sent := s.log.now()
	d, err := s.take(r.Context(), user)
	rec := record{sent: sent, done: s.log.now(), node: s.node, key: s.log.keyIndex(user)}
	switch {
	case err != nil:
		rec.outcome = failed
		http.Error(w, "the limiter does not answer", http.StatusBadGateway)
	case !d.Allowed:
		rec.outcome = refused
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	default:
		fmt.Fprintf(w, "hello %s, %d left\n", user, d.Remaining)
	}
	rec.ahead = d.Source == "ahead"
	rec.elsewhere = d.Source == "share" || d.Source == "ahead" || d.Source == "deny" || d.Source == "allow"
	s.log.add(rec)
}

// decision is the part of the node's answer that a service needs.
type decision struct {
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"`
	Source    string `json:"source"`
}

func (s *service) take(ctx context.Context, key string) (decision, error) {
	body, err := json.Marshal(map[string]any{"limit": s.limit, "key": key, "cost": 1})
	if err != nil {
		return decision{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+"/v1/take", bytes.NewReader(body))
	if err != nil {
		return decision{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	var d decision
	status, err := s.ask(req, &d)
	if err == nil && status != http.StatusOK && status != http.StatusTooManyRequests {
		err = fmt.Errorf("the node answered with status %d", status)
	}
	return d, err
}

// owner asks the node who owns a key.
func (s *service) owner(ctx context.Context, key string) (string, error) {
	query := url.Values{"limit": {s.limit}, "key": {key}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api+"/v1/peek?"+query, nil)
	if err != nil {
		return "", err
	}
	var state struct{ Owner, Detail string }
	status, err := s.ask(req, &state)
	switch {
	case err != nil:
		return "", err
	case status != http.StatusOK || state.Owner == "":
		return "", errors.New("the node does not know the owner of " + key + ": " + strings.TrimSpace(state.Detail))
	}
	return state.Owner, nil
}

func (s *service) ask(req *http.Request, answer any) (int, error) {
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(answer); err != nil {
		return 0, err
	}
	// Reads what is left, a line feed, so that the connection is used again.
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}
