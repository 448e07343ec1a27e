package compare

// A warmUp counts the system calls of a trial's processes while they warm up, in which they do the same as afterwards. In the time that is
// measured it would cost a row up to some percent: a call takes half as long again, and a change of threads, of which there are as many, too.
type warmUp struct {
	counter     *callCounter
	first, last map[int]Calls // by process
	updates     int64
	why         string // it could not be counted
}

// begin is called when the processes are there, and wait to begin.
func (w *warmUp) begin(processes []Process) {
	counter, err := countCalls(processes)
	if err != nil {
		w.why = err.Error()
		return
	}
	w.counter, w.first = counter, counter.read()
}

// end is called when the warm-up is over. What counted is left for close, which takes the kernel some milliseconds: rows of ours have begun.
func (w *warmUp) end() { w.last = w.counter.read() }

// close ends what begin began.
func (w *warmUp) close() {
	w.counter.close()
	w.counter = nil
}

// of are the calls of a process, or why they are not known.
func (w *warmUp) of(p Process) (n Calls, why string) {
	a, began := w.first[p.PID]
	b, ended := w.last[p.PID]
	switch {
	case w.why != "":
		return n, w.why
	case !began || !ended:
		return n, "a process was not counted from the warm-up's start to its end"
	case w.updates == 0:
		return n, "it does not say how many updates it warmed up with"
	}
	return Calls{b.All - a.All, b.Transfers - a.Transfers, w.updates}, ""
}

// call adds the calls of one more process to those of its role. They are known where those of all are.
func (u *Use) call(n Calls, why string) {
	switch {
	case why != "":
		u.Calls, u.CallsUnknown = nil, why
	case u.CallsUnknown != "":
	case u.Calls == nil:
		u.Calls = &n
	default:
		u.Calls.All, u.Calls.Transfers = u.Calls.All+n.All, u.Calls.Transfers+n.Transfers
	}
}
