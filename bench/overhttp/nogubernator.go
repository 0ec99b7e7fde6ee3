//go:build nogubernator

package overhttp

import (
	"context"
	"errors"
	"time"

	"github.com/jatah-io/jatah/bench/internal/proc"
)

// withGubernator is false: a build with this tag takes minutes less. So CI does.
const withGubernator = false

type rpc struct{}

func newRPC(string, *proc.Process, int, int) (*rpc, error) { return nil, errors.ErrUnsupported }

func (*rpc) measure(context.Context, time.Duration) (measurement, error) {
	return measurement{}, errors.ErrUnsupported
}
