package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// send calls a node.
func (s *server) send(t *testing.T, method, path, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// Three real nodes: a limit that is sent to one is in use on all and outlasts a stop of all of them; what a file defines is not
// changed.
func TestLimitsOverTheAPI(t *testing.T) {
	besideOthers(t)
	dir := t.TempDir()
	start := func() []*server {
		return startCluster(t, 3, "--state-dir", dir, "--limit", "own=10/min")
	}
	nodes := start()
	if status, answer := nodes[1].send(t, "PUT", "/v1/limits/api", `{"rate":"60/h","burst":30}`); status != 201 || !strings.Contains(answer, `"origin":"api"`) {
		t.Fatalf("%d %s", status, answer)
	}
	for _, s := range nodes {
		wait(t, "a token of the new limit", func() bool {
			d, err := s.ask(http.DefaultClient, "api", "u")
			return err == nil && d.Allowed
		})
	}
	if status, answer := nodes[0].send(t, "PUT", "/v1/limits/own", `{"rate":"1/s"}`); status != 409 {
		t.Errorf("%d %s", status, answer)
	}
	file := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(file, []byte("name: api # of all\nrate: 60/h\nburst: 25\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := program(t, "limits", "--addr", nodes[2].http, "--put", file)
	if code != 0 || !strings.Contains(out, "changed api on all nodes") {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	code, out, stderr = program(t, "limits", "--addr", nodes[0].http)
	if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), "api 60/h 25 token_bucket - the API, on all nodes") || !strings.Contains(out, "this node's file or flags") {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	for _, s := range nodes {
		terminate(t, s)
	}
	nodes = start()
	for _, s := range nodes {
		if status, answer := s.send(t, "GET", "/v1/limits/api", ""); status != 200 || !strings.Contains(answer, `"burst":25`) {
			t.Errorf("after a restart: %d %s", status, answer)
		}
	}
	code, out, stderr = program(t, "limits", "--addr", nodes[0].http, "--delete", "api")
	if code != 0 || !strings.Contains(out, "removed api") {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	for _, s := range nodes {
		wait(t, "the limit being gone", func() bool {
			status, _ := s.send(t, "GET", "/v1/limits/api", "")
			return status == 404
		})
	}
}

func TestLimitsCommandSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, "limit")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for text, want := range map[string]string{
		"rate: 1/s":                  "has no name",
		"- name: api":                "has no name",
		"limits: [{name: api}]":      "is a configuration",
		"{{":                         "neither YAML nor JSON",
		strings.Repeat("# ", 600000): "larger than 1 MiB",
	} {
		code, out, err := runCommand(nil, "limits", "--put", file(text))
		if code == 0 || !strings.Contains(err, want) || out != "" {
			t.Errorf("%.20q: %d %q %q", text, code, out, err)
		}
	}
	if code, _, err := runCommand(nil, "limits", "--put", filepath.Join(dir, "none")); code == 0 || !strings.Contains(err, "none") {
		t.Errorf("%d %q", code, err)
	}
	if code, _, err := runCommand(nil, "limits", "--put", "x", "--delete", "y"); code != exitUsage || !strings.Contains(err, "give one of them") {
		t.Errorf("%d %q", code, err)
	}
}
