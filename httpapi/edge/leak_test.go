package edge_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// No goroutine of this package is left when its tests are done: whatever was started was closed, and Close ended all of it.
func TestMain(m *testing.M) {
	if addr := os.Getenv(shownAddr); addr != "" {
		fmt.Fprintln(os.Stderr, asShown(context.Background(), addr, hello))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
