package ps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/sim"
)

// manyShards is a job whose tables have more shards than a frame has room for the names of, from a snapshot if there is one: every client adds
// the row's number to every 31st row, for so many rounds. It returns the snapshot, and fails where a cell is not what the rounds make it.
func manyShards(t *testing.T, servers, lanes, clients int, rounds Clock, store *memory, from *Manifest) (cut SnapshotResult) {
	t.Helper()
	const rows, step = 4096, 31
	specs := []Spec{
		{Name: "a", Rows: rows, Cols: 1, Cell: Int64, Mode: SSP, Staleness: 1},
		{Name: "b", Rows: rows, Cols: 1, Cell: Int64, Mode: BSP},
		{Name: "c", Rows: rows, Cols: 1, Cell: Float64, Mode: SSP, Staleness: 1},
	}
	limit := StreamOptions().MaxFrame
	j := newSimJob(sim.New(21, sim.Options{}), simOptions{
		servers: servers, lanes: lanes, clients: clients, min: 1, shards: 4096, tables: specs, server: ServerOptions{Store: store},
		dir: DirectoryOptions{Restore: from}, frame: limit,
	})
	ids := []int64{}
	for r := int64(0); r < rows; r += step {
		ids = append(ids, r)
	}
	end := make([]Clock, clients)
	for k := range clients {
		j.start(k, 0, func(w *Worker, sleep func(time.Duration)) error {
			a, b, c := tableOf[int64](w, "a"), tableOf[int64](w, "b"), tableOf[float64](w, "c")
			for range rounds {
				if k == 0 { // one adds, so that the sum does not depend on how many there are
					for _, r := range ids {
						for _, err := range []error{a.Inc(r, 0, r), b.Inc(r, 0, 2*r), c.Inc(r, 0, float64(r)/2)} {
							if err != nil {
								return err
							}
						}
					}
				}
				sleep(time.Millisecond)
				if err := w.Barrier(bg); err != nil {
					return err
				}
			}
			end[k] = w.Now()
			x, y := make([]int64, len(ids)), make([]float64, len(ids))
			for i, tab := range []Table[int64]{a, b} {
				if _, err := tab.GetRows(bg, ids, x); err != nil {
					return err
				}
				for n, r := range ids {
					if want := int64(end[k]) * r * int64(i+1); x[n] != want {
						return fmt.Errorf("row %d at round %d is %d, want %d", r, end[k], x[n], want)
					}
				}
			}
			if _, err := c.GetRows(bg, ids, y); err != nil {
				return err
			}
			for n, r := range ids {
				if want := float64(end[k]) * float64(r) / 2; y[n] != want {
					return fmt.Errorf("row %d at round %d is %g, want %g", r, end[k], y[n], want)
				}
			}
			return w.Finish(bg)
		})
	}
	if from == nil {
		j.w.Call(j.dir, 4*time.Millisecond, snapshotCall{store}, func(r any, err error) {
			if err != nil {
				j.failures = append(j.failures, err)
				return
			}
			cut = r.(SnapshotResult)
		})
	}
	j.run(t, time.Hour)
	if n := len(j.lane(0).tables[0].here); from == nil && n*3 < 12000 {
		t.Errorf("lane 0 has %d shards of a table: want more than a frame has room for", n)
	}
	return cut
}

// TestManyShards: no message grows with the shards, neither what lanes tell of a snapshot nor what they are told of a restore.
func TestManyShards(t *testing.T) {
	store := newMemory()
	cut := manyShards(t, 1, 1, 2, 12, store, nil)
	m, err := ReadManifest(bg, store, cut.Key)
	if err != nil {
		t.Fatal(err)
	}
	if m.Clock == 0 {
		t.Fatal("the snapshot is of the beginning")
	}
	if n := len(m.Tables[0].Objects) + len(m.Tables[1].Objects) + len(m.Tables[2].Objects); n != 3*4096 {
		t.Errorf("the snapshot has %d objects, want %d", n, 3*4096)
	}
	if p := store.objects[cut.Key]; len(p) > 4096 {
		t.Errorf("the manifest of %d shards has %d bytes", 3*4096, len(p))
	}
	for _, x := range [][3]int{{1, 1, 1}, {3, 2, 3}} {
		manyShards(t, x[0], x[1], x[2], 3, store, m)
	}
}

// TestSnapshotOfFormat1 goes on from a snapshot whose manifest names the objects itself, as was written before there were indexes
// (testdata/snapshot1, of two servers).
func TestSnapshotOfFormat1(t *testing.T) {
	store, dir := newMemory(), os.DirFS("testdata/snapshot1")
	err := fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		store.objects[path], err = fs.ReadFile(dir, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(bg, store, "ps-000000000013.2/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	if m.Clock != 13 || len(m.Workers) != 2 || string(m.Workers[1].State) != "kept" {
		t.Fatalf("clock %d, workers %v", m.Clock, m.Workers)
	}
	adam := make([]float32, 8)
	if err := ReadTable(bg, store, m, "adam", func(x Saved[float32]) error { copy(adam[4*x.Row+x.From:], x.Cells); return nil }); err != nil {
		t.Fatal(err)
	}
	for servers := 1; servers <= 3; servers++ {
		j := newSimJob(sim.New(1, sim.Options{}), simOptions{clients: 1, servers: servers, min: 4, server: ServerOptions{Store: store}, dir: DirectoryOptions{Restore: m}})
		j.start(0, 0, func(w *Worker, _ func(time.Duration)) error {
			a, b, c := make([]int64, 12), make([]int64, 18), make([]float32, 8)
			_, err1 := tableOf[int64](w, "cells").Get(bg, 0, a)
			_, err2 := tableOf[int64](w, "rows").GetRows(bg, []int64{-1, 0, 1}, b)
			_, err3 := tableOf[float32](w, "adam").GetRows(bg, []int64{0, 1}, c)
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			for i, x := range a { // two workers added i + 1 in 13 rounds
				if x != 26*int64(i+1) {
					return fmt.Errorf("column %d is %d, want %d", i, x, 26*(i+1))
				}
			}
			for i, x := range b { // and 1 to three cells
				if want := map[bool]int64{true: 26}[i == 0 || i == 8 || i == 16]; x != want {
					return fmt.Errorf("cell %d is %d, want %d", i, x, want)
				}
			}
			if !slices.Equal(c, adam) || c[4] == 0 {
				return fmt.Errorf("the cells under an optimizer are %v, want %v", c, adam)
			}
			return w.Finish(bg)
		})
		j.run(t, time.Minute)
	}
}

// TestDamagedIndex: an index or a manifest that is missing, or is another than the one that was told, is named with its checksum: by who
// reads the manifest, or by the lane that comes to it later, and then nobody begins.
func TestDamagedIndex(t *testing.T) {
	store := newMemory()
	_, cuts := train19(t, 2, 1, 40, store, nil, 10)
	m, err := ReadManifest(bg, store, cuts[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Indexes) != 2 || m.Format != manifestFormat {
		t.Fatalf("a snapshot of two lanes has the indexes %v, format %q", m.Indexes, m.Format)
	}
	size := int(m.Indexes[1].Size)
	bad := map[string]func(p []byte) []byte{
		"missing": nil,
		"short":   func(p []byte) []byte { return p[:len(p)-1] },
		"long":    func(p []byte) []byte { return append(p, 0) },
		"empty":   func([]byte) []byte { return nil },
		"other":   func([]byte) []byte { return store.objects[m.Indexes[0].Key] },
	}
	for k := range uint64(8) {
		i := int(draw.Below(k, 91, 0, uint64(size)))
		bad[fmt.Sprint("flipped at ", i)] = func(p []byte) []byte { p[i%len(p)] ^= 1 << (k % 8); return p }
	}
	for what, f := range bad {
		for _, x := range []file{m.Indexes[1], m.from} {
			kept := store.objects[x.Key]
			if f == nil {
				delete(store.objects, x.Key)
			} else {
				store.objects[x.Key] = f(slices.Clone(kept))
			}
			says := func(where string, err error) {
				if err == nil || !strings.Contains(err.Error(), x.Key) || f == nil != strings.Contains(err.Error(), fs.ErrNotExist.Error()) || f != nil && !strings.Contains(err.Error(), x.SHA256) {
					t.Errorf("%s: %s %s: %v", what, where, x.Key, err)
				}
			}
			if x != m.from {
				got, err := ReadManifest(bg, store, m.from.Key)
				if says("read", err); got != nil {
					t.Errorf("%s: a manifest is returned beside the error", what)
				}
			}
			j := newSimJob(sim.New(20, sim.Options{}), simOptions{clients: 1, servers: 3, min: 16, most: 5, server: ServerOptions{Store: store}, dir: DirectoryOptions{Restore: m}})
			var got error
			j.startThen(0, 0, func(w *Worker, _ func(time.Duration)) error { return w.Finish(bg) }, func(err error) { got = err })
			j.run(t, time.Minute)
			says("restored", got)
			store.objects[x.Key] = kept
		}
	}
}

// TestSenselessIndex: what has the right checksum and makes no sense is refused all the same.
func TestSenselessIndex(t *testing.T) {
	good := object{file: file{Key: "k", Size: 3, SHA256: strings.Repeat("0", 64)}, Table: 1, Form: "rows", Lo: 1, Hi: 2}
	for want, change := range map[string]func(o *object){
		"":                                 func(*object) {},
		"table 2 of 2":                     func(o *object) { o.Table = 2 },
		"cols 1 to 2":                      func(o *object) { o.Form = "cols" },
		"rows 3 to 2":                      func(o *object) { o.Lo = 3 },
		`"" of 3 bytes makes no sense`:     func(o *object) { o.Key = "" },
		"key: want at most 512, found 600": func(o *object) { o.Key = strings.Repeat("k", 600) },
	} {
		o := good
		change(&o)
		store := newMemory()
		x := file{Key: "index"}
		if err := put(store, &x, appendIndex(nil, []*object{&good, &o})); err != nil {
			t.Fatal(err)
		}
		spec := Spec{Name: "t", Rows: 1, Cols: 1}
		m := Manifest{Format: manifestFormat, Tables: []SavedTable{{Name: "t", Spec: spec.append(nil)}, {Name: "t", Spec: spec.append(nil)}}, Indexes: []file{x}}
		p, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		store.objects["m"] = p
		got, err := ReadManifest(bg, store, "m")
		if want == "" && (err != nil || len(got.Tables[1].Objects) != 2) {
			t.Errorf("%+v: %v", o, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "index")) {
			t.Errorf("%+v: error %v, want %q", o, err, want)
		}
		m.Indexes[0].Size = -1
		if p, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		store.objects["m"] = p
		if _, err := ReadManifest(bg, store, "m"); err == nil || !strings.Contains(err.Error(), "-1 bytes") {
			t.Errorf("an index of -1 bytes: %v", err)
		}
	}
	if _, err := NewDirectoryState(Placement{Directory: dirName(), Servers: []Name{serverName(0)}}, DirectoryOptions{Restore: &Manifest{
		Tables: []SavedTable{{Name: "t", Spec: (&Spec{Name: "t", Rows: 1, Cols: 1}).append(nil), Objects: []*object{&good}}},
	}}); err == nil || !strings.Contains(err.Error(), "ReadManifest") {
		t.Errorf("a manifest that was not read: %v", err)
	}
}

// TestTakers: an object goes to all shards that have some of its cells, and to no others.
func TestTakers(t *testing.T) {
	p := Placement{Servers: make([]Name, 3), MinShardCells: 1, ShardsEach: 20}.withDefaults()
	l := &laneTable{table: newTable(&Definition{Spec: Spec{Name: "t", Rows: 7, Cols: 19}}, &p)}
	for k := range l.cut.shards {
		if k%3 == 1 {
			l.here = append(l.here, k)
		}
	}
	for lo := range int64(7*19 + 1) {
		for hi := lo + 1; hi <= 7*19; hi++ {
			var want []int
			for _, k := range l.here {
				if lo < l.cut.bounds[k+1] && hi > l.cut.bounds[k] {
					want = append(want, k)
				}
			}
			if got := l.takers(&object{Form: "cells", Lo: lo, Hi: hi}); !slices.Equal(got, want) {
				t.Fatalf("cells %d to %d: %v, want %v", lo, hi, got, want)
			}
		}
	}
}
