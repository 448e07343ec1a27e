package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// F6: Meta away for a minute, without and with a death.
func TestMetaAwayMinute(t *testing.T) {
	s := formed(t, 4, cluster.Policy{})
	s.until(t, 40*second, sim.Fault{At: second, For: 60 * second, Kind: sim.MetaAway})
	carried := s.applied
	if len(s.views) != 1 || len(s.convicted) > 0 || carried == 0 {
		t.Fatalf("without a death: views %v, convicted %v", s.sizes(), s.convicted)
	}
	s.until(t, 61*second, crash(40*second, 0))
	if len(s.views) != 1 {
		t.Errorf("a view was made without the store: %v", s.sizes())
	}
	said := 0
	for _, f := range s.facts {
		if _, ok := f.Value.(cluster.MetaAway); ok && f.Node == 1 && f.At > 40*second {
			said++
		}
	}
	if said < 19 || said > 22 {
		t.Errorf("said %d times in 21 s that the store is away, want once a second", said)
	}
	s.until(t, 62*second)
	if at := s.installs(t, 1, 61*second, 3); at > 61*second+500*time.Millisecond {
		t.Errorf("went on %v after the store's return, want 500 ms", at-61*second)
	}
}

// A view change that cannot be made ends at MetaWait, with what it waited for.
func TestMetaWait(t *testing.T) {
	s := formed(t, 3, cluster.Policy{MetaWait: 5 * second})
	for _, p := range s.processes {
		p.leave = true
	}
	s.until(t, 10*second, crash(2*second, 2), sim.Fault{At: second, Kind: sim.MetaAway})
	if err := s.processes[0].err; !errors.Is(err, protocol.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "view 1 has to change, and for 5s the metadata store") {
		t.Errorf("Meta away: %v", err)
	}
	s = formed(t, 4, cluster.Policy{MetaWait: 5 * second, LeaseTTL: 60 * second})
	for _, p := range s.processes {
		p.leave = true
	}
	s.quorumLost = true
	s.until(t, 10*second, sim.Fault{At: second, Kind: sim.Pause, Nodes: []sim.Node{0, 1}})
	if err := s.processes[2].err; !errors.Is(err, cluster.ErrNoQuorum) || !strings.Contains(fmt.Sprint(err), "worker/0#1001: silent") {
		t.Errorf("two of four, without the lowest rank: %v", err)
	}
}

// A store that lost what it had acknowledged stops the group: two answers would be possible.
func TestStoreRegressed(t *testing.T) {
	m, err := cluster.NewMachine(cluster.Member{Name: protocol.Name{Job: "j", ID: "0", Incarnation: 1}}, cluster.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	// A store in a map, whose content is thrown away half-way.
	kv := map[string]protocol.MetaKV{}
	rev, lease := int64(0), int64(0)
	queue := []protocol.Event{protocol.Start{}}
	var ended error
	now := time.Duration(0)
	for range 2000 {
		now += 5 * time.Millisecond
		if now == 2*second {
			kv, lease = map[string]protocol.MetaKV{}, 1000 // the lease is unknown now
		}
		in := protocol.Event(protocol.Timer{})
		if len(queue) > 0 {
			in, queue = queue[0], queue[1:]
		} else if now%(20*time.Millisecond) != 0 {
			continue
		}
		for _, c := range m.Step(now, in) {
			switch c := c.(type) {
			case protocol.MetaCall:
				r := protocol.MetaReply{ID: c.ID}
				switch c.Op {
				case protocol.MetaGet:
					r.KV = kv[c.Key]
				case protocol.MetaGrant:
					lease++
					r.KV.Lease = lease
				case protocol.MetaKeep:
					if c.Lease != lease {
						r.Err = protocol.ErrLeaseLost
					}
				case protocol.MetaPutIf:
					if kv[c.Key].Rev != c.Rev {
						r.Err = protocol.ErrConflict
						break
					}
					rev++
					kv[c.Key] = protocol.MetaKV{Key: c.Key, Value: c.Value, Rev: rev}
					r.KV.Rev = rev
				case protocol.MetaWatch:
					continue
				}
				queue = append(queue, r)
			case protocol.Report:
				if e, ok := c.Fact.(cluster.Ended); ok {
					ended = e.Err
				}
			}
		}
	}
	if !errors.Is(ended, cluster.ErrRegressed) {
		t.Errorf("the store forgot view 1: %v, want ErrRegressed", ended)
	}
}
