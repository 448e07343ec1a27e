//go:build !unix

package compare

import "os"

// alive reports whether there is a process of that number.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release() // nothing is done with it
	return true
}
