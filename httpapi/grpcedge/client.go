package grpcedge

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/jatah-io/jatah"
)

// UnaryClient makes calls of a client wait until the limit lets them pass, first come first served per key. key says whose usage counts,
// by the full name of the method; nil: all calls to one target share a key. A call that cannot pass before its context ends fails at once
// with RESOURCE_EXHAUSTED and is not sent.
func UnaryClient(limit *jatah.Limiter, key func(method, target string) string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if err := pace(ctx, limit, key, method, cc.Target()); err != nil {
			return err
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient is UnaryClient for streams: a stream counts once, when it begins.
func StreamClient(limit *jatah.Limiter, key func(method, target string) string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if err := pace(ctx, limit, key, method, cc.Target()); err != nil {
			return nil, err
		}
		return streamer(ctx, desc, cc, method, opts...)
	}
}

func pace(ctx context.Context, limit *jatah.Limiter, key func(method, target string) string, method, target string) error {
	k := target
	if key != nil {
		k = key(method, target)
	}
	_, err := limit.Wait(ctx, k, limit.Cost(method))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return status.FromContextError(context.Canceled).Err()
	case errors.Is(err, jatah.ErrDeadline), errors.Is(err, jatah.ErrImpossible), errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.ResourceExhausted, "not sent: "+err.Error())
	}
	return status.Error(codes.Unavailable, "not sent: "+err.Error())
}
