//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package transport

import "context"

// lockDir is for systems that lock files. On this one two processes that open one name at the same moment may both find a dead
// one's socket, and one of them is not reached then.
func lockDir(context.Context, string) (unlock func()) { return func() {} }
