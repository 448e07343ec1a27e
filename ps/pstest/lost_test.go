package pstest_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/shards"
)

// Cases in which processes are killed (SIGKILL), and those whose bits are the same however many processes there are.

// told is a goroutine that waits for the test's word.
func (in *inside) told() *atomic.Bool {
	b := new(atomic.Bool)
	go func() {
		in.hear()
		b.Store(true)
	}()
	return b
}

// TestCase17ExactKill: in exact mode workers are killed at seeded points of a round, one after the other: all cells of each agree, at its
// acknowledged rounds or one more, and the others go on.
func TestCase17ExactKill(t *testing.T) {
	victims, jobs := 10, 5
	if testing.Short() {
		victims, jobs = 4, 1
	}
	for seed := range uint64(jobs) {
		j := begin(t, child{Case: "17", Servers: 3, Clients: 2 + victims, Exact: true, Min: 4}, nil)
		acked := make([]int64, 2+victims)
		take := func(v int, said string) {
			if _, err := fmt.Sscan(said, &acked[v]); err != nil {
				t.Fatal(err)
			}
		}
		for v := 2; v < 2+victims; v++ {
			p := j.clients[v]
			for range 3 { // it is in the middle of its rounds
				take(v, p.said())
			}
			time.Sleep(time.Duration(draw.Below(seed, 99, uint64(v), 2000)) * time.Microsecond)
			for _, s := range p.kill() {
				take(v, s)
			}
			if err := j.directory.Lost(t.Context(), j.c.name("worker", v)); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range j.clients[:2] {
			p.tell("end")
		}
		held := make([]int64, 2+victims)
		said := j.clients[0].rest() // what the tables hold, row by row
		for row, s := range said {
			if _, err := fmt.Sscan(s, &held[row]); err != nil {
				t.Fatal(err)
			}
		}
		for v := 2; v < 2+victims; v++ {
			if n := held[v]; n < acked[v] || n > acked[v]+1 {
				t.Errorf("seed %d: %d rounds of worker %d, which was killed after %d were acknowledged", seed, n, v, acked[v])
			}
		}
		if len(said) != len(held) || held[0] < acked[len(acked)-1] || held[1] < acked[len(acked)-1] {
			t.Errorf("seed %d: %d rounds of each, %d were acknowledged", seed, held, acked)
		}
		t.Logf("seed %d: rounds %v, acknowledged %v", seed, held, acked)
		j.finish()
	}
}

func case17Tables(c *child) []ps.Spec {
	return []ps.Spec{{Name: "t", Rows: int64(c.Clients), Cols: 64, Cell: ps.Int64, Mode: ps.BSP}}
}

func case17(in *inside, w *ps.Worker) error {
	tab, row, one := tableOf[int64](w, "t"), make([]int64, 64), make([]int64, 64)
	for i := range one {
		one[i] = 1
	}
	end := new(atomic.Bool)
	if in.Index < 2 {
		end = in.told()
	}
	for !end.Load() {
		v, err := tab.Get(in.ctx, int64(in.Index), row)
		if err != nil {
			return err
		}
		if in.Index >= 2 {
			in.say("%d", v) // so many of its rounds are held everywhere
		}
		if err := tab.DenseInc(int64(in.Index), 0, one); err != nil {
			return err
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	if in.Index == 1 {
		return w.Finish(in.ctx)
	}
	for range 3 { // beyond whatever a killed one had begun
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
		if _, err := tab.Get(in.ctx, 0, row); err != nil {
			return err
		}
	}
	for r := range int64(in.Clients) {
		if _, err := tab.Get(in.ctx, r, row); err != nil {
			return err
		}
		for c, x := range row {
			if x != row[0] {
				return fmt.Errorf("row %d: cell 0 counts %d rounds, cell %d counts %d", r, row[0], c, x)
			}
		}
		in.say("%d", row[0])
	}
	return w.Finish(in.ctx)
}

// TestCase19Restore: snapshots every ten rounds, all processes killed, restored on 1, 2 and 5 servers: the bits of an uninterrupted run.
func TestCase19Restore(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: starts all processes five times")
	}
	store := t.TempDir()
	c := child{Case: "19", Servers: 2, Clients: 3, Min: 16, Most: 5, Rounds: 100, Store: store}
	whole := begin(t, c, nil)
	want := whole.clients[0].rest()
	whole.finish()
	j := begin(t, c, nil)
	var newest ps.SnapshotResult
	for n := 0; n < 50; {
		if _, err := fmt.Sscanf(j.clients[0].said(), "round %d", &n); err != nil {
			t.Fatal(err)
		}
		var err error
		if newest, err = j.directory.Snapshot(t.Context(), folder(store)); err != nil {
			t.Fatal(err)
		}
	}
	j.kill()
	m, err := ps.ReadManifest(t.Context(), folder(store), newest.Key)
	if err != nil {
		t.Fatal(err)
	}
	if m.Clock < 50 || m.Clock >= 100 {
		t.Fatalf("the last snapshot is of round %d", m.Clock)
	}
	for _, servers := range []int{1, 2, 5} {
		c.Servers = servers
		again := begin(t, c, m)
		got := again.clients[0].rest()
		again.finish()
		if got[len(got)-1] != want[len(want)-1] {
			t.Errorf("restored at round %d on %d servers: %s, want %s", m.Clock, servers, got[len(got)-1], want[len(want)-1])
		}
	}
}

func case19(in *inside, w *ps.Worker) error {
	tab, row, g := tableOf[float32](w, "t"), make([]float32, 300), make([]float32, 300)
	for c := in.client.Start(); c < ps.Clock(in.Rounds); c++ {
		if _, err := tab.Get(in.ctx, 0, row); err != nil {
			return err
		}
		for i := range g {
			g[i] = row[i] + float32(draw.Unit(uint64(in.Index), 70, uint64(c)*1000+uint64(i)))
		}
		if err := tab.DenseInc(0, 0, g); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
		if c%10 == 9 && in.Index == 0 {
			in.say("round %d", c+1)
		}
	}
	if _, err := tab.Get(in.ctx, 0, row); err != nil {
		return err
	}
	in.say("%x", bitsOf(row))
	return w.Finish(in.ctx)
}

func bitsOf(cells ...[]float32) []byte {
	h := sha256.New()
	for _, row := range cells {
		for _, x := range row {
			_ = binary.Write(h, binary.LittleEndian, math.Float32bits(x)) // a hash takes all
		}
	}
	return h.Sum(nil)[:8]
}

// TestCase20KilledSnapshot: a disk that gets full during a snapshot, and all processes killed during one: the one before it loads, and has
// exactly the rounds below its clock.
func TestCase20KilledSnapshot(t *testing.T) {
	for _, how := range []string{"full", "hang"} {
		store := t.TempDir()
		j := begin(t, child{Case: "20", Servers: 2, Clients: 3, Min: 16, Store: store}, nil)
		j.clients[0].said() // it has begun
		before, err := j.directory.Snapshot(t.Context(), folder(store))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(store, how), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := j.directory.Snapshot(ctx, folder(store))
			failed <- err
		}()
		if how == "full" {
			if err := <-failed; err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "ps-0") {
				t.Fatalf("error %v, want it to name the object and the disk", err)
			}
			for _, p := range j.clients {
				p.tell("end")
			}
			j.finish() // training went on
		} else {
			if s := j.servers[0].said(); s != "putting" {
				t.Fatal(s)
			}
			for _, p := range j.all() {
				p.kill()
			}
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Fatalf("a snapshot in which all were killed: %v", err)
			}
		}
		cancel()
		if err := os.Remove(filepath.Join(store, how)); err != nil {
			t.Fatal(err)
		}
		m, err := ps.ReadManifest(t.Context(), folder(store), before.Key)
		if err != nil {
			t.Fatal(err)
		}
		begin(t, child{Case: "20 read", Servers: 1, Clients: 2, Min: 16, Most: 2, Store: store, Rounds: int(m.Clock) * 3}, m).finish()
	}
}

func case20(in *inside, w *ps.Worker) error {
	tab, row, one := tableOf[float32](w, "t"), make([]float32, 64), make([]float32, 64)
	for i := range one {
		one[i] = 1
	}
	end := in.told()
	for i := 0; !end.Load(); i++ {
		for r := range int64(4) {
			if err := tab.DenseInc(r, 0, one); err != nil {
				return err
			}
		}
		if _, err := tab.Get(in.ctx, int64(i)%4, row); err != nil {
			return err
		}
		time.Sleep(time.Duration(1+in.Index) * 300 * time.Microsecond) // they are never at the same round
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
		if i == 10 {
			in.say("begun")
		}
	}
	return w.Finish(in.ctx)
}

func case20Read(in *inside, w *ps.Worker) error {
	tab, row := tableOf[float32](w, "t"), make([]float32, 64)
	for r := range int64(4) {
		if _, err := tab.Get(in.ctx, r, row); err != nil {
			return err
		}
		for c, x := range row {
			if int(x) != in.Rounds {
				return fmt.Errorf("row %d, cell %d: %v, want %d", r, c, x, in.Rounds)
			}
		}
	}
	return w.Finish(in.ctx)
}

// TestCase23SameBits: Adam at the server under BSP has the same bits for any number of servers and lanes; in exact mode also of workers.
// (That these are the bits of one loop over the tree is in the simulator's case.)
func TestCase23SameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("not run here: starts all processes nine times")
	}
	run := func(workers, servers, lanes int, exact bool) string {
		j := begin(t, child{Dir: t.TempDir(), Case: "23", Servers: servers, Clients: workers, Lanes: lanes, Exact: exact, Min: 16, Most: 5}, nil)
		said := j.clients[0].rest()
		j.finish()
		return said[0]
	}
	first := run(3, 1, 1, false)
	for _, x := range [][2]int{{1, 4}, {2, 1}, {5, 1}, {5, 4}} {
		if got := run(3, x[0], x[1], false); got != first {
			t.Errorf("%d servers of %d lanes: %s, want %s", x[0], x[1], got, first)
		}
	}
	first = run(1, 1, 1, true)
	for _, x := range [][2]int{{2, 3}, {4, 1}, {8, 3}} {
		if got := run(x[0], x[1], 1, true); got != first {
			t.Errorf("exact, %d workers and %d servers: %s, want %s", x[0], x[1], got, first)
		}
	}
}

func case23Tables(*child) []ps.Spec {
	d := ps.Spec{Name: "dense", Rows: 1, Cols: 300, Mode: ps.BSP, Optimizer: "adam rate=0.01", Init: ps.Init{Kind: ps.Uniform, A: -1, B: 1, Seed: 5}}
	s := d
	s.Name, s.Rows, s.Cols = "rows", 9, 10
	return []ps.Spec{d, s}
}

func case23(in *inside, w *ps.Worker) error {
	const leaves = 16
	a, b := tableOf[float32](w, "dense"), tableOf[float32](w, "rows")
	for round := range uint64(6) {
		for _, p := range shards.Owned(in.Index, in.Clients, leaves) {
			id := p.Node
			if !in.Exact {
				id = 0
			}
			dense := tree(p.From, p.To, func(v int) []float32 { return gradient(v, round, 300) })
			if err := errors.Join(a.IncPart(id, 0, 0, dense), w.Weight(id, float64(p.To-p.From))); err != nil {
				return err
			}
			for row := range int64(9) {
				g := tree(p.From, p.To, func(v int) []float32 {
					if draw.Bits(round, 71, uint64(v*100)+uint64(row))%3 != 0 {
						return nil
					}
					return gradient(v+50, round, 10)
				})
				if g != nil {
					if err := b.IncPart(id, row, 0, g); err != nil {
						return err
					}
				}
			}
		}
		if _, err := w.Clock(in.ctx); err != nil {
			return err
		}
	}
	if in.Index == 0 {
		all := make([][]float32, 10)
		all[9] = make([]float32, 300)
		if _, err := a.Get(in.ctx, 0, all[9]); err != nil {
			return err
		}
		for row := range int64(9) {
			all[row] = make([]float32, 10)
			if _, err := b.Get(in.ctx, row, all[row]); err != nil {
				return err
			}
		}
		in.say("%x", bitsOf(all...))
	}
	return w.Finish(in.ctx)
}

func gradient(v int, round uint64, n int) []float32 {
	g := make([]float32, n)
	for i := range g {
		g[i] = float32(draw.Unit(round, 70, uint64(v*10000+i))) * float32(math.Pow(2, float64(i%11)))
	}
	return g
}

// tree adds leaves from to to-1 as exact mode defines it; a side that is missing is left out.
func tree(from, to int, leaf func(v int) []float32) []float32 {
	if to-from == 1 {
		return leaf(from)
	}
	half := 1
	for 2*half < to-from {
		half *= 2
	}
	a, b := tree(from, from+half, leaf), tree(from+half, to, leaf)
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	for i := range a {
		a[i] += b[i]
	}
	return a
}
