//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Take has f for this process until Release, or until it ends; false: another has it.
func Take(f *os.File) bool { return try(f, syscall.LOCK_EX) }

// Release gives f up: closing it may not, since a child that is being started has a copy of it for a moment.
func Release(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) } // it may have had no lock

// Taken tells whether somebody has taken the file of that name, which it only looks at; what is not there, nobody has.
func Taken(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	defer Release(f)
	return !try(f, syscall.LOCK_SH) // of several that look at once, none takes another's look for a hold
}

func try(f *os.File, how int) bool {
	return !errors.Is(syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
