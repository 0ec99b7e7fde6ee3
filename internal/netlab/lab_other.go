//go:build !linux

package netlab

import (
	"context"
	"fmt"
	"net"
)

// Lab exists on Linux only.
type Lab struct{}

// New fails.
func New(string, int) (*Lab, error) {
	return nil, fmt.Errorf("%w: they are a part of Linux", ErrUnavailable)
}

// Close does nothing.
func (l *Lab) Close() error { return nil }

// Address is of a lab that is not there.
func (l *Lab) Address(int, int) string { return "" }

// In fails.
func (l *Lab) In(int, func()) error { return ErrUnavailable }

// Dial fails.
func (l *Lab) Dial(context.Context, string, string) (net.Conn, error) { return nil, ErrUnavailable }

// Apply fails.
func (l *Lab) Apply(...Drop) (uint64, error) { return 0, ErrUnavailable }

// Everywhere is no link.
func (l *Lab) Everywhere(float64) []Drop { return nil }
