// Cross checks that all packages of this module and their tests are right for other systems: as a compiler would, by their types and
// with the sizes that numbers have there, but without compiling anything. Nothing is kept from one run to the next, and a system
// takes seconds, where compiling the standard library and everything else for it takes minutes of processor time.
//
//	go run .ci/cross/main.go darwin/arm64 linux/386
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// listed is what go list says of a package: which of its files count on the system, and what its imports mean.
type listed struct {
	Dir, ImportPath, Name string
	ForTest               string
	GoFiles               []string
	ImportMap             map[string]string
	Module                *struct{ Main bool }
	Error                 *struct{ Err string }
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run .ci/cross/main.go SYSTEM/ARCHITECTURE...")
		os.Exit(2)
	}
	failed := false
	for _, target := range os.Args[1:] {
		start := time.Now()
		own, err := check(target)
		if err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s:\n%v\n", target, err)
			continue
		}
		fmt.Printf("%s: %d packages and test packages, %.1f s\n", target, own, time.Since(start).Seconds())
	}
	if failed {
		os.Exit(1)
	}
}

// check loads everything that the module needs on a system, and says how many packages of it are the module's.
func check(target string) (own int, err error) {
	system, arch, ok := strings.Cut(target, "/")
	sizes := types.SizesFor("gc", arch)
	if !ok || sizes == nil {
		return 0, errors.New("no such system; name one as in linux/386")
	}
	packages, err := list(system, arch)
	if err != nil {
		return 0, err
	}
	l := &loader{fset: token.NewFileSet(), sizes: sizes, done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for _, p := range packages {
		// The main packages that go test makes are the go command's own.
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		if p.Error != nil {
			return 0, errors.New(p.Error.Err)
		}
		if l.load(p) {
			own++
		}
	}
	if own == 0 {
		return 0, errors.New("no package of this module: nothing was checked")
	}
	return own, errors.Join(l.errors...)
}

// list are all packages that the module and its tests need there, each after those that it imports.
func list(system, arch string) (all []listed, err error) {
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=Dir,ImportPath,Name,ForTest,GoFiles,ImportMap,Module,Error", "./...")
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for answer := json.NewDecoder(out); ; {
		var p listed
		if err := answer.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, errors.Join(err, cmd.Wait())
		}
		all = append(all, p)
	}
	return all, cmd.Wait()
}

// loader checks packages one after the other.
type loader struct {
	fset   *token.FileSet
	sizes  types.Sizes
	done   map[string]*types.Package
	errors []error
}

// load checks a package whose imports are loaded. Of those that are not ours only what they declare is looked at.
func (l *loader) load(p listed) (ours bool) {
	ours = p.Module != nil && p.Module.Main
	files := make([]*ast.File, len(p.GoFiles))
	failures := make([]error, len(p.GoFiles))
	var readers sync.WaitGroup
	for i, name := range p.GoFiles {
		readers.Go(func() {
			if !filepath.IsAbs(name) {
				name = filepath.Join(p.Dir, name)
			}
			files[i], failures[i] = parser.ParseFile(l.fset, name, nil, parser.SkipObjectResolution)
		})
	}
	readers.Wait()
	if err := errors.Join(failures...); err != nil {
		l.errors = append(l.errors, err)
		return ours
	}
	config := types.Config{
		Importer:         importer{l, p.ImportMap},
		Sizes:            l.sizes,
		IgnoreFuncBodies: !ours,
		FakeImportC:      true,
		Error: func(err error) {
			if ours {
				l.errors = append(l.errors, err)
			}
		},
	}
	// The variants of a package for tests have the path of the package itself, before a blank.
	path, _, _ := strings.Cut(p.ImportPath, " ")
	l.done[p.ImportPath], _ = config.Check(path, l.fset, files, nil) // its errors went to Error
	return ours
}

// importer finds what an import of one package means.
type importer struct {
	l     *loader
	means map[string]string
}

func (i importer) Import(path string) (*types.Package, error) {
	if other, ok := i.means[path]; ok {
		path = other
	}
	if p := i.l.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not loaded", path)
}
