package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runCommand runs a command in this process.
func runCommand(environ []string, args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	code = run(context.Background(), console{&stdout, &stderr, environ}, args)
	return code, stdout.String(), stderr.String()
}

func TestWrongUseEndsWith2AndSaysHowToGetHelp(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "usage: jatah COMMAND"},
		{[]string{"frobnicate"}, `there is no command "frobnicate"`},
		{[]string{"serv"}, `there is no command "serv": did you mean serve?`},
		{[]string{"serve", "--colour"}, "there is no flag --colour\nsee: jatah serve -h"},
		{[]string{"serve", "--limti", "api=1/s"}, "there is no flag --limti: did you mean --limit?"},
		{[]string{"serve", "--http"}, "--http stands at the end, and needs a value"},
		{[]string{"serve", "now.yaml"}, `takes no arguments, was given ["now.yaml"]; a file of configuration is named by --config`},
		{[]string{"serve", "--log-format", "xml"}, "neither text nor json"},
		{[]string{"serve", "--log-level", "loud"}, `--log-level: "loud" will not do: write debug, info, warn or error`},
		{[]string{"check"}, "needs exactly: FILE"},
		{[]string{"take", "api"}, "needs exactly: LIMIT KEY"},
		{[]string{"take", "api", "u1", "--cost", "2"}, "flags come first"},
		{[]string{"take", "--cost", "many", "api", "u1"}, `--cost: "many" will not do: write a whole number, such as 10` + "\nsee: jatah take -h"},
		{[]string{"top", "--watch", "1"}, `--watch: "1" will not do: write a number with its unit, such as 500ms`},
		{[]string{"math", "--rate", "x"}, `--rate: "x" will not do: malformed rate "x": want tokens per duration`},
		{[]string{"key"}, "needs one of: new | list | rotate"},
		{[]string{"forget"}, "needs exactly: NODE"},
		{[]string{"top", "api"}, "takes no arguments"},
		{[]string{"top", "--watch", "10ms"}, "--watch 10ms is too short: write 500ms or more"},
		{[]string{"demo", "--duration", "1s"}, "use 5s or more"},
		{[]string{"demo", "--limit", "nonsense"}, "limit"},
		{[]string{"demo", "--limit", "a=1/s;b=1/s"}, ""},
		{[]string{"demo", "--mode", "odd"}, "mode"},
		{[]string{"demo", "--limit", "a=0/s"}, "nothing to see"},
		{[]string{"demo", "--limit", "a=9/s,algorithm=sliding_log"}, "no plain token_bucket"},
		{[]string{"demo", "--limit", "a=9/s+90/h"}, "no plain token_bucket"},
	} {
		code, out, err := runCommand(nil, c.args...)
		if code != exitUsage || !strings.Contains(err, c.want) || out != "" {
			t.Errorf("%q: code %d, out %q, err %q; want code 2 and %q", c.args, code, out, err, c.want)
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	for _, cmd := range commands() {
		for _, args := range [][]string{{cmd.name, "-h"}, {cmd.name, "--help"}, {"help", cmd.name}} {
			code, out, err := runCommand(nil, args...)
			if code != 0 || !strings.HasPrefix(out, "usage: jatah "+cmd.name) || strings.Contains(out, "[flags]") != strings.Contains(out, "\n  --") || err != "" {
				t.Errorf("%q: code %d, out %q, err %q", args, code, out, err)
			}
			for _, name := range []string{"count", "name", "rate", "mode", "time"} { // it stands after the flag already
				if strings.Contains(out, "; "+name+"\n") || strings.Contains(out, "; "+name+" (") {
					t.Errorf("%q: a line ends with the name of its value: %s", args, out)
				}
			}
		}
	}
	code, out, _ := runCommand(nil, "help")
	if code != 0 || !strings.Contains(out, "jatah demo") {
		t.Errorf("help: code %d, %q", code, out)
	}
	if code, out, _ := runCommand(nil, "version"); code != 0 || !strings.HasPrefix(out, "jatah ") || !strings.Contains(out, "go1") {
		t.Errorf("version: code %d, %q", code, out)
	}
}

func TestServeHasAFlagForEachFieldAndRefusesBadOnes(t *testing.T) {
	for flag, value := range map[string]string{
		"--http": "nowhere", "--bind": "nowhere", "--limit": "api", "--sync-interval": "fast",
		"--ask-timeout": "-1s", "--expect": "some", "--grace": "forever", "--advertise": "a b", "--join": "a b",
	} {
		code, _, err := runCommand(nil, "serve", flag, value)
		if code != exitFailed || !strings.Contains(err, flag+": ") {
			t.Errorf("serve %s %s: code %d, %q", flag, value, code, err)
		}
	}
	code, _, err := runCommand(nil, "serve", "--limit", "api=1/s", "--limit", "api=2/s")
	if code != exitFailed || !strings.Contains(err, `"api" is defined twice`) {
		t.Errorf("one limit twice: code %d, %q", code, err)
	}
}

func TestCheckSaysWhatAFileAmountsToOrWhatIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jatah.yaml")
	file := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file("node: n1\ncluster: {join: [127.0.0.1:7947]}\nlimits:\n  - {name: api, rate: 100/min, mode: strict, overshoot: 0.1, dry_run: true}\n")
	code, out, err := runCommand(nil, "check", path)
	want := []string{path + ": ok", "node n1", "127.0.0.1:8080", "127.0.0.1:7946", "joins 127.0.0.1:7947",
		"limit api: 100/min, burst 100, token_bucket, strict, fallback share, overshoot 0.1, dry run"}
	for _, w := range want {
		if code != 0 || !strings.Contains(out, w) {
			t.Errorf("code %d, out %q, err %q; want %q", code, out, err, w)
		}
	}
	file("limits:\n  - name: api\n    rate: 10/min\n    plans: {pro: {rates: [10/s, 1000/d]}, free: {rate: 100/d, burst: 20}}\n    overrides: [{key: vip, plan: pro}, {prefix: \"in:\", rate: 100/s, burst: 50}, {key: \"in:x\"}]\n    costs: {/export: 9}\n")
	const parts = "limit api: 10/min, burst 10, token_bucket, hybrid, fallback share\n  plan free: 100/d, burst 20\n  plan pro: 10/s and 1000/d, burst 10\n" +
		"  key \"vip\": plan pro\n  keys that begin with \"in:\": 100/s, burst 50\n  key \"in:x\": the limit's own\n  route \"/export\": cost 9\n"
	if code, out, err = runCommand(nil, "check", path); code != 0 || !strings.HasSuffix(out, parts) {
		t.Errorf("code %d, out %q, err %q; want %q", code, out, err, parts)
	}
	if code, out, _ = runCommand([]string{"JATAH_NODE=other"}, "check", path); code != 0 || !strings.Contains(out, "node other") {
		t.Errorf("with JATAH_NODE: code %d, %q", code, out)
	}

	file("limits:\n  - {name: api, rate: 50/s}\n  - {name: other, rate: abc}\n  - {name: api, rate: 7/s}\n")
	for _, command := range [][]string{{"check", path}, {"serve", "--config", path}} {
		code, out, err = runCommand(nil, command...)
		if code != exitFailed || out != "" || !strings.Contains(err, path+":3:25: limits[1].rate: ") ||
			!strings.Contains(err, path+":4:5: limits.api: ") && !strings.Contains(err, path+":4:") {
			t.Errorf("%q: code %d, out %q, err %q", command, code, out, err)
		}
	}
	if code, _, err = runCommand(nil, "check", path+".absent"); code != exitFailed || !strings.Contains(err, "no such file") {
		t.Errorf("absent file: code %d, %q", code, err)
	}
}

// answering is a node that gives one answer and remembers the request.
type answering struct {
	status  int
	body    string
	request string
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.request = fmt.Sprintf("%s %s %s", r.Method, r.URL, body)
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

func TestClientCommands(t *testing.T) {
	const denied = `{"allowed":false,"limit":"api","key":"u1","cost":9,"remaining":0,"retry_after_ms":1200,"reset_after_ms":5000,"mode":"hybrid","source":"owner"}`
	const never = `{"allowed":false,"limit":"api","key":"u1","cost":99,"remaining":7,"retry_after_ms":null,"reset_after_ms":1,"mode":"split","source":"local","reason":"too much"}`
	const view = `{"node":"n1","ready":true,"k":2,"weight":0.5,"grace_ms":null,"members":[{"name":"n1","addr":"127.0.0.1:1","http":"127.0.0.1:2","state":"alive","partitions":140,"share":0.5,"self":true},{"name":"n2","state":"failed","since":"2026-01-02T03:04:05Z"}]}`
	for _, c := range []struct {
		args    []string
		status  int
		body    string
		request string
		code    int
		want    []string // in what is printed
	}{
		{[]string{"take", "--addr", "ADDR", "api", "u1"}, 200,
			`{"allowed":true,"limit":"api","key":"u1","cost":1,"remaining":19,"retry_after_ms":0,"reset_after_ms":600,"mode":"hybrid","source":"local"}`,
			`POST /v1/take {"cost":1,"key":"u1","limit":"api"}`, 0, []string{"allowed: api u1, cost 1; 19 left, full in 600ms (hybrid, decided by local)"}},
		{[]string{"take", "--addr", "ADDR", "calls", "u1"}, 200,
			`{"allowed":true,"limit":"calls","key":"u1","cost":1,"remaining":3,"retry_after_ms":0,"reset_after_ms":36000,"delay_ms":24000,"mode":"strict","source":"owner"}`,
			`POST /v1/take {"cost":1,"key":"u1","limit":"calls"}`, 0, []string{"allowed: calls u1, cost 1; 3 left, go on in 24s, full in 36s (strict, decided by owner)"}},
		{[]string{"take", "--addr", "ADDR/", "--cost", "9", "api", "u1"}, 429, denied,
			`POST /v1/take {"cost":9,"key":"u1","limit":"api"}`, exitDenied, []string{"denied: api u1, cost 9; 0 left, retry in 1.2s (hybrid, decided by owner)"}},
		{[]string{"take", "--addr", "ADDR", "--plan", "pro", "api", "u1"}, 200,
			`{"allowed":true,"limit":"api","key":"u1","plan":"pro","cost":1,"remaining":49,"retry_after_ms":0,"reset_after_ms":600,"mode":"hybrid","source":"local"}`,
			`POST /v1/take {"cost":1,"key":"u1","limit":"api","plan":"pro"}`, 0, []string{"allowed: api u1 as pro, cost 1; 49 left, full in 600ms (hybrid, decided by local)"}},
		{[]string{"take", "--addr", "ADDR", "--plan", "gold", "api", "u1"}, 400, `{"detail":"The limit \"api\" has no plan \"gold\"; it has pro."}`,
			"POST /v1/take ", exitFailed, []string{`answered 400 Bad Request: The limit "api" has no plan "gold"; it has pro`}},
		{[]string{"take", "--addr", "ADDR", "--json", "api", "u1"}, 429, denied + "\n", "POST /v1/take ", exitDenied, []string{denied}},
		{[]string{"take", "--addr", "ADDR", "--cost=99", "api", "u1"}, 429, never, "POST /v1/take ", exitDenied, []string{"no wait helps: too much"}},
		{[]string{"take", "--addr", "ADDR", "apo", "u1"}, 404, `{"title":"Not Found","detail":"No limit is named \"apo\"."}`,
			"POST /v1/take ", exitFailed, []string{`answered 404 Not Found: No limit is named "apo"`}},
		{[]string{"take", "--addr", "ADDR", "api", "u1"}, 200, `hello`, "POST /v1/take ", exitFailed, []string{"is not a decision"}},
		{[]string{"cluster", "--addr", "ADDR"}, 200, view, "GET /v1/cluster ", 0,
			[]string{"as n1 sees it (ready): 2 members counted, its share of every limit 50.0 %, grace never", "n1 *", "140", "failed since 2026-01-02T03:04:05Z"}},
		{[]string{"cluster", "--addr", "ADDR", "--json"}, 200, view, "GET /v1/cluster ", 0, []string{view}},
		{[]string{"forget", "--addr", "ADDR", "n 2"}, 204, "", "POST /v1/forget?node=n+2 ", 0, []string{"forgot n 2"}},
		{[]string{"forget", "--addr", "ADDR", "n9"}, 404, `{"detail":"No member is named \"n9\"."}`, "POST /v1/forget?node=n9 ", exitFailed, []string{`No member is named "n9"`}},
	} {
		node := &answering{status: c.status, body: c.body}
		server := httptest.NewServer(node)
		for i := range c.args {
			c.args[i] = strings.Replace(c.args[i], "ADDR", server.URL, 1)
		}
		code, out, err := runCommand(nil, c.args...)
		server.Close()
		if code != c.code || !strings.HasPrefix(node.request, c.request) {
			t.Errorf("%q: code %d, request %q; want %d, %q (%s%s)", c.args, code, node.request, c.code, c.request, out, err)
		}
		for _, w := range c.want {
			if !strings.Contains(out+err, w) {
				t.Errorf("%q: printed %q %q, want %q", c.args, out, err, w)
			}
		}
	}
}

func TestANodeThatIsNotThereIsSaidToBeSo(t *testing.T) {
	server := httptest.NewServer(nil)
	addr := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	code, _, err := runCommand(nil, "take", "--addr", addr, "api", "u1")
	if code != exitFailed || !strings.Contains(err, "no answer from http://"+addr) || !strings.Contains(err, "--addr") {
		t.Errorf("code %d, %q", code, err)
	}
}

func TestTheGateIsOpenOnlyWhileTheNodeMayGetRequests(t *testing.T) {
	g := &gate{}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "api") })
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	expect := func(when, path string, status int, body string) {
		t.Helper()
		if s, b := get(path); s != status || !strings.Contains(b, body) {
			t.Errorf("%s: %s answers %d %q, want %d %q", when, path, s, b, status, body)
		}
	}
	expect("joining", "/healthz", 200, "ok")
	expect("joining", "/readyz", 503, "joining")
	expect("joining", "/v1/take", 503, "joining")
	g.open(api)
	expect("open", "/healthz", 200, "api")
	expect("open", "/readyz", 200, "api")
	expect("open", "/v1/take", 200, "api")
	g.leave()
	expect("leaving", "/healthz", 200, "api")
	expect("leaving", "/readyz", 503, "leaving")
	expect("leaving", "/v1/take", 200, "api")
}

func TestEscapeCodesOnlyForATerminal(t *testing.T) {
	if isTerminal(&bytes.Buffer{}, nil) {
		t.Error("a buffer is taken for a terminal")
	}
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for _, c := range []struct {
		environ []string
		want    bool
	}{{nil, true}, {[]string{"NO_COLOR="}, true}, {[]string{"NO_COLOR=1"}, false}, {[]string{"TERM=dumb"}, false}, {[]string{"TERM=xterm"}, true}} {
		if got := isTerminal(device, c.environ); got != c.want {
			t.Errorf("%q: terminal %v, want %v", c.environ, got, c.want)
		}
	}
}
