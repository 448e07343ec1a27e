//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package processes

import "errors"

// lockFolder: not on this system, where what killed processes leave stays.
func lockFolder(string) (unlock func() error, err error) { return nil, errors.ErrUnsupported }
