package ps

import (
	"errors"
	"testing"

	"github.com/trivium-ml/trivium/internal/raw"
)

// TestEachKept: the state of every row is told once, with its steps, of rows in one piece, of rows that shards have parts of, and of rows found by
// their keys.
func TestEachKept(t *testing.T) {
	for _, spec := range []Spec{
		{Rows: 100, Cols: 3},
		{Rows: 3, Cols: 1000},
		{Rows: 7, Cols: 4001},
		{Rows: 1, Cols: 5000},
		{Cols: 4},
	} {
		spec.Name, spec.Optimizer = "t", "tally"
		p := Placement{Servers: []Name{serverName(0)}, ShardsEach: 4, MinShardCells: 1}.withDefaults()
		tab := newTable(&Definition{Spec: spec}, &p)
		if err := tab.equip(tallies()); err != nil {
			t.Fatal(err)
		}
		rows := spec.Rows
		if rows == 0 {
			rows = 9
		}
		shards := make([]*shard[float32], tab.cut.shards)
		for k := range shards {
			shards[k] = newShard[float32](tab, k, nil)
		}
		for row := range rows {
			for at := int64(0); at < spec.Cols; {
				k, _, to := tab.cut.segment(row, at)
				cells := make([]float32, min(to, spec.Cols)-at)
				for i := range cells {
					cells[i] = float32(1000*row + at + int64(i))
				}
				c := &section{form: formRange, row: row, from: at, n: len(cells), cells: raw.Bytes(cells)}
				for range 1 + row%3 {
					shards[k].apply(&roundPart{secs: []*section{c}})
				}
				at += int64(len(cells))
			}
		}
		told := map[[2]int64]bool{}
		for _, s := range shards {
			calls := 0
			err := s.kept(func(x Kept) error {
				if calls++; calls > 1 && s.live != nil && tab.cut.wholeRows() {
					t.Errorf("%d × %d: whole rows are told in %d pieces", spec.Rows, spec.Cols, calls)
				}
				for i := range x.Rows {
					row := x.Row + int64(i)
					if want := uint32(1 + row%3); x.Steps[i] != want {
						t.Errorf("%d × %d: row %d, columns from %d on: %d steps, want %d", spec.Rows, spec.Cols, row, x.From, x.Steps[i], want)
					}
					for j := range x.Cols {
						col := x.From + int64(j)
						want := float32(1+row%3) * float32(1000*row+col)
						if got := x.Slots[0][i*x.Cols+j]; got != want || told[[2]int64{row, col}] {
							t.Fatalf("%d × %d: row %d, column %d: state %v, want %v; told before: %v", spec.Rows, spec.Cols, row, col, got, want, told[[2]int64{row, col}])
						}
						told[[2]int64{row, col}] = true
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if int64(len(told)) != rows*spec.Cols {
			t.Errorf("%d × %d: %d cells are told, want %d", spec.Rows, spec.Cols, len(told), rows*spec.Cols)
		}
		stop := errors.New("enough")
		if err := shards[0].kept(func(Kept) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%d × %d: %v", spec.Rows, spec.Cols, err)
		}
	}
}
