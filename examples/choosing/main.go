// Command choosing sends the same requests to every algorithm of package bucket and draws what passes: the pictures
// and the table of docs/choosing.md. Time is made up, so that the result is the same on every run and machine.
//
//	go run ./examples/choosing
//
// Run it from the root of the repository after a change of an algorithm, or of load.go to see your own traffic.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	docs := flag.String("docs", "docs", "`directory` of choosing.md")
	flag.Parse()
	if err := run(*docs); err != nil {
		log.Fatal("choosing: ", err)
	}
}

// run brings the page and its pictures up to date.
func run(docs string) error {
	page := filepath.Join(docs, "choosing.md")
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("%w; run it from the root of the repository, or say with -docs where the page is", err)
	}
	made, err := files(old)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(docs, "choosing"), 0o755); err != nil {
		return err
	}
	for name, content := range made {
		if err := os.WriteFile(filepath.Join(docs, filepath.FromSlash(name)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns everything that the program makes, by its path below docs. The page keeps its words.
func files(page []byte) (map[string][]byte, error) {
	results, err := playAll(contenders(), load())
	if err != nil {
		return nil, err
	}
	average, err := play(averageExample(), averageLoad())
	if err != nil {
		return nil, err
	}
	made := map[string][]byte{
		"choosing/same-load.svg":     sameLoad(results, load()),
		"choosing/boundary.svg":      boundary(results),
		"choosing/burst-average.svg": burstAverage(average, averageLoad()),
	}
	made["choosing.md"], err = replaceTable(page, table(results))
	return made, err
}

const (
	tableBegins = "<!-- made by examples/choosing -->\n"
	tableEnds   = "<!-- until here -->\n"
)

// replaceTable returns the page with this text between its two marks.
func replaceTable(page []byte, text string) ([]byte, error) {
	head, rest, begins := bytes.Cut(page, []byte(tableBegins))
	_, tail, ends := bytes.Cut(rest, []byte(tableEnds))
	if !begins || !ends {
		return nil, fmt.Errorf("choosing.md lacks the marks around its table: the lines %q and %q", tableBegins, tableEnds)
	}
	return bytes.Join([][]byte{head, []byte(tableBegins), []byte(text), []byte(tableEnds), tail}, nil), nil
}
