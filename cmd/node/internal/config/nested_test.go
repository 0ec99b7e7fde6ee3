package config

import (
	"strings"
	"testing"
)

// What is nested without end is refused before it is parsed, in the configuration file and in those of limits_dir.
func TestWhatIsNestedWithoutEndIsRefused(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("[", 2<<20), "\n\nlimits: " + strings.Repeat("{a: ", 1<<20), strings.Repeat("- ", 2<<20), "limits:\n" + strings.Repeat("? ", 1<<20),
		"limits:\n" + strings.Repeat("-\t", 1<<20), strings.Repeat("[\n", 1<<20),
	} {
		doc := Document{Name: "f.yaml", Data: []byte(text)}
		_, asMain := merge(&doc, nil, nil).finish()
		_, asLimits := merge(nil, nil, nil, doc).finish()
		for _, err := range []error{asMain, asLimits} {
			if err == nil || !strings.Contains(err.Error(), "open within each other") {
				t.Errorf("%.20q: %v", text, err)
			}
		}
	}
	many := "# ---" + strings.Repeat("-", 5000) + "\nlimits:\n" + strings.Repeat("  - {name: a, plans: {}, overrides: []} # ----\n", 3000)
	if line := tooDeep([]byte(many)); line != 0 {
		t.Errorf("a long file: too deep in line %d", line)
	}
}
