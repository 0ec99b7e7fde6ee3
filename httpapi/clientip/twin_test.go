package clientip

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A twin of the walks that is slow and made of other parts: it splits and tries, where the real ones read.

var (
	twinToken   = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	twinQuoted  = `"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])*"`
	twinPair    = `(?:` + twinToken + `=(?:` + twinToken + `|` + twinQuoted + `))`
	twinElement = regexp.MustCompile(`^[ \t]*` + twinPair + `?(?:[ \t]*;[ \t]*` + twinPair + `?)*[ \t]*$`)
	twinPairs   = regexp.MustCompile(`(` + twinToken + `)=(` + twinToken + `|` + twinQuoted + `)`)
	twinEscape  = regexp.MustCompile(`(?s)\\(.)`)
	twinNode    = regexp.MustCompile(`(?s)^([^:\[\]]*|\[[^\]]*\])(?::(?:[0-9]{1,5}|_[A-Za-z0-9._-]+))?$`)
	twinPort    = regexp.MustCompile(`:([0-9]{1,5})$`)
	twinEntry   = regexp.MustCompile(`(?s)^([^:\[\]]*|\[[^\]]*\])(?::[0-9]{1,5})?$`)
)

func twinAddr(host string) (netip.Addr, bool) {
	if bare, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(bare, "]")
		if !strings.Contains(host, ":") {
			return netip.Addr{}, false
		}
	}
	if ip, zone, ok := strings.Cut(host, "%"); ok && zone != "" && strings.Contains(ip, ":") {
		host = ip
	}
	a, ok := netip.AddrFromSlice(net.ParseIP(host))
	return a.Unmap(), ok
}

func twinPortInRange(s string) bool {
	m := twinPort.FindStringSubmatch(s)
	if m == nil {
		return true
	}
	_, err := net.LookupPort("tcp", m[1])
	return err == nil
}

// twinForwardedFor: an entry is an address alone, or what twinEntry matches.
func twinForwardedFor(e string) (netip.Addr, bool) {
	if a, ok := twinAddr(e); ok && !strings.HasPrefix(e, "[") {
		return a, true
	}
	m := twinEntry.FindStringSubmatch(e)
	if m == nil || !twinPortInRange(e) {
		return netip.Addr{}, false
	}
	return twinAddr(m[1])
}

func twinForwarded(e string) (netip.Addr, bool) {
	value, found := "", 0
	for _, m := range twinPairs.FindAllStringSubmatch(e, -1) {
		if strings.ToLower(m[1]) == "for" {
			value, found = m[2], found+1
		}
	}
	if found != 1 {
		return netip.Addr{}, false
	}
	if strings.HasPrefix(value, `"`) {
		text := twinEscape.ReplaceAllString(value[1:len(value)-1], "$1")
		if strings.Contains(value, `\`) && len(text) > 64 {
			return netip.Addr{}, false
		}
		value = text
	}
	m := twinNode.FindStringSubmatch(value)
	if m == nil || !twinPortInRange(value) {
		return netip.Addr{}, false
	}
	return twinAddr(m[1])
}

// twinElements takes apart a line of Forwarded: the shortest end of it that is an element comes first, and so on.
// What has no such end is one entry.
func twinElements(line string) []string {
	for i := len(line); i >= 0; i-- {
		if i > 0 && line[i-1] != ',' || !twinElement.MatchString(line[i:]) {
			continue
		}
		if i == 0 {
			return []string{line}
		}
		return append(twinElements(line[:i-1]), line[i:])
	}
	return []string{"malformed"}
}

// twin walks over the entries of all lines, already taken apart, in the order in which they were written.
func twin(trusted []netip.Prefix, peer netip.Addr, entries []string, read func(string) (netip.Addr, bool)) netip.Addr {
	path := []netip.Addr{peer}
	for len(entries) > 0 && len(path) <= 64 {
		e := strings.Trim(entries[len(entries)-1], " \t")
		entries = entries[:len(entries)-1]
		if e == "" {
			continue
		}
		a, ok := read(e)
		if !ok {
			break
		}
		path = append(path, a)
		known := false
		for _, p := range trusted {
			known = known || p.Contains(a)
		}
		if !known {
			break
		}
	}
	return path[len(path)-1]
}

const twinPeer = "10.0.0.5:4000"

func compareForwardedFor(t *testing.T, r *Resolver, lines ...string) {
	t.Helper()
	peer := netip.MustParseAddrPort(twinPeer).Addr()
	want := twin(r.proxies, peer, strings.Split(strings.Join(lines, ","), ","), twinForwardedFor)
	if got := r.Addr(request(twinPeer, "X-Forwarded-For", lines...)); got != want {
		t.Fatalf("X-Forwarded-For: %q: %s, want %s", lines, got, want)
	}
}

func compareForwarded(t *testing.T, r *Resolver, lines ...string) {
	t.Helper()
	var entries []string
	for _, line := range lines {
		entries = append(entries, twinElements(line)...)
	}
	want := twin(r.proxies, netip.MustParseAddrPort(twinPeer).Addr(), entries, twinForwarded)
	if got := r.Addr(request(twinPeer, "Forwarded", lines...)); got != want {
		t.Fatalf("Forwarded: %q: %s, want %s", lines, got, want)
	}
}

// plant puts what a client wrote, a and b, before what proxies appended to it, in each way that a proxy may, and wants
// the address that the proxy saw.
func plant(t *testing.T, r *Resolver, header, want, a, b string, appended ...string) {
	t.Helper()
	for _, own := range appended {
		for _, lines := range [][]string{{a, b, own}, {a, b + ", " + own}, {a + "," + b + "," + own}} {
			if got := r.Addr(request(twinPeer, header, lines...)); got.String() != want {
				t.Fatalf("%s: %q: %s, want %s", header, lines, got, want)
			}
		}
	}
}

func plantForwardedFor(t *testing.T, r *Resolver, a, b string) {
	t.Helper()
	plant(t, r, "X-Forwarded-For", "203.0.113.9", a, b, "203.0.113.9", "203.0.113.9:80, 10.1.1.1", "203.0.113.9, [fd00::1]:80,")
}

func plantForwarded(t *testing.T, r *Resolver, a, b string) {
	t.Helper()
	plant(t, r, "Forwarded", "203.0.113.9", a, b,
		"for=203.0.113.9", `by="_p";for="203.0.113.9:80"`, "proto=http;for=203.0.113.9, for=10.1.1.1",
		// A proxy that passes on the name of the host which the client asked for, quoted as it must be.
		"for=203.0.113.9;host="+quote(b), "host="+quote(b)+";for=203.0.113.9;x="+quote(a))
	plant(t, r, "Forwarded", "2001:db8::9", a, b, `for="[2001:db8::9]"`, `for="[2001:db8::9]:_x", for="[fd00::1]"`)
}

// quote writes a quoted string; controls are not allowed in it.
func quote(s string) string {
	s = regexp.MustCompile(`[\x00-\x08\x0a-\x1f\x7f]`).ReplaceAllString(s, "")
	return `"` + regexp.MustCompile(`["\\]`).ReplaceAllString(s, `\$0`) + `"`
}

func fuzzSeeds(f *testing.F) {
	for _, s := range []string{
		"", ",", "203.0.113.9, 10.1.1.1", "[2001:db8::7]:443 ,\t10.1.1.1,", "fe80::1%eth0", "[fe80::1%a]",
		"::ffff:10.0.0.1", "unknown", "1.2.3.4:65536",
		`for=203.0.113.9;proto=https, for="10.1.1.1:80"`, `for="[2001:db8::7]:_p"`, `ext="bad,for=9.9.9.9";for=203.0.113.9`, `for="`, `x="\`,
		`for=6.6.6.6;x="a\\`, `FOR="\1.2.3.4" ; ;by=""`, `for=_x`, `for="a=\", for=1.1.1.1"`, `="`, `a="="`,
	} {
		f.Add(s, "")
		f.Add(`for=6.6.6.6;y="`, s)
	}
}

func FuzzForwardedFor(f *testing.F) {
	fuzzSeeds(f)
	r := resolver(f, "", "10.0.0.0/8", "fd00::/8")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 4000 {
			t.Skip("the twin is slow")
		}
		compareForwardedFor(t, r, a, b)
		plantForwardedFor(t, r, a, b)
	})
}

func FuzzForwarded(f *testing.F) {
	fuzzSeeds(f)
	r := resolver(f, "Forwarded", "10.0.0.0/8", "fd00::/8")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 1000 {
			t.Skip("the twin is slow")
		}
		compareForwarded(t, r, a, b)
		plantForwarded(t, r, a, b)
	})
}

// Random lines made of what lines are made of, which meet rare corners sooner than random bytes.
func TestTheWalksAgreeWithTheirTwin(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	addrs := []string{"203.0.113.9", "10.1.1.1", "10.2.2.2", "[fd00::1]", "[2001:db8::7]", "2001:db8::7",
		"[fe80::1%e]", "::ffff:10.3.3.3", "_x", "unknown", "1.2.3"}
	ports := []string{"", "", "", ":80", ":_p", ":", ":99999"}
	bits := []string{",", ",", ";", "for=", "For=", `"`, `"`, `\`, "=", " ", "\t", "x=", "y", `for="`, "\x01", "é", "[", "]", ":", "%"}
	pick := func(from []string) string { return from[rnd.IntN(len(from))] }
	// A line is mostly right; sometimes something is put into it.
	line := func(list bool) string {
		var entries []string
		for range rnd.IntN(5) {
			e := pick(addrs) + pick(ports)
			if list {
				if rnd.IntN(3) > 0 {
					e = quote(e)
				}
				e = "for=" + e
				for range rnd.IntN(3) {
					e += pick([]string{";", " ; ", ";;"})
					e += pick([]string{"proto=http", "x=" + quote(pick(bits)+pick(bits)+pick(addrs)), "for=1.1.1.1"})
				}
			}
			entries = append(entries, e)
		}
		s := strings.Join(entries, pick([]string{",", ", ", " ,\t", ",,"}))
		for range max(0, rnd.IntN(6)-2) {
			i := rnd.IntN(len(s) + 1)
			s = s[:i] + pick(bits) + s[i:]
		}
		return s
	}
	xff, fwd := resolver(t, "", "10.0.0.0/8", "fd00::/8"), resolver(t, "Forwarded", "10.0.0.0/8", "fd00::/8")
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		compareForwardedFor(t, xff, line(false), line(false))
		plantForwardedFor(t, xff, line(false), line(false))
		compareForwarded(t, fwd, line(true), line(true))
		plantForwarded(t, fwd, line(true), line(true))
	}
}

func TestTheTwinAlsoStopsAfterSoManyHops(t *testing.T) {
	r := resolver(t, "", "10.0.0.0/8")
	for _, n := range []int{63, 64, 65, 70} {
		compareForwardedFor(t, r, "10.9.9.9,"+strings.Repeat("10.1.1.1,", n))
	}
}
