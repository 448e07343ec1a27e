package transporttest

import (
	"bytes"
	"runtime"
)

// Goroutines counts those that live in bubbles of testing/synctest, the caller's among them: runtime.NumGoroutine counts what the collector
// starts for a moment as well, and a test that compares two of its counts fails where the collector ran at the second.
func Goroutines() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(", synctest bubble "))
}
