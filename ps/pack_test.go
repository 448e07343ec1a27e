package ps

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/protocol"
)

// TestSparseSections: rows of many blocks make one section a shard, whose columns are of one block in each of its rows, and which has all
// that was added.
func TestSparseSections(t *testing.T) {
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}.withDefaults()
	d := Definition{Spec: Spec{Name: "t", Cols: 1 << 20, Sparse: true}}
	cut := newCut(&d.Spec, &p)
	d.Owners = p.owners(0, cut.shards)
	table := newTable(&d, &p)
	buf := newDeltas[float32](newClientTable(table), 0)
	type cell struct{ row, col int64 }
	want := map[cell]float32{}
	for row := range int64(200) {
		for c := range int64(16) {
			at := cell{row * 997, c * c * 4001 % (1 << 20)}
			buf.inc(at.row, at.col, float32(row+c))
			want[at] += float32(row + c)
		}
	}
	seen := map[uint32]bool{}
	buf.sections(func(c section, _ *hold) {
		if seen[c.shard] {
			t.Errorf("shard %d has two sections", c.shard)
		}
		seen[c.shard] = true
		if err := newShard[float32](table, int(c.shard), nil).check(&c, true); err != nil {
			t.Error(err)
		}
		x, start := raw.Of[float32](c.cells), int64(0)
		for i, end := range c.ends {
			for k := start; k < end; k++ {
				at := cell{c.rows[i], c.cols[k]}
				if want[at] != x[k] {
					t.Errorf("row %d, column %d: %v is sent, want %v", at.row, at.col, x[k], want[at])
				}
				delete(want, at)
			}
			start = end
		}
	})
	if len(want) > 0 || len(seen) < 2 {
		t.Errorf("%d cells are not sent; %d shards", len(want), len(seen))
	}
}

// TestRowsWhereTheyLie: rows that came in ascending order are sent from where they lie, which is held meanwhile, and others as copies in that order.
func TestRowsWhereTheyLie(t *testing.T) {
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}, ShardsEach: 2}.withDefaults()
	d := Definition{Spec: Spec{Name: "t", Rows: 1000, Cols: 3}}
	d.Owners = p.owners(0, newCut(&d.Spec, &p).shards)
	for _, mixed := range []bool{false, true} {
		buf := newDeltas[float32](newClientTable(newTable(&d, &p)), 0)
		for i := range int64(100) {
			row := 7 * i
			if mixed {
				row = 7 * (99 - i)
			}
			for c := range int64(3) {
				buf.inc(row, c, float32(row+c))
			}
		}
		next, shards := int64(0), 0
		buf.sections(func(c section, h *hold) {
			shards++
			x := raw.Of[float32](c.cells)
			if lies := &x[0] == &buf.arena[next/7*3]; lies == mixed || lies != (h == buf.hold) || mixed != (h == nil) {
				t.Errorf("mixed=%v: shard %d is sent from where it lies: %v, held %v", mixed, c.shard, lies, h != nil)
			}
			for i, row := range c.rows {
				if row != next || !slices.Equal(x[3*i:3*i+3], []float32{float32(row), float32(row + 1), float32(row + 2)}) {
					t.Fatalf("mixed=%v: row %d is %v, and row %d comes next", mixed, row, x[3*i:3*i+3], next)
				}
				next += 7
			}
		})
		if next != 700 || shards != 2 {
			t.Errorf("mixed=%v: rows below %d of %d shards", mixed, next, shards)
		}
	}
}

// TestStepRows: rows that are stepped by themselves come to the bits that they come to among others.
func TestStepRows(t *testing.T) {
	for _, optimizer := range []string{"sgd rate=0.1", "adam rate=0.01"} {
		for _, spec := range []Spec{{Rows: 100, Cols: 3}, {Rows: 40, Cols: 5000}, {Cols: 7}} {
			spec.Name, spec.Optimizer, spec.Mode = "t", optimizer, SSP
			apply := func(apart bool) []float32 {
				j, w := alone(t, spec)
				defer j.close()
				tab := tableOf[float32](w, "t")
				row := make([]float32, spec.Cols)
				for round := range int64(3) {
					for r := range int64(20) {
						for c := range row {
							row[c] = float32(r*3+int64(c)+round) / 7
						}
						if apart {
							if err := tab.IncPart(int(1+r%2), r, 0, row); err != nil {
								t.Fatal(err)
							}
						} else if err := tab.DenseInc(r, 0, row); err != nil {
							t.Fatal(err)
						}
					}
					if err := w.Barrier(bg); err != nil {
						t.Fatal(err)
					}
				}
				var all []float32
				for r := range int64(20) {
					if _, err := tab.Get(bg, r, row); err != nil {
						t.Fatal(err)
					}
					all = append(all, row...)
				}
				return all
			}
			if a, b := apply(false), apply(true); !slices.Equal(a, b) {
				t.Errorf("%s, %d rows of %d: not the same bits", optimizer, spec.Rows, spec.Cols)
			}
		}
	}
}

// TestBeside: a few small sections travel in the head of the message whose payload is a large one's cells, where they lie, in either order
// and both ways; more make a message of their own.
func TestBeside(t *testing.T) {
	for _, size := range []int{inPlace, apartFrom} {
		testBeside(t, size)
	}
}

func testBeside(t *testing.T, size int) {
	cells := make([]float32, size/4)
	for i := range cells {
		cells[i] = float32(i)
	}
	large := section{table: 1, form: formRange, row: 3, part: 1, n: len(cells), cells: raw.Bytes(cells)}
	few := func(k int64) section {
		return section{table: 2, form: formCells, rows: []int64{k}, ends: []int64{2}, cols: []int64{1, 5}, n: 2, cells: raw.Bytes([]int64{k, -k})}
	}
	for _, c := range []struct {
		name   string
		secs   []section
		pieces int
	}{
		{"before", []section{few(1), large}, 1},
		{"after", []section{large, few(1), few(2)}, 1},
		{"around", []section{few(1), large, few(2), few(3), few(4)}, 1},
		{"too many", []section{large, few(1), few(2), few(3), few(4), few(5)}, 2},
		{"two large ones", []section{few(1), large, few(2), large}, 2},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.name, size), func(t *testing.T) {
			state, err := NewClientState(Placement{Directory: dirName(), Servers: []Name{serverName(0)}, Clients: []Name{clientName(0)}}, clientName(0), nil, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var up laneBatch
			var down []protocol.Body
			answer := packer{full: func(v *values) { v.id = 7; down = append(down, v) }}
			for _, s := range c.secs {
				h := new(hold)
				if s.form != formRange {
					h = nil
				}
				state.pack(&up, state.lanes[0], s, h)
				answer.add(s, h)
			}
			answer.flush()
			var all []protocol.Body
			for _, b := range up.pieces {
				all = append(all, b)
			}
			if len(all) != c.pieces || len(down) != c.pieces {
				t.Errorf("%d pieces up, %d down, want %d", len(all), len(down), c.pieces)
			}
			for _, way := range [][]protocol.Body{all, down} {
				var got []section
				for _, b := range way {
					var x parcels
					p := x.encode(b)
					if len(p.payload) >= inPlace && &p.payload[0] != &large.cells[0] {
						t.Error("the large section's cells were copied")
					}
					if v, ok := b.(*values); ok && len(p.payload) >= inPlace && (p.key == v.key()) != (size >= apartFrom) {
						t.Errorf("%d bytes: key %v", size, p.key)
					}
					head := slices.Clone(p.head)
					m, err := decode(p.kind, head, p.payload, nil)
					clear(head) // as its reader's memory is used again
					if err != nil {
						t.Fatal(err)
					}
					switch m := m.(type) {
					case *batch:
						got = append(got, m.secs...)
					case *values:
						got = append(got, m.secs...)
					}
				}
				if len(got) != len(c.secs) {
					t.Fatalf("%d sections, want %d", len(got), len(c.secs))
				}
				for i, s := range got {
					w := c.secs[i]
					if s.table != w.table || s.row != w.row || s.part != w.part || !slices.Equal(s.rows, w.rows) && !s.listed || !slices.Equal(s.cols, w.cols) && !s.listed || !slices.Equal(s.cells, w.cells) {
						t.Errorf("section %d: %+v, want %+v", i, s.table, w.table)
					}
				}
			}
		})
	}
}
