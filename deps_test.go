package jatah_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/jatah-io/jatah"

// layer says which of our packages one of them may import itself, and why no others.
type layer struct {
	pkg    string
	may    []string
	reason string
}

// ours is the whole architecture; there is no other package. "" is the root. A name ending in /... stands for
// a package and those below it, which may always import each other.
var ours = []layer{
	{"internal/budget", nil,
		"budget counts; what is counted is for others to know"},
	{"internal/keytable", []string{"internal/budget"},
		"keytable is a map; what its records mean is for others to know"},
	{"bucket", []string{"internal/keytable", "internal/budget"},
		"bucket is arithmetic on one key and a table of keys; it is to be understood, tested and used without the rest"},
	{"ring", nil,
		"ring maps keys to owners; it is a pure function of the member list, so that all nodes compute the same"},
	{"cluster", []string{"ring"},
		"cluster knows who is alive and carries bytes; what they mean is for others to know"},
	{"cluster/simnet", nil,
		"simnet is a network; users test their own code on it, without the rest"},
	{"internal/envelope", nil,
		"envelope judges from outside whether a limit was kept; a judge knows nothing of how"},
	{"internal/netlab", nil,
		"netlab breaks networks between processes, whatever these are"},
	{"internal/topk", nil,
		"topk counts keys; it is tested beside exact counters, without the rest"},
	{"hybrid", []string{"bucket", "ring", "internal/budget", "internal/keytable", "internal/topk"},
		"hybrid decides without I/O, so that a seed replays a run; it reaches the network through its own interface"},
	{"", []string{"bucket", "ring", "cluster", "hybrid", "internal/topk"},
		"the root ties the layers together; what speaks HTTP is above it, so that embedding a node does not bring a server"},
	{"internal/definition", []string{""},
		"the file of a node and its API define limits in the same words, so they are read in one place, which knows neither YAML nor HTTP"},
	{"httpapi/internal/fields", []string{""},
		"headers are written from what the root decides, in one form for all that answer HTTP"},
	{"httpapi/internal/problems", nil,
		"an error is text with a form; what it is about is for others to know"},
	{"httpapi", []string{"", "internal/definition", "httpapi/edge", "httpapi/internal/..."},
		"httpapi can do what any embedder can: if it needs more, the root's API lacks something"},
	{"httpapi/client", nil,
		"who asks a cluster over HTTP does not want a node, its members or its dependencies in the program"},
	{"httpapi/edge", []string{"", "httpapi/clientip", "httpapi/internal/..."},
		"whoever has a server of their own can put the edge before it, without our API"},
	{"httpapi/internal/refusals", []string{""},
		"refusals writes lines about keys, for whatever refuses over HTTP"},
	{"httpapi/metrics", []string{"", "httpapi/edge"},
		"metrics are read from the counters that the root shows to everybody"},
	{"httpapi/dashboard", []string{"", "httpapi/internal/problems"},
		"the page shows what any embedder can read; it asks the API for the rest, as everybody does"},
	{"httpapi/clientip", nil,
		"who sent a request is told from its headers and a list of proxies; anybody may use it, without a limiter"},
	{"cmd/node/...", []string{"", "internal/definition", "internal/envelope", "httpapi", "httpapi/client", "httpapi/clientip", "httpapi/dashboard",
		"httpapi/edge", "httpapi/metrics"},
		"the program is made of the public packages, so that anybody could have written it"},
	{"examples/choosing", []string{"bucket"},
		"it draws what the algorithms do in made-up time, which only bucket has: nodes read the clock"},
	{"examples/...", []string{"", "httpapi", "httpapi/client", "httpapi/clientip", "httpapi/dashboard", "httpapi/edge", "httpapi/metrics", "cluster/simnet"},
		"an example shows what users can import and should"},
}

// withNode are the packages that contain a node, and so all that a node needs.
var withNode = []string{"", "internal/definition", "httpapi", "httpapi/internal/...", "httpapi/dashboard", "httpapi/edge", "httpapi/metrics", "cmd/node/...", "examples/..."}

// outside says where what is not ours may be, also where it comes through another package.
var outside = []struct {
	dep    string // written as in ours
	in     []string
	reason string
}{
	{"github.com/prometheus/...", []string{"httpapi/metrics", "cmd/node/...", "examples/..."},
		"a service that embeds a node may have other metrics; Prometheus is pulled in only by who asks for it"},
	{"github.com/goccy/go-yaml/...", []string{"cmd/node/..."},
		"only the program reads files; embedders fill in a struct"},
	{"github.com/fsnotify/fsnotify/...", []string{"cmd/node/..."},
		"only the program reads files that may change; embedders call SetLimits"},
	{"github.com/hashicorp/memberlist/...", slices.Concat(withNode, []string{"cluster", "cluster/simnet"}),
		"only cluster knows how members are found, and what is above it; another membership must not change a decision"},
	{"github.com/buraksezer/consistent/...", slices.Concat(withNode, []string{"ring", "cluster", "hybrid"}),
		"only ring knows the algorithm, and what is above it"},
	{"net", slices.Concat(withNode, []string{"cluster", "cluster/simnet", "httpapi/client", "httpapi/clientip", "internal/netlab"}),
		"bucket, ring and hybrid do no I/O: they are tested with explicit time and messages in memory"},
	{"testing", nil,
		"package testing registers flags and does not belong in a program"},
}

// goPackage is what we read of the output of go list -json.
type goPackage struct {
	ImportPath, Dir, ForTest string
	DepOnly                  bool
	Imports, Deps            []string
	TestImports              []string
	XTestImports             []string
	Module                   *struct {
		Path, Version string
		Main          bool
	}
}

// listPackages returns our packages and the module of everything that they and their tests need.
//
// The list is made for Linux wherever the test runs: boot_linux.go is the only user of its dependency.
func listPackages(t *testing.T) (mine []goPackage, all map[string]goPackage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "-json=ImportPath,Dir,ForTest,DepOnly,Imports,Deps,TestImports,XTestImports,Module", "./...")
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOWORK=off")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, problems.String())
	}
	all = make(map[string]goPackage)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		all[p.ImportPath] = p
		// Test binaries and packages recompiled for a test say nothing new.
		if !p.DepOnly && p.ForTest == "" && !strings.HasSuffix(p.ImportPath, ".test") {
			mine = append(mine, p)
		}
	}
	if len(mine) < 6 {
		t.Fatalf("go list found only %d packages of ours", len(mine))
	}
	return mine, all
}

// short is an import path of ours without the module; ok is false for the packages of others.
func short(path string) (name string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// matches says whether pattern, as in the tables, stands for the package.
func matches(pattern, pkg string) bool {
	if base, all := strings.CutSuffix(pattern, "/..."); all {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

func anyMatches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

func display(pkg string) string {
	if pkg == "" {
		return "the root package"
	}
	return pkg
}

func TestImportsGoOneWay(t *testing.T) {
	mine, _ := listPackages(t)
	for _, p := range mine {
		name, _ := short(p.ImportPath)
		i := slices.IndexFunc(ours, func(l layer) bool { return matches(l.pkg, name) })
		if i < 0 {
			t.Errorf("package %s is not part of the architecture: put it inside one of the packages of `ours` in this file, or decide there what it may import and why", name)
			continue
		}
		rule := ours[i]
		for _, path := range p.Imports {
			if imp, ok := short(path); ok && !matches(rule.pkg, imp) && !anyMatches(rule.may, imp) {
				t.Errorf("%s imports %s: %s", display(name), display(imp), rule.reason)
			}
		}
	}
}

func TestOthersAreImportedWhereTheyBelong(t *testing.T) {
	mine, _ := listPackages(t)
	for _, p := range mine {
		name, _ := short(p.ImportPath)
		for _, rule := range outside {
			if anyMatches(rule.in, name) {
				continue
			}
			if i := slices.IndexFunc(p.Deps, func(dep string) bool { return matches(rule.dep, dep) }); i >= 0 {
				t.Errorf("%s needs %s: %s", display(name), p.Deps[i], rule.reason)
			}
		}
	}
}

// modules finds the modules that our code imports itself, tests included, with their versions. It does not
// ask go.mod, where "// indirect" is only a comment and only sometimes right.
func modules(t *testing.T) map[string]string {
	mine, all := listPackages(t)
	direct := make(map[string]string)
	for _, p := range mine {
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if m := all[path].Module; m != nil && !m.Main {
				direct[m.Path] = m.Version
			}
		}
	}
	return direct
}

// dependencyLine is a row of the table in docs/dependencies.md: module, version, why.
var dependencyLine = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ ]+) \\| (.*\\S) \\|$")

func TestEveryDependencyIsExplained(t *testing.T) {
	const page = "docs/dependencies.md"
	text, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	direct := modules(t)
	explained := make(map[string]bool)
	for _, row := range dependencyLine.FindAllStringSubmatch(string(text), -1) {
		path, version := row[1], row[2]
		if explained[path] {
			t.Errorf("%s names %s twice", page, path)
		}
		explained[path] = true
		switch have, ok := direct[path]; {
		case !ok:
			t.Errorf("%s explains %s, which nothing here imports: drop the line, and the requirement from go.mod", page, path)
		case have != version:
			t.Errorf("%s explains %s %s, but go.mod selects %s: read what changed, then change the line", page, path, version, have)
		}
	}
	for path, version := range direct {
		if !explained[path] {
			t.Errorf("%s has no line for %s %s: every dependency is a risk that all users share, so say what it does for them and what was the alternative", page, path, version)
		}
	}
}

// TestNoPackageIsNamedForNothing reads every directory, so that go test does not take the results of this file
// from its cache after an import elsewhere has changed: what go list reads it does not see.
func TestNoPackageIsNamedForNothing(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case d.Name() == ".git":
			return fs.SkipDir
		}
		switch d.Name() {
		case "util", "utils", "common", "misc", "helper", "helpers", "shared", "lib", "pkg", "base", "types":
			t.Errorf("%s: such a name says nothing, so it will collect everything; name the package after what it provides, or put its functions where they are used", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
