package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
)

// client passes MetaCalls on, and keeps the replies with the time at which they came.
type client struct {
	w    *sim.World
	node sim.Node
	got  []string
	errs []error
	kv   []protocol.MetaKV
	ms   []int64
}

func newClient(w *sim.World, id string) *client {
	c := &client{w: w}
	c.node = w.Add(name(id), sim.Host{}, func(sim.Disk) protocol.Machine {
		return script(func(_ time.Duration, in protocol.Event) []protocol.Command {
			switch in := in.(type) {
			case protocol.Call:
				return []protocol.Command{in.Arg.(protocol.MetaCall)}
			case protocol.MetaReply:
				c.kv, c.errs, c.ms = append(c.kv, in.KV), append(c.errs, in.Err), append(c.ms, w.Now().Milliseconds())
				text := fmt.Sprintf("%d %s %q@%d", in.ID, in.KV.Key, in.KV.Value, in.KV.Rev)
				if in.Err != nil {
					text = fmt.Sprintf("%d %v", in.ID, in.Err)
				}
				c.got = append(c.got, text)
			}
			return nil
		})
	})
	return c
}

// at makes the call at that ms.
func (c *client) at(ms int, call protocol.MetaCall) {
	c.w.Call(c.node, time.Duration(ms)*time.Millisecond, call, nil)
}

func (c *client) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(c.got, want) {
		t.Errorf("%v got\n%q, want\n%q", c.w.Name(c.node), c.got, want)
	}
}

const away = "the metadata store does not answer"

func put(id uint64, key, value string, rev, lease int64) protocol.MetaCall {
	c := protocol.MetaCall{ID: id, Op: protocol.MetaPutIf, Key: key, Rev: rev, Lease: lease}
	if value != "" {
		c.Value = []byte(value)
	}
	return c
}

func TestMeta(t *testing.T) {
	w := sim.New(1, sim.Options{})
	a, b := newClient(w, "a"), newClient(w, "b")
	a.at(0, put(1, "k/1", "x", 0, 0))
	a.at(10, put(2, "k/1", "y", 0, 0)) // it exists
	a.at(20, put(3, "k/1", "y", 1, 0))
	a.at(30, protocol.MetaCall{ID: 4, Op: protocol.MetaGet, Key: "k/1"})
	a.at(40, protocol.MetaCall{ID: 5, Op: protocol.MetaGet, Key: "k/2"})
	a.at(50, protocol.MetaCall{ID: 6, Op: protocol.MetaGrant, TTL: 100 * time.Millisecond})
	a.at(60, put(7, "k/2", "z", 0, 1))
	a.at(120, protocol.MetaCall{ID: 8, Op: protocol.MetaKeep, Lease: 1})
	a.at(300, protocol.MetaCall{ID: 9, Op: protocol.MetaKeep, Lease: 1})
	a.at(310, put(10, "k/3", "z", 0, 1))
	a.at(320, put(11, "k/1", "", 2, 0)) // deletes
	b.at(35, protocol.MetaCall{ID: 1, Op: protocol.MetaWatch, Key: "k/"})
	b.at(400, protocol.MetaCall{ID: 2, Op: protocol.MetaWatch, Key: "k/", Rev: 3})
	if err := w.Run(nil, time.Second); err != nil {
		t.Fatal(err)
	}
	a.want(
		t, `1 k/1 ""@1`, "2 the key was changed by another", `3 k/1 ""@2`, `4 k/1 "y"@2`, `5 k/2 ""@0`, `6  ""@0`, `7 k/2 ""@3`, `8  ""@0`,
		"9 the lease has ended", "10 the lease has ended", `11 k/1 ""@5`,
	)
	b.want(t, `1 k/1 "y"@2`, `1 k/2 "z"@3`, `1 k/2 ""@4`, `1 k/1 ""@5`, `2 k/2 ""@4`, `2 k/1 ""@5`)
	if b.ms[2] < 215 || b.ms[2] > 225 || b.kv[2].Value != nil {
		t.Errorf("the lease ended at %d ms, the key's value is %v: want at 220 ms, nil", b.ms[2], b.kv[2].Value)
	}
}

func TestMetaFaults(t *testing.T) {
	get := protocol.MetaCall{ID: 1, Op: protocol.MetaGet, Key: "k"}
	for _, c := range []struct {
		name, plan string
		want       string
		ms         int64
	}{
		{"none", "", `1 k ""@0`, 100},
		{"away", "50ms meta-away for 100ms", "1 " + away, 1100},
		{"slow", "50ms meta-slow for 100ms arg 0.03", `1 k ""@0`, 160},
		{"restart", "50ms meta-restart for 100ms", "1 " + away, 100},
		{"cut off", "50ms partition 0", "1 " + away, 1100},
		{"cut off, with the store", "50ms partition 0,meta", `1 k ""@0`, 100},
		{"mute", "50ms mute 0", "1 " + away, 1100},
		{"back", "50ms meta-away for 10ms", `1 k ""@0`, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := sim.New(1, sim.Options{})
			a := newClient(w, "a")
			newClient(w, "b")
			a.at(100, get)
			if err := w.Run(plan(t, c.plan), 3*time.Second); err != nil {
				t.Fatal(err)
			}
			a.want(t, c.want)
			if d := a.ms[0] - c.ms; d < 0 || d > 2 {
				t.Errorf("answered at %d ms, want %d", a.ms[0], c.ms)
			}
		})
	}
	t.Run("a watch ends", func(t *testing.T) {
		w := sim.New(1, sim.Options{})
		a := newClient(w, "a")
		a.at(0, protocol.MetaCall{ID: 1, Op: protocol.MetaWatch, Key: ""})
		a.at(10, put(2, "k", "v", 0, 0))
		if err := w.Run(plan(t, "50ms meta-restart for 100ms"), 3*time.Second); err != nil {
			t.Fatal(err)
		}
		a.want(t, `2 k ""@1`, `1 k "v"@1`, "1 "+away)
	})
	// What is under way to a watch that ends is lost, also where the store answers again before it would arrive: the watch might have missed
	// what came before.
	t.Run("a watch ends for good", func(t *testing.T) {
		w := sim.New(1, sim.Options{MetaLink: sim.Link{Delay: 20 * time.Millisecond}})
		a := newClient(w, "a")
		b := newClient(w, "b")
		a.at(0, protocol.MetaCall{ID: 1, Op: protocol.MetaWatch, Key: ""})
		b.at(50, put(1, "k", "v", 0, 0)) // is there at 70 ms, and would be seen at 90
		if err := w.Run(plan(t, "75ms meta-away for 5ms"), 3*time.Second); err != nil {
			t.Fatal(err)
		}
		a.want(t, "1 "+away)
	})
	t.Run("leases outlast the store's absence", func(t *testing.T) {
		w := sim.New(1, sim.Options{})
		a := newClient(w, "a")
		a.at(0, protocol.MetaCall{ID: 1, Op: protocol.MetaGrant, TTL: 100 * time.Millisecond})
		a.at(40, put(2, "k", "v", 0, 1))
		a.at(1040, protocol.MetaCall{ID: 3, Op: protocol.MetaGet, Key: "k"})
		a.at(1900, protocol.MetaCall{ID: 4, Op: protocol.MetaGet, Key: "k"})
		if err := w.Run(plan(t, "50ms meta-away for 950ms"), 3*time.Second); err != nil {
			t.Fatal(err)
		}
		a.want(t, `1  ""@0`, `2 k ""@1`, `3 k "v"@1`, `4 k ""@0`)
	})
	// Whether a put of which no answer came was applied: over many seeds, both happen.
	t.Run("unknown outcome", func(t *testing.T) {
		applied, lost := 0, 0
		for seed := range uint64(200) {
			w := sim.New(seed, sim.Options{})
			a := newClient(w, "a")
			a.at(100, put(1, "k", "v", 0, 0))
			a.at(1500, protocol.MetaCall{ID: 2, Op: protocol.MetaGet, Key: "k"})
			if err := w.Run(plan(t, "100.35ms meta-away for 10ms"), 3*time.Second); err != nil {
				t.Fatal(err)
			}
			if len(a.errs) != 2 || !errors.Is(a.errs[0], protocol.ErrUnavailable) && a.errs[0] != nil {
				t.Fatalf("seed %d: %v", seed, a.got)
			}
			switch {
			case a.errs[0] == nil:
			case a.kv[1].Rev > 0:
				applied++
			default:
				lost++
			}
		}
		if applied == 0 || lost == 0 {
			t.Errorf("of 200 puts without an answer, %d were applied and %d were not: want both", applied, lost)
		}
		t.Logf("of 200 puts, %d were applied and %d were not, without an answer", applied, lost)
	})
}
