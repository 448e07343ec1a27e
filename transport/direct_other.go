//go:build !linux

package transport

import "net"

// A direct writes to a socket without waiting. Not on this system: all is written by the writer's goroutine.
type direct struct{}

func newDirect(net.Conn, func() bool) *direct { return nil }

func (*direct) write(net.Buffers) (int, error) { return 0, nil }

type readiness struct{}

func (readiness) any([]*direct) bool { return false }

func (*direct) look([]byte) int { return 0 }

func (*direct) yield() {}

func (*direct) wait([]byte) (int, error) { return 0, errRead }

func (*direct) read([]byte) (int, error) { return 0, errRead }
