package trivium_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"pgregory.net/rapid"
)

func layout(t testing.TB, specs ...trivium.Spec) *trivium.Layout {
	t.Helper()
	l, err := trivium.NewLayout(specs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLayoutPlacesTensorsInOrder(t *testing.T) {
	l := layout(t,
		trivium.Spec{Name: "w", Shape: []int{2, 3}, Decay: 1},
		trivium.Spec{Name: "b", Shape: []int{3}, Rate: 2},
		trivium.Spec{Name: "again", Shape: []int{2, 3}, Tie: "w"},
		trivium.Spec{Name: "scale"},
	)
	if l.Len() != 10 || l.Tensors() != 4 {
		t.Fatalf("%d cells in %d tensors, want 10 in 4: a tied tensor has none of its own", l.Len(), l.Tensors())
	}
	for i, want := range [][4]int{{0, 6, 2, 3}, {6, 9, 3, 1}, {0, 6, 2, 3}, {9, 10, 1, 1}} {
		from, to := l.Range(i)
		if got := [4]int{from, to, l.Rows(i), l.Cols(i)}; got != want {
			t.Errorf("tensor %d: from, to, rows, columns %v, want %v", i, got, want)
		}
	}
	if l.Spec(0).Rate != 1 || l.Spec(1).Rate != 2 || l.Index("b") != 1 || l.Index("q") != -1 {
		t.Errorf("rates %v and %v, want 1 (the zero value's meaning) and 2; b is %d", l.Spec(0).Rate, l.Spec(1).Rate, l.Index("b"))
	}
	for cell, want := range map[int]int{0: 0, 5: 0, 6: 1, 8: 1, 9: 3, 10: -1} {
		if got := l.At(cell); got != want {
			t.Errorf("cell %d belongs to tensor %d, want %d", cell, got, want)
		}
	}
	p := trivium.NewParams(l)
	p.Tensor(2)[4] = 7
	if p.Tensor(0)[4] != 7 {
		t.Error("tied tensors do not share their cells")
	}
}

func TestLayoutNamesEveryMistake(t *testing.T) {
	_, err := trivium.NewLayout(
		trivium.Spec{Name: "w", Shape: []int{2, 0}},
		trivium.Spec{Shape: []int{1}},
		trivium.Spec{Name: "a", Shape: []int{2}},
		trivium.Spec{Name: "a", Shape: []int{2}},
		trivium.Spec{Name: "t", Shape: []int{3}, Tie: "a"},
		trivium.Spec{Name: "u", Tie: "nothing"},
		trivium.Spec{Name: "huge", Shape: []int{math.MaxInt32, math.MaxInt32, 8}},
		trivium.Spec{Name: "s", RowSparse: true},
	)
	for _, want := range []string{
		`tensor 0, "w": shape [2 0]`, "tensor 1", "has no name", `tensor 3, "a": the name is taken`, `is tied to "a" of shape [2]`,
		`is tied to "nothing"`, `"huge"`, "row-sparse wants",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func TestLayoutHash(t *testing.T) {
	base := trivium.Spec{Name: "w", Shape: []int{2, 3}}
	seen := map[string]string{}
	for name, change := range map[string]func(*trivium.Spec){
		"as it is": func(*trivium.Spec) {}, "name": func(s *trivium.Spec) { s.Name = "v" }, "shape": func(s *trivium.Spec) { s.Shape = []int{3, 2} },
		"buffer": func(s *trivium.Spec) { s.Buffer = true }, "decay": func(s *trivium.Spec) { s.Decay = 1 },
		"rate": func(s *trivium.Spec) { s.Rate = 2 }, "sparse": func(s *trivium.Spec) { s.RowSparse = true },
	} {
		s := base
		change(&s)
		h := layout(t, s).Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("%q and %q have the same hash", name, other)
		}
		seen[h] = name
	}
	if one := base; layout(t, base).Hash() != layout(t, one).Hash() {
		t.Error("equal layouts have different hashes")
	}
}

// TestTouchZeroes: the rows that are touched are zero then, and no other cell is written, of rows of any width.
func TestTouchZeroes(t *testing.T) {
	const rows = 5
	for cols := 1; cols <= 17; cols++ {
		g := trivium.NewGradient(layout(t, trivium.Spec{Name: "v", Shape: []int{rows, cols}, RowSparse: true}, trivium.Spec{Name: "b", Shape: []int{16}}))
		for i := range g.Flat {
			g.Flat[i] = 1
		}
		g.Touch(0, []int32{1, 4})
		for i, x := range g.Flat {
			if r := i / cols; (x == 0) != (r == 1 || r == 4) {
				t.Fatalf("%d columns: cell %d of row %d is %v", cols, i%cols, r, x)
			}
		}
		if !slices.Equal(g.Rows[0], []int32{1, 4}) {
			t.Errorf("%d columns: rows %v", cols, g.Rows[0])
		}
	}
}

// Adding row-sparse gradients agrees with adding maps, whatever lies in the cells of rows that were not touched.
func TestAddSparseRows(t *testing.T) {
	const rows, cols = 12, 2
	l := layout(t, trivium.Spec{Name: "v", Shape: []int{rows, cols}, RowSparse: true}, trivium.Spec{Name: "b", Shape: []int{2}})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (trivium.Gradient, map[int][]float32) {
			g := trivium.NewGradient(l)
			for i := range g.Flat {
				g.Flat[i] = float32(math.NaN())
			}
			g.Tensor(1)[0], g.Tensor(1)[1] = 1, 2
			ids := rapid.SliceOfNDistinct(rapid.Int32Range(0, rows-1), 0, rows, rapid.ID[int32]).Draw(t, name)
			slices.Sort(ids)
			g.Touch(0, ids)
			want := map[int][]float32{}
			for _, r := range ids {
				v := float32(rapid.IntRange(-9, 9).Draw(t, "cell"))
				row := g.Tensor(0)[int(r)*cols : (int(r)+1)*cols]
				if row[0] != 0 || row[1] != 0 {
					t.Fatalf("Touch left %v in row %d", row, r)
				}
				row[0], row[1] = v, -v
				want[int(r)] = []float32{v, -v}
			}
			return g, want
		}
		g, want := draw("a")
		h, more := draw("b")
		for r, v := range more {
			if want[r] == nil {
				want[r] = []float32{0, 0}
			}
			want[r] = []float32{want[r][0] + v[0], want[r][1] + v[1]}
		}
		g.Add(h)
		if len(g.Rows[0]) != len(want) || !slices.IsSorted(g.Rows[0]) {
			t.Fatalf("touched rows %v, want the %d of %v, ascending", g.Rows[0], len(want), want)
		}
		c := trivium.NewGradient(l)
		c.Add(g) // to nothing: a copy
		for r, v := range want {
			if got := c.Tensor(0)[r*cols : (r+1)*cols]; !slices.Equal(got, v) {
				t.Errorf("row %d is %v, want %v", r, got, v)
			}
		}
		if !slices.Equal(c.Tensor(1), []float32{2, 4}) {
			t.Errorf("the dense tensor is %v, want 2 4", c.Tensor(1))
		}
		c.Zero()
		if len(c.Rows[0]) != 0 || c.Tensor(1)[0] != 0 {
			t.Errorf("Zero left rows %v and %v", c.Rows[0], c.Tensor(1))
		}
	})
}

// A tied tensor's cells are its owner's: they are added once.
func TestAddCountsTiedTensorsOnce(t *testing.T) {
	l := layout(t, trivium.Spec{Name: "w", Shape: []int{2}}, trivium.Spec{Name: "again", Shape: []int{2}, Tie: "w"})
	g, h := trivium.NewGradient(l), trivium.NewGradient(l)
	copy(g.Flat, []float32{1, 2})
	copy(h.Flat, []float32{10, 20})
	if g.Add(h); !slices.Equal(g.Flat, []float32{11, 22}) {
		t.Errorf("the sum is %v, want 11 22", g.Flat)
	}
}

func ExampleNewLayout() {
	l, err := trivium.NewLayout(
		trivium.Spec{Name: "w", Shape: []int{784, 10}, Decay: 1},
		trivium.Spec{Name: "b", Shape: []int{10}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := trivium.NewParams(l)
	fmt.Println(len(p.Flat), len(p.Tensor(l.Index("b"))))
	// Output: 7850 10
}

// TestLayoutFitsAnInt: each of these tensors does, and all of them do not.
func TestLayoutFitsAnInt(t *testing.T) {
	var specs []trivium.Spec
	for i := range 9 {
		specs = append(specs, trivium.Spec{Name: fmt.Sprint(i), Shape: []int{1 << 30, 1 << 30}})
	}
	if _, err := trivium.NewLayout(specs...); err == nil || !strings.Contains(err.Error(), `tensor 8, "8": shape [1073741824 1073741824]`) {
		t.Errorf("error %v", err)
	}
}
