package metrics

import (
	"testing"

	"go.uber.org/goleak"
)

// No goroutine of this package is left when its tests are done: whatever was started was closed, and Close ended all of it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
