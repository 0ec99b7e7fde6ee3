package jatah

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// filled gives a value that is not zero to whatever it is, and fails for what it does not know: a new kind of field has to be thought of.
func filled(t *testing.T, rng *rand.Rand, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *Rate:
		*p = Per(1+rng.Int64N(1000), time.Duration(1+rng.Int64N(100))*time.Second)
		return
	case *Mode:
		*p = []Mode{Strict, Split}[rng.IntN(2)]
		return
	case *Fallback:
		*p = []Fallback{FallbackWait, FallbackDeny, FallbackAllow}[rng.IntN(3)]
		return
	}
	switch v.Kind() {
	case reflect.String:
		b := make([]byte, 1+rng.IntN(20)) // keys have any bytes
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		v.SetString(string(b))
	case reflect.Int, reflect.Int64:
		v.SetInt(1 + rng.Int64N(math.MaxInt64-1)>>rng.IntN(60) | 1)
	case reflect.Float64:
		v.SetFloat(1 - rng.Float64())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			filled(t, rng, v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+rng.IntN(3), 4))
		for i := range v.Len() {
			filled(t, rng, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + rng.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			filled(t, rng, key)
			filled(t, rng, value)
			v.SetMapIndex(key, value)
		}
	default:
		t.Fatalf("a definition has a %v, which this test does not know", v.Type())
	}
}

// sameLimit says whether two values define the same: their bytes differ with the order of maps.
func sameLimit(a, b []byte) bool {
	x, err1 := decodeLimit(a)
	y, err2 := decodeLimit(b)
	return err1 == nil && err2 == nil && x.Equal(y)
}

func roundTrip(t *testing.T, seed uint64, l Limit) {
	t.Helper()
	b, err := encodeLimit(l)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeLimit(b)
	if err != nil || !got.Equal(l) || !sameLimit(b, b) {
		t.Errorf("seed %d: %v\n%+v\n%+v", seed, err, got, l)
	}
}

// Every field of a definition reaches the others, by itself and with all others.
func TestPublishedLimitsKeepAllFields(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var l Limit
		filled(t, rng, reflect.ValueOf(&l).Elem())
		roundTrip(t, seed, l)
		v := reflect.ValueOf(&l).Elem()
		for i := range v.NumField() {
			var one Limit
			filled(t, rng, reflect.ValueOf(&one).Elem().Field(i))
			roundTrip(t, seed, one)
		}
	}
	roundTrip(t, seed, Limit{})
}

// Nodes of different versions know the fields by these names. One that is renamed needs a new format; one that is added is added here too.
func TestPublishedLimitsKeepTheirNames(t *testing.T) {
	names := func(v any) (ns []string) {
		for f := range reflect.TypeOf(v).Fields() {
			ns = append(ns, f.Name)
		}
		return ns
	}
	for _, c := range []struct {
		of   any
		want string
	}{
		{Limit{}, "Name Rate Rates Burst Algorithm Mode Overshoot Fallback DryRun Calendar Timezone Queue MaxWait BurstRate BurstThreshold BurstTime Plans Overrides MaxLog Parent Costs Max TTL"},
		{Plan{}, "Rate Rates Burst"},
		{Override{}, "Key Prefix Plan Rate Rates Burst"},
	} {
		if got := strings.Join(names(c.of), " "); got != c.want {
			t.Errorf("%T: %s", c.of, got)
		}
	}
	b, err := encodeLimit(Limit{Name: "api", Rate: PerMinute(5), Mode: Strict})
	if want := "\x92\x01\x83\xa4Name\xa3api\xa4Rate\xc4\x055/min\xa4Mode\xc4\x06strict"; err != nil || string(b) != want {
		t.Errorf("%v: %q, want %q", err, b, want)
	}
}

func TestPublishedLimitsOfOtherVersions(t *testing.T) {
	encode := func(v ...any) []byte {
		var b bytes.Buffer
		if err := msgpack.NewEncoder(&b).Encode(v); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for _, c := range []struct {
		value []byte
		want  string
	}{
		{encode(2, map[string]any{"Name": "a"}), "format is 2"},
		{encode(1, map[string]any{"Name": "a", "Colour": "red"}), "Colour"},
		{encode(1, map[string]any{"Name": "a", "Mode": "loose"}), "loose"},
		{encode(1), "malformed"},
		{append(encode(1, map[string]any{}), 0), "malformed"},
		{[]byte{0x92, 1, 0x81, 0xa5, 'R', 'a', 't', 'e', 's', 0xdd, 0xff, 0xff, 0xff, 0xff}, "malformed"},
		{nil, "malformed"},
	} {
		if l, err := decodeLimit(c.value); !errors.Is(err, errUnreadable) || !strings.Contains(fmt.Sprint(err), c.want) || l.Name != "" {
			t.Errorf("%x: %v, %+v, want %s", c.value, err, l, c.want)
		}
	}
}

func FuzzDecodePublishedLimit(f *testing.F) {
	b, _ := encodeLimit(Limit{Name: "api", Rates: []Rate{PerSecond(1)}, Plans: map[string]Plan{"p": {Burst: 1}}, Costs: map[string]int64{"/": 2}, Overrides: []Override{{Key: "k"}}})
	f.Add(b)
	f.Add(slices.Repeat([]byte{0x91}, 60000))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLimit(b)
		if err != nil {
			return
		}
		_ = l.Validate()
		again, err := encodeLimit(l)
		if err == nil && !sameLimit(b, again) {
			t.Errorf("%q and %q", b, again)
		}
	})
}
