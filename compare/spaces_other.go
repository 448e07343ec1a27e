//go:build !linux

package compare

import (
	"context"
	"errors"
)

type space struct{ path string }

func newSpaces(context.Context, Link, int) (*spaces, error) {
	return nil, errors.New("this system has no network namespaces")
}

func (*spaces) close() {}

func (*spaces) speed(context.Context) (mbit, trip float64, err error) {
	return 0, 0, errors.New("this system has no network namespaces")
}
