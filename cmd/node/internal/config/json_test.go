package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/internal/definition"
)

// JSON is YAML too. So the same text is the same limit, or has the same mistakes, in a file and in the body of a call.
func TestJSONMeansWhatTheFileMeans(t *testing.T) {
	good := 0
	for _, body := range []string{
		`{"name":"api","rate":"100/min"}`,
		`{"name":"api","rate":"100/min","burst":20,"mode":"strict","fallback":"wait","overshoot":0,"dry_run":true}`,
		`{"name":"api","rates":["10/s","500/h"],"overshoot":0.25,"plans":{"pro":{"rates":["20/s","900/h"]},"free":{"rate":"1/s","burst":2}}}`,
		`{"name":"api","rate":"10/h","burst":10,"plans":{"pro":{"rate":"20/h"}},"overrides":[{"key":"vip","plan":"pro"},{"prefix":"in:","rate":"5/s"},{"key":"7"}]}`,
		`{"name":"api","rate":"10/h","costs":{"/export":10,"/search/*":5,"/":0},"parent":"total"}`,
		`{"name":"api","rate":"10/d","algorithm":"fixed_window","calendar":"day","timezone":"Europe/Berlin"}`,
		`{"name":"api","rate":"10/s","algorithm":"leaky_bucket","queue":5,"max_wait":"2s"}`,
		`{"name":"api","rate":"2/s","algorithm":"burst_average","burst_rate":"8/s","burst_threshold":"1/s","burst_time":"16s"}`,
		`{"name":"api","rate":"9/h","algorithm":"sliding_log","max_log":50}`,
		`{"name":"api","algorithm":"concurrency","max":3,"ttl":"90s"}`,
		`{"name":"api"}`,
		`{"rate":"1/s"}`,
		`{"name":"a b","rate":"1/s"}`,
		`{"name":5,"rate":true,"burst":"x","dry_run":"no","ttl":5,"rates":"1/s","costs":[],"plans":[],"overrides":{}}`,
		`{"name":"api","rate":"abc","burst":0,"mode":"loose","fallback":"open","algorithm":"fixd_window","overshoot":"much","max_wait":"soon"}`,
		`{"name":"api","rate":"1/s","brust":3,"bursts":3,"colour":"red"}`,
		`{"name":"api","rate":"1/s","rates":[]}`,
		`{"name":"api","rates":["1/s",5,"x"]}`,
		`{"name":"api","rate":"1/s","plans":{"pro":{},"none":null,"odd":5,"x":{"rate":"1/s","mode":"strict"},"y":{"rate":"1/s","burts":5}}}`,
		`{"name":"api","rate":"1/s","plans":{"pro":{"rate":"1/s"}},"overrides":[{"key":"a","plan":"por"},{"plan":"pro"},{"key":"","plan":"pro"},{"key":"a","prefix":"b"},{"key":"b","burst":5},{"key":"c","plan":"pro","rate":"1/s"},null,7]}`,
		`{"name":"api","rate":"1/s","burst":5,"costs":{"/a":6,"/b":-1,"/c*d":1,"":1,"/e":1.5}}`,
		`{"name":"api","rate":"1/s","algorithm":"concurrency"}`,
		`{"name":"api","rate":"1/s","queue":5}`,
		`{"name":"api","rate":"1/s","parent":"api"}`,
		`{"name":"api","rate":"1/s","algorithm":"sliding_log","plans":{"pro":{"rate":"1/s","burst":5}},"overrides":[{"key":"x","rate":"1/s","burst":7}]}`,
	} {
		var texts []string
		v, err := definition.FromJSON([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r := definition.Reader{Place: definition.PlaceIn([]byte(body)), Problem: func(_ definition.Value, path, text string) {
			texts = append(texts, path+": "+text)
		}}
		fromJSON, ok := r.Limit(v, "")

		cfg, fileErr := Merge(&Document{Name: "f.yaml", Data: []byte("limits:\n- " + body + "\n- {name: total, rate: 1/s}\n")}, nil, nil)
		var inFile []string
		ps, _ := fileErr.(Problems)
		for _, p := range ps {
			path := strings.TrimPrefix(strings.TrimPrefix(p.Field, "limits[0]"), ".")
			if path == "limits.api" || path == "limits.a b" {
				path = ""
			}
			inFile = append(inFile, path+": "+strings.ReplaceAll(p.Text, ", limits[0]", ""))
		}
		if !slices.Equal(texts, inFile) {
			t.Errorf("%s\n as JSON %q\n in file %q", body, texts, inFile)
		}
		if ok != (fileErr == nil) {
			t.Errorf("%s: good as JSON %v, in the file %v", body, ok, fileErr)
			continue
		}
		if ok {
			good++
			i := slices.IndexFunc(cfg.Limits, func(l jatah.Limit) bool { return l.Name == "api" })
			if i < 0 || !cfg.Limits[i].Equal(fromJSON) {
				t.Errorf("%s\n as JSON %+v\n in file %+v", body, fromJSON, cfg.Limits)
			}
		}
	}
	if good < 10 {
		t.Errorf("only %d are good", good)
	}
}
