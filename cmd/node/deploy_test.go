package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

// object is as much of a manifest as the tests look at.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		ClusterIP                string `yaml:"clusterIP"`
		Ports                    []struct {
			Port     int
			Protocol string
		}
		Template struct {
			Spec struct {
				EnableServiceLinks *bool `yaml:"enableServiceLinks"`
				Grace              int   `yaml:"terminationGracePeriodSeconds"`
				Containers         []container
				InitContainers     []container `yaml:"initContainers"`
			}
		}
	}
}

type container struct {
	Name string
	Env  []struct {
		Name, Value string
	}
}

func readObjects(t *testing.T, path string) (all []object) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(b, []byte("\n---\n")) {
		var o object
		if err := yaml.Unmarshal(doc, &o); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, o)
	}
	return all
}

// accepted fails the test if a node would not start with the file and the environment.
func accepted(t *testing.T, path, text string, environ []string) {
	t.Helper()
	if _, err := config.Merge(&config.Document{Name: path, Data: []byte(text)}, environ, nil); err != nil {
		t.Errorf("%s: a node does not start: %v", path, err)
	}
}

// TestNodesStartInKubernetes: the configurations of the manifests are some, and what makes a cluster fail that looks well is not in them.
func TestNodesStartInKubernetes(t *testing.T) {
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	var configs, headless, pods int
	for _, path := range files {
		for _, o := range readObjects(t, path) {
			switch o.Kind {
			case "ConfigMap":
				configs++
				accepted(t, path, o.Data["jatah.yaml"], nil)
			case "Service":
				if o.Spec.ClusterIP != "None" {
					continue
				}
				headless++
				if protocols := len(o.Spec.Ports); !o.Spec.PublishNotReadyAddresses || protocols != 2 || o.Spec.Ports[0].Protocol == o.Spec.Ports[1].Protocol {
					t.Errorf("%s: %s hides nodes that are joining, or has not both protocols: %+v", path, o.Metadata.Name, o.Spec)
				}
			case "StatefulSet", "Deployment":
				pods++
				s := o.Spec.Template.Spec
				if s.EnableServiceLinks == nil || *s.EnableServiceLinks || s.Grace < 15 {
					t.Errorf("%s: %s gives nodes variables of services, or too little time to leave: %+v", path, o.Metadata.Name, s)
				}
				for _, c := range append(s.Containers, s.InitContainers...) {
					if c.Name != "jatah" {
						continue
					}
					var environ []string
					for _, e := range c.Env {
						value := e.Value
						if value == "" { // of the pod
							value = "10.0.0.7"
						}
						environ = append(environ, e.Name+"="+value)
					}
					accepted(t, path, "cluster: {insecure: true}", environ)
				}
			}
		}
	}
	if configs != 2 || headless != 2 || pods != 2 {
		t.Errorf("%d configurations, %d headless services, %d sets of pods; want 2 of each", configs, headless, pods)
	}
}

func TestNodesStartInCompose(t *testing.T) {
	b, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile("../../deploy/compose/jatah.yaml")
	if err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for name, s := range file.Services {
		if s.Environment["JATAH_NODE"] == "" {
			continue
		}
		nodes++
		var environ []string
		for k, v := range s.Environment {
			environ = append(environ, k+"="+v)
		}
		accepted(t, "compose.yaml", string(limits), environ)
		if s.Environment["JATAH_NODE"] != name || !strings.Contains(s.Environment["JATAH_CLUSTER_JOIN"], name+":7946") {
			t.Errorf("%s: %v", name, s.Environment)
		}
	}
	if nodes != 3 {
		t.Errorf("%d nodes", nodes)
	}
}

// TestABoundOnMemoryLeavesRoomForAllThatIsNotKeys, by the sum of docs/memory.md, wherever a container has one.
func TestABoundOnMemoryLeavesRoomForAllThatIsNotKeys(t *testing.T) {
	number := func(text, form string) (mib int) {
		t.Helper()
		if m := regexp.MustCompile(form).FindStringSubmatch(text); m != nil {
			mib, _ = strconv.Atoi(m[1])
		}
		return mib
	}
	for path, forms := range map[string][3]string{
		"compose.yaml":                {`mem_limit: (\d+)m`, `JATAH_MAX_MEMORY: (\d+)MiB`, `GOMEMLIMIT: (\d+)MiB`},
		"kubernetes/statefulset.yaml": {`limits: {memory: (\d+)Mi}`, `JATAH_MAX_MEMORY, value: (\d+)MiB`, `GOMEMLIMIT, value: (\d+)MiB`},
		"kubernetes/sidecar.yaml":     {`limits: {memory: (\d+)Mi}`, `JATAH_MAX_MEMORY, value: (\d+)MiB`, `GOMEMLIMIT, value: (\d+)MiB`},
		"helm/jatah/values.yaml":      {`limits: {memory: (\d+)Mi}`, `(?m)^maxMemory: (\d+)MiB`, `(?m)^goMemLimit: (\d+)MiB`},
		"jatah.service":               {`MemoryMax=(\d+)M`, `JATAH_MAX_MEMORY=(\d+)MiB`, `GOMEMLIMIT=(\d+)MiB`},
	} {
		b, err := os.ReadFile(filepath.Join("../../deploy", path))
		if err != nil {
			t.Fatal(err)
		}
		limit, keys, collector := number(string(b), forms[0]), number(string(b), forms[1]), number(string(b), forms[2])
		if keys == 0 || keys*5/4+150 > limit || collector >= limit || collector < limit/5*4 || keys*5/4+64 > collector {
			t.Errorf("%s: of %d MiB %d for keys, and the collector works from %d on", path, limit, keys, collector)
		}
	}
}

// TestTheImageIsAskedForItsHealthByACommandThatExists.
func TestTheImageIsAskedForItsHealthByACommandThatExists(t *testing.T) {
	b, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`HEALTHCHECK .* CMD \["/jatah", "(\w+)"\]`).FindSubmatch(b)
	if m == nil {
		t.Fatal("no health check")
	}
	if code, out, _ := runCommand(nil, string(m[1]), "-h"); code != 0 || !strings.Contains(out, "usage: jatah "+string(m[1])) {
		t.Errorf("%s: code %d, %s", m[1], code, out)
	}
}

// TestTheUnitIsAccepted by systemd, where that is, and its exposure is low.
func TestTheUnitIsAccepted(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs the program systemd-analyze (package systemd)")
	}
	b, err := os.ReadFile("../../deploy/jatah.service")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable() // verify wants the program to be there
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "jatah.service")
	if err := os.WriteFile(unit, bytes.ReplaceAll(b, []byte("/usr/local/bin/jatah"), []byte(self)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", unit).CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	help, _ := exec.Command(analyze, "--help").Output()
	if !bytes.Contains(help, []byte("--offline")) {
		t.Skip("systemd-analyze is older than 250")
	}
	// In tenths; 1.3 when this was written.
	if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=15", "--no-pager", unit).CombinedOutput(); err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
}
