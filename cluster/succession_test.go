package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// TestAnswerToOlderPut: rank 0 puts view 2, and another does so before it; view 3 is under way when a newcomer knocks and the store's
// answer to the put of view 2 comes. The view 3 that is installed is the one that the store took.
func TestAnswerToOlderPut(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error // the answer to the older put
		away bool  // the store was away before it
	}{
		{"conflict", protocol.ErrConflict, false},
		{"none", protocol.ErrUnavailable, false},
		{"conflict, and the store is back", protocol.ErrConflict, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &proposer{Machine: restful(t, 4), at: 10 * time.Second}
			p.hear(3, &bye{1})
			if len(p.puts) != 1 {
				t.Fatalf("%d puts after rank 3 went, want that of view 2", len(p.puts))
			}
			p.hear(1, &announcement{&record{Epoch: 2, By: name(1), Members: p.rec.Members[:3]}, 6})
			p.hear(2, &bye{2})
			if len(p.puts) != 2 {
				t.Fatalf("%d puts after rank 2 went too, want those of views 2 and 3", len(p.puts))
			}
			took := p.puts[1] // the store took it, and has not said so yet
			p.setPresence(presence{Member{Name: name(9)}, 2}, 7)
			p.hear(9, &knock{2})
			if tt.away {
				p.step(protocol.MetaReply{ID: p.store.watch, Err: protocol.ErrUnavailable})
			}
			p.step(protocol.MetaReply{ID: p.puts[0].ID, Err: tt.err})
			for range 20 {
				p.hear(9, &knock{2})
				p.step(protocol.Timer{ID: tickTimer})
			}
			if len(p.puts) > 2 && !tt.away { // a store that comes back is asked again
				t.Errorf("view 3 is put again, as call %d, while call %d is under way", p.puts[2].ID, took.ID)
			}
			p.step(protocol.MetaReply{ID: took.ID, KV: protocol.MetaKV{Rev: 8}})
			for _, c := range p.puts[2:] {
				p.step(protocol.MetaReply{ID: c.ID, Err: protocol.ErrConflict})
			}
			for _, c := range p.gets {
				p.step(protocol.MetaReply{ID: c.ID, KV: protocol.MetaKV{Key: c.Key, Value: took.Value, Rev: 8}})
			}
			want, err := decodeRecord(took.Value)
			if err != nil {
				t.Fatal(err)
			}
			if p.installed.Epoch != 3 || !slices.Equal(p.installed.Names(), View{Members: want.Members}.Names()) {
				t.Errorf("installed view %d %v, and the store took view 3 %v", p.installed.Epoch, p.installed.Names(), View{Members: want.Members}.Names())
			}
		})
	}
}

// A proposer is a Machine whose every proposal is voted for at once, and what it asked of the store.
type proposer struct {
	*Machine
	at         time.Duration
	puts, gets []protocol.MetaCall // of the view
	installed  View
}

func (p *proposer) hear(id int, b protocol.Body) { p.step(protocol.Message{From: name(id), Body: b}) }

func (p *proposer) step(in protocol.Event) {
	p.at += 5 * time.Millisecond
	for _, c := range slices.Clone(p.Step(p.at, in)) {
		switch c := c.(type) {
		case protocol.Send:
			if b, ok := c.Body.(*proposal); ok {
				p.step(protocol.Message{From: c.To, Body: &vote{Epoch: b.Change.Epoch, Round: b.Round}})
			}
		case protocol.MetaCall:
			switch {
			case c.Key != p.keys.view():
			case c.Op == protocol.MetaPutIf:
				p.puts = append(p.puts, c)
			default:
				p.gets = append(p.gets, c)
			}
		case protocol.Report:
			if f, ok := c.Fact.(Installed); ok {
				p.installed = f.View
			}
		}
	}
}
