package sim

import "time"

// A Record is what RunProcesses did, and what came of it.
type Record struct{ Events []ProcessEvent }

// A ProcessEvent is the start of a process, a signal to it, or its end.
type ProcessEvent struct {
	At   time.Duration // since RunProcesses began
	Node Node
	PID  int
	What string // "start", "exit", or the signal
	Err  error  // of the signal, or how the process exited
}
