package jatah

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
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

// TestTopMessagesTakeNoMoreRoomThanTheyHave: what claims to have many elements is not believed, and what is nested takes no stack.
func TestTopMessagesTakeNoMoreRoomThanTheyHave(t *testing.T) {
	many := []byte{0xdd, 0x7f, 0xff, 0xff, 0xff} // the head of an array of 2^31-1 elements
	counts := append([]byte{0x91, 0x91, 0x93, 0xa1, 'a', 0x94, 1, 1, 0}, many...)
	deep := append([]byte{0x92, 0x90}, bytes.Repeat([]byte{0x91}, MaxAnswer-3)...)
	n, err := Start(t.Context(), Config{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for name, b := range map[string][]byte{
		"limits": append([]byte{0x91}, many...), "keys": counts, "fields": many, "no message": {}, "name": {0x91, 0x91, 0x93, 0xdb, 0x7f, 0xff, 0xff, 0xff}, "unknown": append([]byte{0x92, 0x90}, many...),
		"pairs": {0x92, 0x90, 0xdf, 0x7f, 0xff, 0xff, 0xff}, "bytes": {0x92, 0x90, 0xc6, 0x7f, 0xff, 0xff, 0xff}, "deep": deep,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readTop(b, "")
		_, asked := n.answerTop(t.Context(), "n2", b)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrAnswer) || asked == nil {
			t.Errorf("%s: %v, and as a question %v", name, err, asked)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
			t.Errorf("%s: %d bytes took %d MiB to read", name, len(b), used>>20)
		}
		if used := int64(after.StackSys) - int64(before.StackSys); used > 8<<20 {
			t.Errorf("%s: %d bytes took %d MiB of stack to read", name, len(b), used>>20)
		}
	}
}

// TestTopMessagesOfALaterVersion have fields behind those that are known.
func TestTopMessagesOfALaterVersion(t *testing.T) {
	type count struct {
		Key                string
		Count, Error, More int64
	}
	type counts struct {
		Span, Sample, Floor int64
		Keys                []count
		More                map[string][]string
	}
	type limit struct {
		Name          string
		Used, Refused counts
		More          []byte
	}
	type answer struct {
		Limits []limit
		More   []limit
	}
	c := counts{Span: 1e9, Sample: 1, Keys: []count{{"a", 3, 2, 1}, {"b", 2, 0, 1}}, More: map[string][]string{"x": {"y", "z"}, "y": nil}}
	l := limit{Name: "api", Used: c, Refused: c, More: []byte("more")}
	b, err := packTop(&answer{Limits: []limit{l}, More: []limit{l}})
	if err != nil {
		t.Fatal(err)
	}
	known := topCounts{Span: 1e9, Sample: 1, Keys: []topCount{{"a", 3, 2}, {"b", 2, 0}}}
	want := topAnswer{Limits: []topLimit{{"api", known, known}}}
	if a, err := readTop(b, "api"); err != nil || !reflect.DeepEqual(a, want) {
		t.Errorf("%+v, %v", a, err)
	}
}
