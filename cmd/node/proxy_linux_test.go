package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests below put real proxies, with the files of deploy/, between clients and an application, and ask three nodes.

// proxy is a program that asks by forward auth.
type proxy struct {
	name  string
	files []string // of deploy/; the first is what it is started with
	// local is what has to be replaced in the files to run them here: PORT, DIR and QUESTIONS stand for what belongs there.
	local []string
	args  []string
	gone  []int // what a client gets when no node is left
}

var proxies = []proxy{
	{
		name: "nginx", files: []string{"nginx.conf"}, args: []string{"-e", "stderr", "-p", "DIR", "-c", "FILE"}, gone: []int{503},
		local: []string{"listen 80;", "listen 127.0.0.1:PORT;", "events {}", "daemon off; pid DIR/pid; events {}", "http {\n",
			"http {\naccess_log off; client_body_temp_path DIR/b; proxy_temp_path DIR/p; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;\n"},
	},
	{
		name: "caddy", files: []string{"Caddyfile"}, args: []string{"run", "--config", "FILE", "--adapter", "caddyfile"}, gone: []int{502, 503},
		local: []string{":80 {\n", "{\n\tadmin off\n}\n\n:PORT {\n\tbind 127.0.0.1\n"},
	},
	{
		name: "haproxy", files: []string{"haproxy.cfg", "haproxy.lua"}, args: []string{"-db", "-f", "FILE"}, gone: []int{503},
		local: []string{"bind :80\n", "bind 127.0.0.1:PORT\n", "/etc/haproxy/haproxy.lua", "DIR/haproxy.lua", "127.0.0.1:8079", "127.0.0.1:QUESTIONS"},
	},
}

// front is a proxy that runs.
type front struct {
	t    *testing.T
	addr string
}

// freePort is a port that was free a moment ago: these proxies cannot tell which one they got.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(lastingPorts(t, 1)[0])
	return port
}

// start runs the proxy before an application and waits until it listens. more are further replacements.
func (p proxy) start(t *testing.T, nodes []*server, app string, more ...string) *front {
	t.Helper()
	path, err := exec.LookPath(p.name)
	if err != nil {
		t.Skipf("%s is not installed; .ci/run tools installs it", p.name)
	}
	dir, port := t.TempDir(), freePort(t)
	here := strings.NewReplacer("PORT", port, "DIR", dir, "QUESTIONS", freePort(t), "FILE", filepath.Join(dir, p.files[0]))
	replace := append([]string{"127.0.0.1:3000", app}, p.local...)
	for i, s := range nodes {
		replace = append(replace, fmt.Sprintf("10.0.0.%d:8080", i+1), s.http)
	}
	replace = append(replace, more...)
	var all string
	for _, name := range p.files {
		content, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		all += string(content)
		for i := 0; i < len(replace); i += 2 {
			content = []byte(strings.ReplaceAll(string(content), replace[i], here.Replace(replace[i+1])))
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(all, replace[i]) {
			t.Fatalf("%q is in none of %q any more", replace[i], p.files)
		}
	}
	args := make([]string, len(p.args))
	for i, arg := range p.args {
		args[i] = here.Replace(arg)
	}
	runProxy(t, dir, path, args)
	f := &front{t: t, addr: "127.0.0.1:" + port}
	wait(t, p.name+" listening on "+f.addr, func() bool {
		c, err := net.Dial("tcp", f.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return f
}

// runProxy runs a program until the test ends, with all processes that it starts.
func runProxy(t *testing.T, dir, path string, args []string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what is left of the group
		<-ended
		log.Close()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("log of %s:\n%s", path, text)
		}
	})
}

// reply is what a client gets.
type reply struct {
	status int
	head   http.Header
	body   string
}

// send sends a request from a loopback address; head is names and values in turn.
func (f *front) send(from, method, target, body string, head ...string) reply {
	f.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+f.addr+target, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(content)}
}

// startApp runs an application that tells what reached it. /status/N is answered with N.
func startApp(t *testing.T) string {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/status/")); err == nil {
			w.WriteHeader(n)
		}
		fmt.Fprintf(w, "app: %s %s %q soft=%s", r.Method, r.URL.RequestURI(), body, r.Header.Get("Jatah-Soft"))
	}))
	t.Cleanup(app.Close)
	return app.Listener.Addr().String()
}

// behindProxies are the rules of the nodes: six requests of an address, or 500 of an account, and next to nothing comes back meanwhile. The owner
// of a key decides each request, however long that takes, so that it is exactly six.
const behindProxies = `
cluster: {ask_timeout: 20s}
limits:
  - {name: address, rate: 1/d, burst: 6, mode: strict}
  - {name: account, rate: 1/d, burst: 500, mode: strict}
edge:
  trusted_proxies: [127.0.0.1]
  account_header: X-User
  rules:
    - {name: health, path: /health, exempt: true}
    - {name: known, for: authenticated, use: [{limit: account, key: account}]}
    - {name: rest, use: [{limit: address, key: address}], soft: {from: 0.5}}
`

func startNodesBehindProxy(t *testing.T) []*server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jatah.yaml")
	if err := os.WriteFile(file, []byte(behindProxies), 0o644); err != nil {
		t.Fatal(err)
	}
	return startCluster(t, 3, "--config", file)
}

func TestProxiesRefuseAtTheEdge(t *testing.T) {
	besideOthers(t)
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			if _, err := exec.LookPath(p.name); err != nil {
				t.Skipf("%s is not installed; .ci/run tools installs it", p.name)
			}
			nodes := startNodesBehindProxy(t)
			f := p.start(t, nodes, startApp(t))
			refusesExactly(t, f)
			leavesTheRestAlone(t, f)
			survivesNodes(t, p, f, nodes)
		})
	}
}

// refusesExactly: two clients have their own keys, in each of which there are six requests, whatever they say about themselves.
func refusesExactly(t *testing.T, f *front) {
	t.Helper()
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		for i := range 9 {
			spoofed := fmt.Sprintf("203.0.113.%d", i)
			a := f.send(from, "POST", fmt.Sprintf("/x?n=%d&deny_status=402", i), "hello", "X-Forwarded-For", spoofed, "X-Real-IP", spoofed, "Forwarded", "for="+spoofed,
				"X-Forwarded-Uri", "/health", "X-Forwarded-Method", "GET", "X-Original-URI", "/health", "X-User", spoofed, "Jatah-Soft", "no")
			if i < 6 {
				want := fmt.Sprintf("app: POST /x?n=%d&deny_status=402 %q soft=", i, "hello")
				if i >= 2 { // the third of six is half of them
					want += "address"
				}
				if a.status != 200 || a.body != want || !strings.HasPrefix(a.head.Get("RateLimit"), fmt.Sprintf(`"address";r=%d`, 5-i)) || a.head.Get("RateLimit-Policy") == "" {
					t.Errorf("%s, request %d: %+v", from, i, a)
				}
				continue
			}
			retry, err := strconv.Atoi(a.head.Get("Retry-After"))
			if a.status != 429 || err != nil || retry < 1 || !strings.HasPrefix(a.head.Get("RateLimit"), `"address";r=0`) || len(a.head.Values("RateLimit")) != 1 ||
				a.head.Get("RateLimit-Policy") == "" || a.head.Get("Cache-Control") != "no-store" || a.head.Get("Content-Type") != "application/problem+json" ||
				!strings.HasPrefix(a.body, `{"type":"urn:jatah:problem:rate-limited","title":"Too Many Requests","status":429`) {
				t.Errorf("%s, request %d: %+v", from, i, a)
			}
			if strings.Contains(a.body, `"violated"`) && a.head.Get("X-RateLimit-Limit") != "6" { // where the node's answer is passed on, so are all its headers
				t.Errorf("%s, request %d: %+v", from, i, a)
			}
		}
	}
}

// leavesTheRestAlone: what is exempt passes without headers of limits, and answers of the application are its own, whatever their status.
func leavesTheRestAlone(t *testing.T, f *front) {
	t.Helper()
	if a := f.send("127.0.0.2", "GET", "/health", ""); a.status != 200 || a.head.Get("RateLimit") != "" || a.head.Get("RateLimit-Policy") != "" {
		t.Errorf("/health: %+v", a)
	}
	for i, status := range []int{403, 500, 429, 404} {
		target := fmt.Sprintf("/status/%d", status)
		if a := f.send("127.0.0.4", "GET", target, ""); a.status != status || !strings.HasPrefix(a.body, "app: GET "+target+" ") || a.head.Get("Retry-After") != "" {
			t.Errorf("request %d, %s: %+v", i, target, a)
		}
	}
}

// survivesNodes: while one node is left, all requests are decided; then clients get what the proxy's file says.
func survivesNodes(t *testing.T, p proxy, f *front, nodes []*server) {
	t.Helper()
	for i, dies := range nodes[:2] {
		dies.kill()
		for n := range 8 {
			from := fmt.Sprintf("127.0.%d.%d", 10+i, n+1)
			if a := f.send(from, "GET", "/x", ""); a.status != 200 && a.status != 429 {
				t.Errorf("%d nodes killed, %s: %+v", i+1, from, a)
			}
		}
	}
	nodes[2].kill()
	a := f.send("127.0.0.5", "GET", "/x", "")
	for _, want := range p.gone {
		if a.status == want {
			return
		}
	}
	t.Errorf("all nodes killed: %+v, want one of %v", a, p.gone)
}

// An office of 35 people is behind one address. The allowance of the address is used up by visitors whom nobody knows; the account of the
// office, which the proxy has checked, is at 8 % of its own.
func TestAnOfficeBehindOneAddressIsNotThrownOut(t *testing.T) {
	besideOthers(t)
	nginx := proxies[0]
	if _, err := exec.LookPath(nginx.name); err != nil {
		t.Skipf("%s is not installed; .ci/run tools installs it", nginx.name)
	}
	passwords := filepath.Join(t.TempDir(), "passwords")
	if err := os.WriteFile(passwords, []byte("office:{PLAIN}secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := nginx.start(t, startNodesBehindProxy(t), startApp(t),
		"auth_request /_jatah;", `set $realm off; if ($http_authorization) { set $realm office; } auth_basic $realm; auth_basic_user_file `+passwords+`; auth_request /_jatah;`,
		`proxy_set_header X-User "";`, `proxy_set_header X-User $checked_user;`,
		"events {}", "user root; events {}", // who may read the passwords here; without effect where the test is not root
		"upstream jatah {", `map $http_authorization $checked_user { default $remote_user; "" ""; } upstream jatah {`)
	for i := range 7 {
		if a := f.send("127.0.0.2", "GET", "/", ""); (a.status == 200) != (i < 6) {
			t.Fatalf("visitor %d: %+v", i, a)
		}
	}
	const office = "Basic b2ZmaWNlOnNlY3JldA==" // office:secret
	for i := range 40 {
		if a := f.send("127.0.0.3", "GET", "/", "", "Authorization", office); a.status != 200 {
			t.Fatalf("request %d of the office from elsewhere: %+v", i, a)
		}
	}
	for i := range 35 {
		a := f.send("127.0.0.2", "GET", fmt.Sprintf("/desk/%d", i), "", "Authorization", office)
		if want := fmt.Sprintf(`"account";r=%d`, 500-40-1-i); a.status != 200 || !strings.HasPrefix(a.head.Get("RateLimit"), want) {
			t.Errorf("desk %d: %+v, want RateLimit %s", i, a, want)
		}
	}
	// Who only says to be the office is nobody, at the same address.
	if a := f.send("127.0.0.2", "GET", "/", "", "X-User", "office"); a.status != 429 {
		t.Errorf("somebody who says to be the office: %+v", a)
	}
	if a := f.send("127.0.0.2", "GET", "/", "", "Authorization", "Basic b2ZmaWNlOndyb25n"); a.status != 401 {
		t.Errorf("a wrong password: %+v", a)
	}
}
