package train

import (
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/transport"
)

// CountTraffic has what the process's port sends and receives from now on counted at r, before each frame: what workers read in each other's
// memory has not travelled. A process calls it once.
func (e *Env) CountTraffic(r *observe.Recorder) {
	if e.Observe == nil || e.Port == nil {
		return
	}
	port, last := e.Port, e.Port.Stats()
	e.Observe.Poll(func(time.Duration) {
		now := port.Stats()
		count(r, &last, &now)
		last = now
	})
}

// count adds to r what a port did since last.
func count(r *observe.Recorder, last, now *transport.Stats) {
	for _, x := range []struct {
		to        observe.Counter
		last, now uint64
	}{
		{observe.BytesOut, last.BytesSent, now.BytesSent},
		{observe.BytesIn, last.BytesReceived, now.BytesReceived},
		{observe.MessagesOut, last.FramesSent, now.FramesSent},
		{observe.MessagesIn, last.FramesReceived, now.FramesReceived},
	} {
		if x.now > x.last {
			r.Add(x.to, x.now-x.last)
		}
	}
}
