package edge_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// A handler that decodes JSON reads the first value whatever the type says, and does not look at what follows.
func TestJSONThatIsSentAsSomethingElseIsNotCheap(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(100000)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, aUse(func(u *edge.Use) { u.Cost = edge.Body("rows").Per(1, edge.Bounds{}) }))
		const form, parts = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
		for _, c := range []struct {
			kind, body string
			cost       int64 // 0: refused
		}{
			{form, `{"rows":500}`, 500},
			{form, `{"rows":500} x`, 500},
			{form, `{"rows":500}&rows=3`, 500},
			{form, "\xef\xbb\xbf" + `{"rows":500}`, 500},
			{form, " \n[" + `{"rows":500},{"rows":5}] more`, 505},
			{form, `{"rows":500`, 0}, // nobody can say what a program makes of it
			{form, `rows=7`, 7},
			{form, `5&rows=7`, 7},
			{form, `a={"rows":500}`, 1},
			{parts, `{"rows":500}` + "\r\n--x--\r\n", 500},
			{parts, `{"rows":500}` + "\r\n--x\r\nContent-Disposition: form-data; name=rows\r\n\r\n3\r\n--x--\r\n", 500},
			{parts, "--x\r\nContent-Disposition: form-data; name=rows\r\n\r\n3\r\n--x--\r\n", 3},
			{parts, "to be ignored\r\n--x\r\nContent-Disposition: form-data; name=rows\r\n\r\n3\r\n--x--\r\n", 3},
			{"application/json", `{"rows":500} {"rows":1}`, 0},
			{"application/json", `{"rows":500}`, 500},
			{"text/plain", `{"rows":500}`, 500},
			{"", `{"rows":500}`, 500},
		} {
			r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
			r.RemoteAddr = someone
			r.Header.Set("Content-Type", c.kind)
			v := e.Decide(t.Context(), e.RequestOf(r))
			if got := v.Takes[0].Cost; v.OK != (c.cost > 0) || v.OK && got != c.cost {
				t.Errorf("%q as %q: OK %v, costs %d, want %d: %v", c.body, c.kind, v.OK, got, c.cost, v.Err)
			}
		}
	})
}
