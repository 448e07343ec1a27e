package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// TestRefused: a frame that nobody can read is counted once where it came to: by a worker that looks at its host, and where tables are served by
// the trace.
func TestRefused(t *testing.T) {
	for _, server := range []int{-1, 0} {
		synctest.Test(t, func(t *testing.T) {
			network := transport.NewMemory()
			var ports []transport.Port
			var streams []transport.Stream
			for _, id := range []string{"0", "1"} {
				port, err := network.Open(t.Context(), transport.Name{Role: "worker", ID: id}, transport.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer port.Close()
				s, err := port.Stream(tableStream, ps.StreamOptions())
				if err != nil {
					t.Fatal(err)
				}
				ports, streams = append(ports, port), append(streams, s)
			}
			if err := ports[1].Know(ports[0].Name(), ports[0].Addr()); err != nil {
				t.Fatal(err)
			}
			hub := observe.NewHub(observe.Options{Start: time.Now()})
			c := &cluster{
				env: &train.Env{Port: ports[0], Observe: hub}, figures: hub.Recorder(observe.Source{Role: observe.Worker}),
				host: ps.Share(streams[0], nil), server: server,
			}
			defer c.host.Close()
			c.record()
			if err := streams[1].Send(t.Context(), ports[0].Name(), transport.Frame{Kind: 1, Head: []byte{9}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := c.host.Refused(); n != 1 {
				t.Fatalf("%d frames are refused, want 1", n)
			}
			if server >= 0 {
				c.trace().Refused(ports[1].Name(), "nobody serves here: this is what Host.Serve does")
			}
			for range 2 {
				hub.Collect(true)
				if n := hub.Latest()[0].Frame.Counter(observe.Refused); n != 1 {
					t.Errorf("server %d: %d messages are counted as refused, want 1", server, n)
				}
			}
		})
	}
}
