package grpcedge_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
	"github.com/jatah-io/jatah/httpapi/grpcedge"
)

// The name of a method is what it is: a server that serves unknown methods does not unescape it either.
func TestTheNameOfAMethodIsNotUnescaped(t *testing.T) {
	node := startNode(t, jatah.Limit{Name: "calls", Rate: jatah.PerDay(100)})
	var path string
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{When: []edge.Condition{func(q *edge.Request) bool { path = q.Path; return false }}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"/shop.Orders/Get", "/shop.Orders/%47et", "/shop.Orders/Get?a=b", "/shop.Orders/Get#x", "/shop.Orders%2FGet", "/shop.Orders/%zz", "/shop.Orders/ü x"} {
		handler := func(context.Context, any) (any, error) { return nil, nil }
		if _, err := grpcedge.UnaryServer(e)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, handler); err != nil || path != method {
			t.Errorf("%q is seen as %q: %v", method, path, err)
		}
	}
	handler := func(context.Context, any) (any, error) { t.Error("served"); return nil, nil }
	if _, err := grpcedge.UnaryServer(e)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "shop.Orders/Get"}, handler); err == nil {
		t.Error("a method without a slash passes")
	}
}

// A caller that hangs up does not get the work of the handler for nothing.
func TestACallThatIsCancelledCountsAsAFailure(t *testing.T) {
	node := startNode(t, jatah.Limit{Name: "tries", Rate: jatah.PerDay(10)})
	use := edge.Use{Limit: "tries", Key: []edge.Part{edge.Text("k")}, Counts: edge.Failures()}
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{use}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	handler := func(ctx context.Context, _ any) (any, error) {
		cancel()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if _, err := grpcedge.UnaryServer(e)(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, handler); err == nil {
		t.Error("no error")
	}
	l, _ := node.Lookup("tries")
	if s, err := l.Peek(t.Context(), "k"); err != nil || s.Balance >= 10 {
		t.Errorf("%v are left: %v", s.Balance, err)
	}
}
