package grpcedge

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// UnaryServer limits the unary calls of a server.
func UnaryServer(e *edge.Edge) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		v, err := begin(ctx, e, info.FullMethod, func(md metadata.MD) { _ = grpc.SetHeader(ctx, md) })
		if err != nil {
			return nil, err
		}
		done := false
		defer func() { // also when the handler panics
			o := edge.Outcome{Status: statusOf(err), Failed: !done}
			if m, ok := resp.(proto.Message); ok && done {
				o.Bytes = int64(proto.Size(m))
			}
			v.Settle(ctx, o)
		}()
		resp, err = handler(edge.NewContext(ctx, v), req)
		done = true
		return resp, err
	}
}

// StreamServer limits the streams of a server: a stream counts once, when it begins.
func StreamServer(e *edge.Edge) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		ctx := ss.Context()
		v, err := begin(ctx, e, info.FullMethod, func(md metadata.MD) { _ = ss.SetHeader(md) })
		if err != nil {
			return err
		}
		counted := &stream{ServerStream: ss, ctx: edge.NewContext(ctx, v)}
		done := false
		defer func() { v.Settle(ctx, edge.Outcome{Status: statusOf(err), Bytes: counted.sent, Failed: !done}) }()
		err = handler(srv, counted)
		done = true
		return err
	}
}

// stream counts the bytes of the messages that are sent. gRPC allows one sender at a time.
type stream struct {
	grpc.ServerStream
	ctx  context.Context
	sent int64
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if p, ok := m.(proto.Message); ok && err == nil {
		s.sent += int64(proto.Size(p))
	}
	return err
}

// begin decides about a call. The error is the answer to one that is refused.
func begin(ctx context.Context, e *edge.Edge, method string, setHeader func(metadata.MD)) (*edge.Verdict, error) {
	from := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	header, host := headerOf(ctx)
	// Escaped, since nothing in it is to be unescaped: that of a method that only a handler for unknown ones knows is as the client likes.
	target := (&url.URL{Path: method}).EscapedPath()
	q, err := e.Describe(ctx, http.MethodPost, host, target, from, header)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the name of the method is malformed")
	}
	v := e.Decide(ctx, q)
	setHeader(fieldsOf(v))
	if v.OK {
		return v, nil
	}
	return v, refusal(v)
}

// headerOf is the metadata as headers. Names of pseudo-headers and binary values are left out.
func headerOf(ctx context.Context) (h http.Header, host string) {
	md, _ := metadata.FromIncomingContext(ctx)
	h = make(http.Header, len(md))
	for name, values := range md {
		switch {
		case name == ":authority" && len(values) > 0:
			host = values[0]
		case name == "" || name[0] == ':' || len(name) > 4 && name[len(name)-4:] == "-bin":
		default:
			h[http.CanonicalHeaderKey(name)] = values
		}
	}
	return h, host
}

// fieldsOf are the fields that HTTP answers have, as metadata.
func fieldsOf(v *edge.Verdict) metadata.MD {
	h := http.Header{}
	v.SetHeaders(h)
	md := make(metadata.MD, len(h))
	for name, values := range h {
		md.Set(name, values...) // in lower case
	}
	return md
}

func refusal(v *edge.Verdict) error {
	switch {
	case errors.Is(v.Err, edge.ErrRequest):
		return status.Error(codes.InvalidArgument, v.Err.Error())
	case v.Undecided():
		return status.Error(codes.Unavailable, "the call could not be decided; try again")
	}
	st := status.New(codes.ResourceExhausted, "too many requests")
	if v.RetryAfter == jatah.Never {
		return st.Err()
	}
	if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(roundUp(v.RetryAfter))}); err == nil {
		st = with
	}
	return st.Err()
}

// roundUp makes whole milliseconds of a wait: who comes back then is not too early.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// statusOf is the HTTP status that the result of a call is commonly mapped to.
func statusOf(err error) int {
	switch status.Code(err) {
	case codes.OK:
		return http.StatusOK
	case codes.Canceled:
		return 499
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	}
	return http.StatusInternalServerError
}
