package compare

import (
	"fmt"
	"time"
)

// How long a worker may take to answer beyond what its own clock says. An honest one is never refused, so each is far more than was seen of
// MXNet, PyTorch and TensorFlow, three workers on two cores that others used too: 8 ms, and 12 ms for a snapshot. What a clock says is five
// seconds may be six and a quarter by ours, and of a minute, a minute and four seconds.
const (
	// answerWait is for a command to come to be read, and the answer to be written and read: on a machine with more busy threads than cores
	// each waits for a turn, and a program may hand its lines on at intervals.
	answerWait = time.Second
	// snapshotStop is for what worker 0 does with its clock stopped, each time: it copies the parameters, or asks a server for them. So long it may
	// take to write them, too, when it is told to: a file has half a megabyte at most, or 1.7 of a convolutional net.
	snapshotStop = 100 * time.Millisecond
	// clockShare is of the time that it says: two clocks, and what a loop does between two of its looks at one.
	clockShare = 0.05
)

// train has the updates of a command made, and holds what each worker says of its time against this program's clock: from the command to
// the answer there is no more time than a worker has trained for, but little. The first run of a trial is not held against it, since a
// system may compile what it runs first before it starts its clock.
func (t *peerTrial) train(c peerCommand, other func(*peerProcess, peerWord) error) ([]peerWord, error) {
	sent := time.Now()
	words, err := t.command(c, "update", other)
	if err != nil {
		return nil, err
	}
	first := t.clock == nil
	if first {
		t.clock = make([]float64, len(words))
	}
	for rank, w := range words {
		took := w.Seconds - t.clock[rank]
		t.clock[rank] = w.Seconds
		stops := 0
		if rank == 0 {
			stops = len(c.Snapshots)
		}
		if !first && !believed(took, w.heard.Sub(sent), stops) {
			return nil, fmt.Errorf("%s %d says that %d updates took it %.3g s, and answered %.3g s after the command: it trains while its clock stands still",
				t.lead, rank, c.Updates, took, w.heard.Sub(sent).Seconds())
		}
	}
	return words, nil
}

// believed reports whether a worker that answers after that time, and stopped its clock so often for a snapshot, may say that it trained for
// so many seconds.
func believed(seconds float64, answered time.Duration, stops int) bool {
	return answered.Seconds() <= seconds*(1+clockShare)+(answerWait+time.Duration(stops)*snapshotStop).Seconds()
}
