//go:build !linux

package transport

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// A Segment is memory that several processes of one host read and write: on Linux only.
type Segment struct{}

// CreateSegment returns an error: not on this system.
func CreateSegment(context.Context, string, int) (*Segment, error) { return nil, errNoSegment() }

// OpenSegment returns an error: not on this system.
func OpenSegment(context.Context, string, int) (*Segment, error) { return nil, errNoSegment() }

func errNoSegment() error {
	return fmt.Errorf("transport: segment: not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Addr is empty here.
func (*Segment) Addr() string { return "" }

// Bytes are none here.
func (*Segment) Bytes() []byte { return nil }

// Close does nothing here.
func (*Segment) Close() error { return nil }
