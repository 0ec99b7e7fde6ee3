package jatah

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jatah-io/jatah/internal/topk"
)

func TestSplitKey(t *testing.T) {
	for _, parts := range [][]string{{"a"}, {"a", "b"}, {"", ""}, {"\x00"}, {"\x00\x01a"}, {"a", "\x00", strings.Repeat("x", 300)}} {
		if got := SplitKey(Key(parts...)); !slices.Equal(got, parts) {
			t.Errorf("%q became %q", parts, got)
		}
	}
	for _, key := range []string{"a", "\x00\x05ab", "\x00\x81\x00a", "\x00a", "\x00\x01ab", "\x00\xff\xff\xff\xff\xff\xff"} {
		if got := SplitKey(key); !slices.Equal(got, []string{key}) {
			t.Errorf("%q, which was not joined, became %q", key, got)
		}
	}
}

func FuzzSplitKey(f *testing.F) {
	f.Add("a")
	f.Add(Key("a", "b"))
	f.Fuzz(func(t *testing.T, key string) {
		if got := Key(SplitKey(key)...); got != key && SplitKey(key)[0] != key {
			t.Errorf("%q became %q", key, got)
		}
	})
}

// FuzzQuestion: bytes of others are a question as it was written, or none.
func FuzzQuestion(f *testing.F) {
	f.Add(encodeQuestion("hello", []byte("x")))
	f.Add([]byte{1, 200, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if topic, q, ok := decodeQuestion(b); ok && !bytes.Equal(encodeQuestion(topic, q), b) {
			t.Errorf("%v became %q, %q", b, topic, q)
		}
		if body, err := decodeAnswer("hello", b); (err == nil) != (len(b) > 0 && len(b) <= 1+MaxAnswer && b[0] == 0) || err == nil && len(body) != len(b)-1 {
			t.Errorf("%v became %v, %v", b, body, err)
		}
	})
}

// FuzzTopAnswer: whatever a member says is refused or merged; it never makes a count negative.
func FuzzTopAnswer(f *testing.F) {
	for _, a := range []topAnswer{{}, {Limits: []topLimit{{Name: "api", Used: topCounts{Span: 1e9, Sample: 1, Keys: []topCount{{"a", 1, 2}}}, Refused: topCounts{Span: 1e9, Sample: 1}}}}} {
		b, err := packTop(&a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readTop(b, "")
		if err != nil {
			if !errors.Is(err, ErrAnswer) {
				t.Errorf("%v", err)
			}
			return
		}
		for _, l := range a.Limits {
			s := l.Used.summary()
			top := mergeTop(l.Name, []topk.Summary{s, s}, []topk.Summary{l.Refused.summary()}, MaxTop)
			for _, x := range append(top.Used, top.Refused...) {
				if x.Used < 0 || x.UsedError < 0 || x.Refused < 0 || x.RefusedError < 0 || !(x.UsedRate >= 0) {
					t.Errorf("%+v", x)
				}
			}
		}
	})
}

func TestTopAnswersThatCannotBe(t *testing.T) {
	good := func() topAnswer {
		c := topCounts{Span: 1e9, Sample: 1, Keys: []topCount{{"a", 1, 2}}}
		return topAnswer{Limits: []topLimit{{Name: "api", Used: c, Refused: topCounts{Span: 1e9, Sample: 1}}}}
	}
	for name, spoil := range map[string]func(a *topAnswer){
		"twice":        func(a *topAnswer) { a.Limits = append(a.Limits, a.Limits[0]) },
		"other":        func(a *topAnswer) { a.Limits[0].Name = "other" },
		"no name":      func(a *topAnswer) { a.Limits[0].Name = "" },
		"span":         func(a *topAnswer) { a.Limits[0].Used.Span = 0 },
		"long span":    func(a *topAnswer) { a.Limits[0].Refused.Span = int64(topk.Window) + 1 },
		"sample":       func(a *topAnswer) { a.Limits[0].Used.Sample = 0 },
		"floor":        func(a *topAnswer) { a.Limits[0].Used.Floor = -1 },
		"count":        func(a *topAnswer) { a.Limits[0].Used.Keys[0].Count = -1 },
		"error":        func(a *topAnswer) { a.Limits[0].Used.Keys[0].Error = -1 },
		"empty key":    func(a *topAnswer) { a.Limits[0].Used.Keys[0].Key = "" },
		"long key":     func(a *topAnswer) { a.Limits[0].Used.Keys[0].Key = strings.Repeat("x", MaxKey+1) },
		"key twice":    func(a *topAnswer) { a.Limits[0].Used.Keys = slices.Repeat(a.Limits[0].Used.Keys, 2) },
		"many keys":    func(a *topAnswer) { a.Limits[0].Used.Keys = make([]topCount, 2*topk.Keys+1) },
		"nothing done": nil,
	} {
		a := good()
		if spoil != nil {
			spoil(&a)
		}
		b, err := packTop(&a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = readTop(b, "api"); (err == nil) != (spoil == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTopAnswersAreBounded: with thousands of limits, full of long keys, an answer still fits.
func TestTopAnswersAreBounded(t *testing.T) {
	n, err := Start(t.Context(), Config{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ask := func(limit string) topAnswer {
		t.Helper()
		q, err := packTop(&topQuestion{limit})
		if err != nil {
			t.Fatal(err)
		}
		b, err := n.answerTop(context.Background(), "n2", q)
		if err != nil || len(b) > MaxAnswer {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		a, err := readTop(b, limit)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	fill := func(limit string) {
		l, err := n.Limit(Limit{Name: limit, Rate: PerHour(5)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			l.Take(t.Context(), fmt.Sprintf("%0*d", MaxKey, i), 5)
			l.Take(t.Context(), fmt.Sprintf("%0*d", MaxKey, i), 5)
		}
	}
	fill("api")
	if a := ask("api"); len(a.Limits[0].Used.Keys) < 200 || len(a.Limits[0].Refused.Keys) < 200 {
		t.Errorf("%d and %d keys of one limit", len(a.Limits[0].Used.Keys), len(a.Limits[0].Refused.Keys))
	}
	for i := range 5000 {
		if _, err := n.Limit(Limit{Name: fmt.Sprint(strings.Repeat("x", 50), i), Rate: PerHour(5)}); err != nil {
			t.Fatal(err)
		}
	}
	fill("also")
	if a := ask(""); len(a.Limits) < 2000 {
		t.Errorf("only %d limits", len(a.Limits))
	}
	if _, err := n.answerTop(context.Background(), "n2", []byte{0xc1}); err == nil {
		t.Error("a question that cannot be read was answered")
	}
}
