package protocol

import "errors"

var (
	// ErrRefused: nobody listens where the peer did. On the peer's own host this proves that its process is gone.
	ErrRefused = errors.New("connection refused")

	// ErrConflict: the key has another revision than PutIf demanded.
	ErrConflict = errors.New("the key was changed by another")

	// ErrLeaseLost: the lease has ended, or never was.
	ErrLeaseLost = errors.New("the lease has ended")

	// ErrUnavailable: the metadata store does not answer; whether a PutIf was applied is not known.
	ErrUnavailable = errors.New("the metadata store does not answer")
)
