package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

func TestParentsAreDefinedFirst(t *testing.T) {
	file := "limits:\n  - {name: tenant, rate: 5/s, parent: region}\n  - {name: other, rate: 1/s}\n  - {name: region, rate: 50/s, parent: total}\n  - {name: total, rate: 100/s}\n"
	cfg, err := Merge(&Document{Name: "f.yaml", Data: []byte(file)}, nil, []Setting{{Field: "limits", Flag: "--limit", Value: "late=1/s,parent=probe;probe=2/s"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range cfg.Limits {
		got = append(got, l.Name+"<"+l.Parent)
	}
	if s := strings.Join(got, " "); s != "other< total< probe< region<total late<probe tenant<region" {
		t.Error(s)
	}
}

func TestBadParentsAreRefused(t *testing.T) {
	for name, row := range map[string]struct{ file, want string }{
		"a misspelt one": {"limits:\n  - {name: tenant, rate: 5/s, parent: totl}\n  - {name: total, rate: 9/s}\n",
			`f.yaml:2:5: limits.tenant.parent: no limit is named "totl": did you mean "total"?`},
		"one of nothing": {"limits:\n  - {name: tenant, rate: 5/s, parent: region}\n  - {name: total, rate: 9/s}\n",
			`f.yaml:2:5: limits.tenant.parent: no limit is named "region": there are total; define it too`},
		"alone": {"limits:\n  - {name: tenant, rate: 5/s, parent: region}\n",
			`f.yaml:2:5: limits.tenant.parent: no limit is named "region": define it too`},
		"itself": {"limits:\n  - {name: tenant, rate: 5/s, parent: tenant}\n",
			`f.yaml:2:31: limits[0].parent: the parent "tenant" must be the name of another limit`},
		"a circle": {"limits:\n  - {name: a, rate: 5/s, parent: b}\n  - {name: b, rate: 5/s, parent: a}\n  - {name: c, rate: 5/s, parent: a}\n",
			`f.yaml:2:5: limits.a.parent: the parents lead back to "a": "a" under "b" under "a"; remove one of them` + "\n" +
				`f.yaml:3:5: limits.b.parent: the parents lead back to "b": "b" under "a" under "b"; remove one of them`},
		"one of permits": {"limits:\n  - {name: a, rate: 5/s, parent: b}\n  - {name: b, algorithm: concurrency, max: 2}\n  - {name: c, rate: 5/s, parent: a}\n",
			`f.yaml:2:5: limits.a.parent: "b" has algorithm concurrency: permits are not tokens; name a limit that has a rate`},
		"no name": {"limits:\n  - {name: a, rate: 5/s, parent: \"b c\"}\n",
			`f.yaml:2:34: limits[0].parent: bad limit: the name "b c" must be 1 to 64 characters`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Merge(&Document{Name: "f.yaml", Data: []byte(row.file)}, nil, nil)
			if err == nil || !strings.HasPrefix(err.Error(), row.want) {
				t.Errorf("got  %v\nwant %s", err, row.want)
			}
		})
	}
}

// A chain that a node would refuse is refused in the file, and the longest that it takes is not.
func TestLongestChainOfParents(t *testing.T) {
	for n, want := range map[int]string{8: "", 9: `f.yaml:11:5: limits.l9.parent: there are more than 8 parents above "l9": "l9" under "l8" under `} {
		file := "limits:\n  - {name: l0, rate: 5/s}\n"
		for i := 1; i <= n; i++ {
			file += fmt.Sprintf("  - {name: l%d, rate: 5/s, parent: l%d}\n", i, i-1)
		}
		cfg, err := Merge(&Document{Name: "f.yaml", Data: []byte(file)}, nil, nil)
		if want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%d parents: %v", n, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		node, err := jatah.Open(t.Context(), jatah.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		for _, l := range cfg.Limits {
			if _, err := node.Limit(l); err != nil {
				t.Errorf("%d parents: %v", n, err)
			}
		}
	}
}
