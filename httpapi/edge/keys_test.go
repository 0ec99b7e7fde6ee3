package edge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// Names of limits and parts of keys that look alike when they are glued together.
func TestStrangersShareNoKey(t *testing.T) {
	type counted struct {
		limit string
		parts []string
	}
	var limits []jatah.Limit
	for _, name := range []string{"a", "a_b", "a:b", "x"} {
		limits = append(limits, jatah.Limit{Name: name, Rate: jatah.PerMinute(1)})
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for _, c := range []counted{
			{"a", []string{"b_c"}}, {"a_b", []string{"c"}},
			{"a", []string{"b:c"}}, {"a:b", []string{"c"}},
			{"x", []string{"aa", "b"}}, {"x", []string{"a", "ab"}},
			{"x", []string{"p|", "q"}}, {"x", []string{"p", "|q"}},
			{"x", []string{"r", ""}}, {"x", []string{"r"}},
			{"x", []string{jatah.Key("aa", "b")}}, // what others' parts are encoded as
			{"x", []string{"\xff\xfe"}}, {"x", []string{"\xff", "\xfe"}},
		} {
			u := edge.Use{Limit: c.limit}
			for _, p := range c.parts {
				u.Key = append(u.Key, edge.Text(p))
			}
			e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{u}}}})
			if v := decide(t, e, request("GET", "/%c0", someone)); !v.OK || v.Takes[0].Decision.Remaining != 0 {
				t.Errorf("%s by %q was counted with another: %+v", c.limit, c.parts, v.Takes[0])
			}
			if v := decide(t, e, request("GET", "/%c0", someone)); v.OK {
				t.Errorf("%s by %q is not counted", c.limit, c.parts)
			}
		}
	})
}

// A client that plants other addresses each time is one client.
func TestPlantedAddressesMakeNoKeys(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "address", Rate: jatah.PerDay(50)}}, func(t *testing.T, node *jatah.Node) {
		for header, form := range map[string]string{"X-Forwarded-For": "%s", "Forwarded": "for=%s"} {
			proxies, err := clientip.ParseProxies([]string{"10.0.0.0/8"})
			if err != nil {
				t.Fatal(err)
			}
			client, err := clientip.New(clientip.Config{TrustedProxies: proxies, Header: header, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			e := mustNew(t, node, edge.Config{Client: client, Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Text(header), edge.Address()}}}}}})
			for i := range 51 {
				var planted []string
				for j := range 100 {
					planted = append(planted, fmt.Sprintf(form, fmt.Sprintf("198.51.%d.%d", i, j)))
				}
				line := strings.Join(append(planted, fmt.Sprintf(form, "203.0.113.9")), ", ")
				if v := decide(t, e, request("GET", "/", "10.0.0.5:4000", header, line)); v.OK != (i < 50) || v.Takes[0].Key != jatah.Key(header, "203.0.113.9") {
					t.Fatalf("%s, request %d: %v by the key %q", header, i, v.OK, v.Takes[0].Key)
				}
			}
		}
	})
}
