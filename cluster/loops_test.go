package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/sim"
	"github.com/trivium-ml/trivium/transport"
)

// loops are processes as they really are, with ports and goroutines, over simulated connections: this finds what the pure machine cannot
// have wrong, such as a wake-up that is lost, or a goroutine that stays.
type loops struct {
	t    *testing.T
	net  *sim.Network
	meta cluster.Meta

	mu    sync.Mutex
	views map[string]cluster.View // in force, by ID
	chain map[protocol.Epoch]string
	last  map[string]error // why the last membership ended
}

// run is one process: it joins, and again as a new incarnation whenever it is out.
func (l *loops) run(ctx context.Context, id int) {
	for incarnation := uint64(1); ctx.Err() == nil; incarnation++ {
		err := l.live(ctx, worker(id, incarnation))
		l.mu.Lock()
		delete(l.views, fmt.Sprint(id))
		l.last[fmt.Sprint(id)] = err
		l.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

func (l *loops) live(ctx context.Context, n protocol.Name) error {
	port, err := l.net.Open(ctx, n, transport.Options{})
	if err != nil {
		return err
	}
	defer port.Close()
	s, err := port.Stream("cluster", transport.StreamOptions{})
	if err != nil {
		return err
	}
	joining, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	m, err := cluster.Join(joining, l.net.Meta(l.net.Node(n), l.meta), s, cluster.Member{Addr: port.Addr()}, cluster.Policy{
		StartWorkers: 5, BackOff: 50 * time.Millisecond, Forget: port.Forget, BudgetMax: 500 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = m.Close() })()
	for v, err := range m.Views() {
		if err != nil {
			return errors.Join(err, m.Close())
		}
		l.mu.Lock()
		names := fmt.Sprint(v.Names())
		if was, known := l.chain[v.Epoch]; known && was != names {
			l.t.Errorf("view %d is %s, and at %v %s", v.Epoch, was, n, names)
		}
		l.chain[v.Epoch] = names
		l.views[n.ID] = v
		l.mu.Unlock()
	}
	return nil
}

// agreed says whether all of n are in one view.
func (l *loops) agreed(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, v := range l.views {
		names = append(names, fmt.Sprint(v.Epoch, v.Names()))
	}
	slices.Sort(names)
	return len(names) == n && len(slices.Compact(names)) == 1 && len(l.views["0"].Members) == n
}

func TestLoops(t *testing.T) {
	plans := []string{
		"",
		"1s partition 0,1 for 2s",
		"1s partition 0,1,meta for 2s",
		"1s crash 2 for 1s; 1.5s crash 0 for 2s",
		"1s pause 3 for 1s; 2.5s reset",
		"1s mute 1 for 2s; 1s meta-away for 3s",
		"1s deafen 0 for 3s",
		"1s swizzle for 2s; 2s crash 4 for 100ms",
		"1s bridge 2,3,4 for 2s; 4s meta-restart for 1s",
		"1s loss for 2s arg 0.05; 1s delay for 1s arg 0.05",
	}
	for i, text := range plans {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plan, err := sim.ParsePlan(text)
				if err != nil {
					t.Fatal(err)
				}
				store := meta.NewMemory(meta.Options{})
				l := &loops{
					t: t, net: sim.New(uint64(i), sim.Options{}).Network(), meta: store,
					views: map[string]cluster.View{}, chain: map[protocol.Epoch]string{}, last: map[string]error{},
				}
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				for id := range 5 {
					l.net.Node(worker(id, 1))
					group.Go(func() { l.run(ctx, id) })
				}
				if err := l.net.Run(ctx, plan); err != nil {
					t.Error(err)
				}
				l.net.Heal()
				for range 300 {
					if time.Sleep(50 * time.Millisecond); l.agreed(5) {
						break
					}
				}
				if !l.agreed(5) {
					t.Errorf("15 s after Heal: views %v, ended %v", l.views, l.last)
				}
				if strings.TrimSpace(text) == "" && len(l.chain) != 1 {
					t.Errorf("without a fault there are views %v", l.chain)
				}
				cancel()
				group.Wait()
				_ = store.Close()
			})
		})
	}
}
