package server

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// An eventSink keeps events.
type eventSink struct{ events []observe.Event }

func (s *eventSink) Frame(observe.Frame) error               { return nil }
func (s *eventSink) Step(observe.Source, observe.Step) error { return nil }
func (s *eventSink) Event(e observe.Event) error {
	s.events = append(s.events, e)
	return nil
}

// TestTorn: torn rounds are counted and told by whoever serves, also a worker. No run of this package has any: a lost worker ends it.
func TestTorn(t *testing.T) {
	for _, role := range []observe.Role{observe.Server, observe.Worker} {
		hub, sink := observe.NewHub(observe.Options{Start: time.Now()}), &eventSink{}
		hub.Attach("events", sink)
		c := &cluster{env: &train.Env{Role: role}, figures: hub.Recorder(observe.Source{Role: role})}
		torn := c.trace().Torn
		for lane := range 2 {
			torn(ps.Torn{Client: transport.Name{Role: "worker", ID: "2"}, Lane: lane, From: 4, To: ps.Clock(6 - lane)})
		}
		hub.Collect(true)
		if all := hub.Latest(); len(all) != 1 || all[0].Frame.Counter(observe.TornRounds) != 3 {
			t.Errorf("%s: %d sources, want one that counts 3 torn rounds", role, len(all))
		}
		const want = "a server had 2 rounds of worker/2, which was lost, from round 4 on, that another had not"
		if len(sink.events) != 2 || sink.events[0].Text != want || sink.events[0].Level != observe.Warn {
			t.Errorf("%s: told %+v, want two, the first that %s", role, sink.events, want)
		}
	}
}
