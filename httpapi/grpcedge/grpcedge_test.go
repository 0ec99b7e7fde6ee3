package grpcedge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
	"github.com/jatah-io/jatah/httpapi/grpcedge"
)

// service answers as its functions say.
type service struct {
	healthpb.UnimplementedHealthServer
	check func(ctx context.Context) error
	watch func(s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error
}

func (s *service) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if s.check != nil {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func (s *service) Watch(_ *healthpb.HealthCheckRequest, ss grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return s.watch(ss)
}

func startNode(t *testing.T, limits ...jatah.Limit) *jatah.Node {
	t.Helper()
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	for _, l := range limits {
		if _, err := node.Limit(l); err != nil {
			t.Fatal(err)
		}
	}
	return node
}

// serve runs the service behind the rules and returns a client.
func serve(t *testing.T, node *jatah.Node, s *service, rules []edge.Rule, opts ...grpc.DialOption) healthpb.HealthClient {
	t.Helper()
	e, err := edge.New(node, edge.Config{Rules: rules, Account: func(q *edge.Request) string { return q.Header.Get("Test-Account") }})
	if err != nil {
		t.Fatal(err)
	}
	recovered := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = status.Error(codes.Internal, fmt.Sprint(p))
			}
		}()
		return handler(ctx, req)
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(recovered, grpcedge.UnaryServer(e)), grpc.ChainStreamInterceptor(grpcedge.StreamServer(e)))
	healthpb.RegisterHealthServer(srv, s)
	ln := bufconn.Listen(1 << 20)
	go srv.Serve(ln)
	t.Cleanup(srv.Stop)
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:///bufconn", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// as is a context of a caller who is known.
func as(ctx context.Context, account string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "test-account", account)
}

func check(ctx context.Context, c healthpb.HealthClient, opts ...grpc.CallOption) error {
	_, err := c.Check(ctx, &healthpb.HealthCheckRequest{}, opts...)
	return err
}

func TestCallsAreLimitedByAccount(t *testing.T) {
	node := startNode(t, jatah.Limit{Name: "api", Rate: jatah.PerHour(3)})
	var seen atomic.Int64
	s := &service{check: func(ctx context.Context) error {
		seen.Add(1)
		if v := edge.FromContext(ctx); v == nil || v.Rule != "calls" {
			return errors.New("no verdict by the rule")
		}
		return nil
	}}
	c := serve(t, node, s, []edge.Rule{{Name: "calls", When: []edge.Condition{edge.Path("/grpc.health.v1.Health/*"), edge.Method("POST")},
		Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Account(), edge.Route()}}}}})
	var header metadata.MD
	for i := range 3 {
		if err := check(as(t.Context(), "ann"), c, grpc.Header(&header)); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if got := header.Get("ratelimit"); len(got) != 1 || got[0] != `"api";r=0;t=3600` && got[0] != `"api";r=0;t=3599` {
		t.Errorf("ratelimit: %q", got)
	}
	err := check(as(t.Context(), "ann"), c, grpc.Header(&header))
	st := status.Convert(err)
	if st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 {
		t.Fatalf("the fourth call: %v with details %v", err, st.Details())
	}
	info, ok := st.Details()[0].(*errdetails.RetryInfo)
	if wait := info.GetRetryDelay().AsDuration(); !ok || wait <= 19*time.Minute || wait > 20*time.Minute {
		t.Errorf("come back in %v, want about 20m", wait)
	}
	if got := header.Get("retry-after"); len(got) != 1 || got[0] != "1200" && got[0] != "1199" {
		t.Errorf("retry-after: %q", got)
	}
	if err := check(as(t.Context(), "bob"), c); err != nil {
		t.Errorf("another account: %v", err)
	}
	if err := check(t.Context(), c); status.Code(err) != codes.Unknown { // the rule is for accounts: there is no verdict by it
		t.Errorf("nobody known: %v", err)
	}
	if seen.Load() != 5 {
		t.Errorf("the handler saw %d calls, want 5", seen.Load())
	}
}

func TestAPermitIsHeldWhileTheCallRuns(t *testing.T) {
	node := startNode(t, jatah.Limit{Name: "flight", Algorithm: jatah.Concurrency, Max: 1})
	begun, end := make(chan struct{}), make(chan struct{})
	s := &service{
		check: func(context.Context) error { panic("broken") },
		watch: func(grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
			begun <- struct{}{}
			<-end
			return nil
		},
	}
	c := serve(t, node, s, []edge.Rule{{Uses: []edge.Use{{Limit: "flight", Key: []edge.Part{edge.Text("all")}}}}})
	for range 3 { // each gives back what it held
		if err := check(t.Context(), c); status.Code(err) != codes.Internal {
			t.Fatalf("a handler that panics: %v", err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	first, err := c.Watch(gone, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	leave() // the handler goes on
	if _, err := first.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if err := check(t.Context(), c); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second call: %v, want RESOURCE_EXHAUSTED", err)
	}
	end <- struct{}{}
	for status.Code(check(t.Context(), c)) == codes.ResourceExhausted { // until the handler has returned
	}
}

func TestFailuresAreCounted(t *testing.T) {
	node := startNode(t, jatah.Limit{Name: "login", Rate: jatah.PerHour(3)})
	answer := codes.Unauthenticated
	s := &service{check: func(context.Context) error { return status.Error(answer, "") }}
	c := serve(t, node, s, []edge.Rule{{Uses: []edge.Use{{Limit: "login", Key: []edge.Part{edge.Account()},
		Counts: func(status int) bool { return status == 401 }}}}})
	answer = codes.OK
	for range 10 {
		if err := check(as(t.Context(), "ann"), c); err != nil {
			t.Fatal(err)
		}
	}
	answer = codes.Unauthenticated
	for range 3 {
		if err := check(as(t.Context(), "ann"), c); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
	}
	answer = codes.OK
	if err := check(as(t.Context(), "ann"), c); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("after three failures: %v", err)
	}
}

func TestClientsPaceTheirCalls(t *testing.T) {
	node := startNode(t, jatah.Limit{Name: "out", Rate: jatah.PerHour(2)})
	out, _ := node.Lookup("out")
	var calls atomic.Int64
	s := &service{check: func(context.Context) error { calls.Add(1); return nil }, watch: func(ss grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
		calls.Add(1)
		return ss.Send(&healthpb.HealthCheckResponse{})
	}}
	c := serve(t, node, s, nil, grpc.WithUnaryInterceptor(grpcedge.UnaryClient(out, nil)), grpc.WithStreamInterceptor(grpcedge.StreamClient(out, nil)))
	if err := check(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	hasty, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := check(hasty, c); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call that cannot pass in time: %v", err)
	}
	if calls.Load() != 2 {
		t.Errorf("the server saw %d calls, want 2", calls.Load())
	}
}
