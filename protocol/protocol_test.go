package protocol_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

func TestName(t *testing.T) {
	for want, n := range map[string]protocol.Name{
		"":             {},
		"0":            {ID: "0"},
		"worker/0":     {Role: "worker", ID: "0"},
		"job/worker/0": {Job: "job", Role: "worker", ID: "0"},
		"job/w/0#3":    {Job: "job", Role: "w", ID: "0", Incarnation: 3},
		"0#1":          {ID: "0", Incarnation: 1},
	} {
		if got := n.String(); got != want {
			t.Errorf("%#v prints as %q, want %q", n, got, want)
		}
	}
}

// greeting is a message.
type greeting string

func (g greeting) Size() int { return len(g) }

// echo sends each message back to its sender, and counts.
type echo struct{ n int }

func (e *echo) Step(_ time.Duration, in protocol.Event) []protocol.Command {
	switch in := in.(type) {
	case protocol.Message:
		e.n++
		return []protocol.Command{protocol.Send{To: in.From, Body: in.Body}}
	case protocol.Stop:
		return []protocol.Command{protocol.Report{Fact: e.n}, protocol.Exit{}}
	}
	return nil
}

func ExampleMachine() {
	m := &echo{}
	for _, ev := range []protocol.Event{
		protocol.Start{},
		protocol.Message{From: protocol.Name{ID: "a"}, Body: greeting("hello")},
		protocol.Stop{},
	} {
		for _, c := range m.Step(0, ev) {
			fmt.Printf("%T %v\n", c, c)
		}
	}
	// Output:
	// protocol.Send {a hello}
	// protocol.Report {1}
	// protocol.Exit {<nil>}
}
