package launch

import (
	"os"
	"sync"
	"time"
)

// NewProcess returns a process that a launcher outside this package has started, or is about to: signal sends it one, and end says how
// it ended. Calls of end after the first have no effect.
func NewProcess(name string, signal func(os.Signal) error) (p *Process, end func(Exit)) {
	p = &Process{name: name, began: time.Now(), exited: make(chan struct{})}
	p.signal = func(s os.Signal) error {
		select {
		case <-p.exited:
			return os.ErrProcessDone
		default:
			return signal(s)
		}
	}
	var once sync.Once
	return p, func(e Exit) { once.Do(func() { p.end(e) }) }
}

// Started tells the number that the system gave a process of NewProcess. It is called once.
func (p *Process) Started(pid int) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.pid = pid
}
