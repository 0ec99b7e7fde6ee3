//go:build nogubernator

package distributed

import (
	"context"
	"errors"

	"github.com/jatah-io/jatah/bench/internal/servers"
)

// withGubernator is false: a build with this tag takes minutes less. So CI does.
const withGubernator = false

func gubernatorTargets(context.Context, *servers.Group, rule) ([]*target, error) {
	return nil, errors.ErrUnsupported
}
