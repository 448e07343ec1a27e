package app

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// An output is what a verb prints to. It keeps the first error of a write: most of what is printed are words in passing, whose errors
// nobody looks at, but a verb whose words are lost has not done all that it was asked for.
type output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

// Write implements io.Writer, for several goroutines.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// complete is what a verb that returned err has come to: where that is nil, or the error of a write itself, whether all has arrived.
func (o *output) complete(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || err != nil && !errors.Is(err, o.err) {
		return err
	}
	return fmt.Errorf("not all that was to be printed arrived: %w", o.err)
}
