package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// patientSleep is the sleep of the page, whose second is enough for nodes to read a changed file where little else runs. Here it goes on until each has written
// something to its log since then.
const patientSleep = `
sleep() {
	command sleep "$1"
	local n file try
	for n in 1 2 3; do
		for file in n$n.yaml n$n.pem tokens.yaml secret; do
			for try in $(seq 300); do
				if [ n$n.log -nt $file ]; then break; fi
				command sleep 0.1
			done
		done
	done
}
`

// The page of steps for a secure cluster is carried out as it is written, but for the ports, which others may have, and the program, which is built already.
func TestThePageOfStepsForASecureCluster(t *testing.T) {
	needProcesses(t)
	for _, tool := range []string{"bash", "openssl", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here", tool)
		}
	}
	page, err := os.ReadFile("../../docs/secure-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(page, -1)
	for _, block := range blocks {
		script.Write(block[1])
	}
	var ports, pairs []string
	for i, address := range lastingPorts(t, 6) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
		pairs = append(pairs, []string{"7911", "7912", "7913", "7921", "7922", "7923"}[i], port)
	}
	// What is put together from a number, 791$n, is looked up in the shell. In one pass: a port may have another's digits.
	text := strings.NewReplacer(append(pairs, "791$n", "$(port $n "+strings.Join(ports[:3], " ")+")",
		"792$n", "$(port $n "+strings.Join(ports[3:], " ")+")")...).Replace(script.String())
	const build = `go build -o "$HOME/jatah-secure/jatah" ./cmd/node`
	if len(blocks) < 10 || !strings.Contains(text, build) {
		t.Fatalf("the page has changed: %d blocks, and does it build with %s?", len(blocks), build)
	}
	text = "port() { shift $1; echo $1; }\n" + patientSleep + strings.Replace(text, build, `cp "`+binary+`" "$HOME/jatah-secure/jatah"`, 1)

	cmd := exec.CommandContext(t.Context(), "bash")
	cmd.Env = append(withoutSettings(os.Environ()), "HOME="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%v", err)
	}
	rest := out.String()
	for _, want := range []string{
		"n1.yaml: ok\n", ", encrypted\n", "TLS with a certificate until ", "one of 3 tokens\n", "all ready\n401\n200\n403\n", "needs a token with the role admin",
		"allowed: api u1, cost 1; ", "3 members counted", "defined login on all nodes", "login  5/min", "allowed: api u1", "allowed: api u1",
		"the certificate of the HTTP API was replaced", `jatah_tls_certificate_expiry_timestamp_seconds{certificate="server"} `,
		"step 1 of 3: ", "step 2 of 3: ", "step 3 of 3: ", "NODE  USES      ACCEPTS ALSO\n", "not without a certificate\n", "allowed: api u1",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Errorf("there is no %q in what is left:\n%s", want, rest)
			break
		}
		rest = after
	}
	if t.Failed() {
		t.Logf("output:\n%s\nerrors:\n%s", out.String(), errs.String())
	}
}
