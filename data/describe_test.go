package data

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

func describe(t *testing.T, d trivium.Data) *Description {
	t.Helper()
	out, err := Describe(context.Background(), d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDescribeTable(t *testing.T) {
	path := write(t, t.TempDir(), "people.csv", []byte(strings.Join([]string{
		"age,job,label", "30,smith,0", "40,baker,1", ",smith,1", "x,smith,1", "50,,0", "60,smith", "70,baker,0", "NaN,baker,0",
	}, "\n")))
	d := describe(t, trivium.Data{Source: path})
	if d.Rows != 8 || fmt.Sprint(d.Shape) != "[2]" || d.Label != "label" {
		t.Errorf("%d rows of %v, label %q", d.Rows, d.Shape, d.Label)
	}
	age, job := d.Columns[0], d.Columns[1]
	if age.Kind != "number" || age.Count != 5 || age.Min != 30 || age.Max != 70 || age.Mean != 50 || age.Missing != 2 || age.Mistaken != 1 {
		t.Errorf("age: %+v", age)
	}
	if job.Kind != "text" || job.Distinct != 2 || job.Missing != 1 || job.Mistaken != 0 {
		t.Errorf("job: %+v", job)
	}
	if d.Incomplete != 3 || d.Mistaken != 2 {
		t.Errorf("%d rows are incomplete, want those of lines 4, 6 and 9; %d are mistaken, want those of lines 5 and 7", d.Incomplete, d.Mistaken)
	}
	if got := fmt.Sprint(d.Balance); got != "[{0 4} {1 3}]" {
		t.Errorf("balance %s", got)
	}
	var lines []string // not that of NaN, which counts as missing wherever an empty cell does
	for _, p := range d.Problems {
		lines = append(lines, fmt.Sprint(p.Line))
	}
	if got := strings.Join(lines, " "); got != "5 7" || d.ProblemCount != 2 {
		t.Errorf("problems in lines %s (%d): %v", got, d.ProblemCount, d.Problems)
	}
}

// TestDescribeMistakenApart: a cell with a mistake in it, or that is not there, is not missing, in any format: --missing helps nobody there.
func TestDescribeMistakenApart(t *testing.T) {
	type row struct {
		A     *float64 `parquet:"a,optional"`
		Label int32    `parquet:"label"`
	}
	number := func(v float64) *float64 { return &v }
	for name, file := range map[string][]byte{
		"a.csv":     []byte("a,label\n1,0\n-,1\n1e39,0\n,1\n2,0\n3,1\n"),
		"a.jsonl":   []byte(`{"a":1,"label":0}` + "\n" + `{"a":[5],"label":1}` + "\n" + `{"a":"x","label":0}` + "\n" + `{"label":1}` + "\n" + `{"a":2,"label":0}` + "\n"),
		"a.parquet": parquetBytes(t, []row{{number(1), 0}, {number(math.Inf(1)), 1}, {number(1e39), 0}, {nil, 1}, {number(2), 0}}),
		"a.npy":     npyFile("<f4", "5, 2", float32s(1, 0, float32(math.Inf(1)), 1, float32(math.Inf(-1)), 0, nan, 1, 2, 0)),
	} {
		d := describe(t, trivium.Data{Source: write(t, t.TempDir(), name, file), Label: "-1"})
		a := d.Columns[0]
		if a.Missing != 1 || a.Mistaken != 2 || d.Incomplete != 1 || d.Mistaken != 2 || d.ProblemCount != 2 {
			t.Errorf("%s: %d cells are missing in %d rows, %d mistaken in %d, want 1 and 2 (%v)", name, a.Missing, d.Incomplete, a.Mistaken, d.Mistaken, d.Problems)
		}
	}
}

// TestDescribeOthers: mistakes in a folder's files of other splits are found as training would, with the columns, categories and classes of the
// training file; the figures are that file's.
func TestDescribeOthers(t *testing.T) {
	npz := func(values ...float32) []byte {
		return npyFile("<f4", fmt.Sprintf("%d, 2", len(values)/2), float32s(values...))
	}
	for name, c := range map[string]struct {
		train, test []byte
		missing     string
		want        []string // in the mistakes
		note        string
	}{
		"a.csv": {
			[]byte("a,city,label\n1,Oslo,yes\n2,Rome,no\n"), []byte("city,label,a\nOslo,yes,x\nParis,no,\nRome,maybe,3\nRome,no,4,5\n"), "",
			[]string{`line 2, column "a": want a number, as in training, found "x"`, `line 4, column "label": label "maybe" is outside the 2 classes`, "line 5: want 3 fields"},
			"test-a.csv: cells are missing in 1 of 4 rows",
		},
		"b.csv": {
			[]byte("a,label\n1,yes\n,odd\n2,no\n"), []byte("a,label\n,odd\n1,yes\n3,odd\n"), "drop",
			[]string{`line 4, column "label": label "odd" is outside the 2 classes`},
			"test-b.csv: cells are missing in 1 of 3 rows",
		},
		"c.csv":    {[]byte("a,label\n1,0\n2,1\n"), []byte("a,label\n1,7\n2,1\n3,8\n"), "", []string{"line 2, column \"label\": label 7 is outside", "line 4, column"}, ""},
		"d.csv":    {[]byte("a,label\n1,0\n2,1\n"), []byte("b,label\n1,0\n"), "", []string{`column "a" is missing, which the model needs`}, ""},
		"e.csv":    {[]byte("a,label\n1,0\n2,1\n"), []byte("label,a\n1,0\n0,1\n"), "", nil, ""},
		"f.csv":    {[]byte("a,label\n1,0\nx,1\n2,1\n"), []byte("a,label\ny,0\n"), "", []string{`line 3, column "a"`}, "nothing can be trained on"},
		"g.libsvm": {[]byte("+1 1:2\n-1 3:1\n"), []byte("+1 5:1\n-1 2:x\n"), "", []string{"line 2: index 2: want a number"}, ""},
		"h.npy":    {npz(1, 0, 2, 1), npz(float32(math.Inf(1)), 0, 2, 3), "", []string{"row 0", "row 1"}, ""},
	} {
		dir := t.TempDir()
		write(t, dir, "train-"+name, c.train)
		write(t, dir, "test-"+name, c.test)
		d := trivium.Data{Source: dir, Missing: c.missing}
		if strings.HasSuffix(name, ".npy") {
			d.Label = "-1"
		}
		found := describe(t, d)
		if int(found.ProblemCount) != len(c.want) || len(found.Problems) != len(c.want) || !strings.Contains(fmt.Sprint(found.Notes), c.note) || c.note == "" && len(found.Notes) > 0 {
			t.Errorf("%s: %d mistakes, notes %q: %v", name, found.ProblemCount, found.Notes, found.Problems)
			continue
		}
		for i, want := range c.want {
			if got := found.Problems[i].Error(); !strings.Contains(got, want) {
				t.Errorf("%s: mistake %q, want %q", name, got, want)
			}
		}
	}
}

// TestDescribeText: of columns of text it is said what training wants to be told of them, unless it is told already.
func TestDescribeText(t *testing.T) {
	path := write(t, t.TempDir(), "a.csv", []byte("when,first city,n,note,label\n2024-05-04,Oslo,1,x,yes\n2024-05-05,Rome,2,y,no\n"))
	for _, c := range []struct {
		d    trivium.Data
		want string // of the flags' lists
	}{
		{trivium.Data{}, "when,'first city',note"},
		{trivium.Data{Categorical: []string{"1"}, Drop: []string{"when"}}, "note"},
		{trivium.Data{Categorical: []string{"first city"}, Drop: []string{"when", "-2"}}, ""},
	} {
		c.d.Source = path
		d := describe(t, c.d)
		var want []string
		if c.want != "" {
			want = []string{"training stops at text where it wants numbers: --categorical " + c.want + " takes the columns as names, --drop " + c.want + " leaves them out"}
		}
		if !slices.Equal(d.Notes, want) || d.ProblemCount > 0 || d.Columns[1].Kind != "text" || d.Columns[1].Distinct != 2 {
			t.Errorf("%+v: notes %q, want %q; %+v", c.d, d.Notes, want, d.Columns)
		}
	}
}

// TestDescribeEmpty: columns that are empty in every row, as a spreadsheet leaves them at the end, are named for --drop; --missing helps nobody there.
func TestDescribeEmpty(t *testing.T) {
	for text, want := range map[string][]string{
		"a,label,,\n1,0,,\n2,1,,\n":  {"no row has a value in some columns: --drop 2,3 leaves them out"},
		"a,label,,\n1,0,,\n2,1,5,\n": {"no row has a value in some columns: --drop 3 leaves them out"},
		"a,b,label\n1,,0\n,2,1\n":    nil,
		"a,label\n1e99,0\n1e99,1\n":  nil, // mistakes are no empty cells
	} {
		if d := describe(t, trivium.Data{Source: write(t, t.TempDir(), "a.csv", []byte(text))}); !slices.Equal(d.Notes, want) {
			t.Errorf("%q: notes %q, want %q", text, d.Notes, want)
		}
	}
}

// TestDescribeAllMistakes: a row that cannot be read hides no mistake in another, however early it comes.
func TestDescribeAllMistakes(t *testing.T) {
	for name, lines := range map[string][]string{
		"a.jsonl": {`{"label":0,"a":1}`, `{"label":1,"a":2,"a":3}`, `{"label":0,"a":[3]}`, `hello`, `{"label":1,"a":4}`, `{"label":0,"a":"x"}`},
		"a.csv":   {"label,a", `0,"1"2`, `1,"2"3`, `0,"3"4`, "1,4", "0,x"},
	} {
		d := describe(t, trivium.Data{Source: write(t, t.TempDir(), name, []byte(strings.Join(lines, "\n")))})
		seen := map[int64]bool{}
		for _, p := range d.Problems {
			seen[p.Line] = true
		}
		for _, line := range []int64{2, 3, 4, 6} {
			if !seen[line] {
				t.Errorf("%s: no mistake is found in line %d of %v", name, line, d.Problems)
			}
		}
	}
}

// TestDescribeLostDigits: float32 holds no whole number of many digits, and a look at the data says so.
func TestDescribeLostDigits(t *testing.T) {
	text := "id,n,label\n16777216,1.5,16777217\n123456789,123456789,0\n-16777217,2,1\n33554432,3e30,0\n"
	type row struct {
		Label int32 `parquet:"label"`
		ID    int64 `parquet:"id"`
	}
	for name, c := range map[string]struct {
		file []byte
		want []string
	}{
		"a.csv": {[]byte(text), []string{
			`column "id": whole numbers of more digits than a number's 32 bits hold, in 2 of 4 rows: -16777217 is read as -16777216, for one; if they ` +
				`name things, list it with --categorical id, or leave it out with --drop id`,
			`column "n": whole numbers of more digits than a number's 32 bits hold, in 1 of 4 rows: 123456789 is read as 123456792, for one; if they ` +
				`name things, list it with --categorical n, or leave it out with --drop n`,
			`column "label": whole numbers of more digits than a number's 32 bits hold, in 1 of 4 rows: 16777217 is read as 16777216, for one`,
		}},
		"a.parquet": {parquetBytes(t, []row{{0, 1}, {1, 1 << 60}, {0, 1<<60 + 1<<20}}), []string{
			`column "id": whole numbers of more digits than a number's 32 bits hold, in 1 of 3 rows: 1152921504607895552 is read as 1152921504606846976, ` +
				`for one; if they name things, list it with --categorical id, or leave it out with --drop id`,
		}},
	} {
		if got := describe(t, trivium.Data{Source: write(t, t.TempDir(), name, c.file)}).Notes; !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDescribeSparse(t *testing.T) {
	path := write(t, t.TempDir(), "s.libsvm.gz", []byte("+1 1:2 3:4\n-1 3:1 2:9\n-1 0:1\n+1 5:6 # good\n"))
	d := describe(t, trivium.Data{Source: path})
	if d.Rows != 4 || fmt.Sprint(d.Shape) != "[5]" || len(d.Problems) != 2 || d.Problems[0].Line != 2 || d.Problems[1].Line != 3 {
		t.Errorf("%+v", d)
	}
	if got := fmt.Sprint(d.Balance); got != "[{-1 2} {1 2}]" {
		t.Errorf("balance %s", got)
	}
	if got := d.Columns[0]; got.Name != "1" || got.Count != 1 || got.Mean != 2 {
		t.Errorf("column 1: %+v", got)
	}
}

func TestDescribeArraysAndGenerated(t *testing.T) {
	dir := t.TempDir()
	mnistFolder(t, dir, "t10k", "", 100)
	d := describe(t, trivium.Data{Source: dir})
	if d.Rows != 100 || fmt.Sprint(d.Shape) != "[2 3]" || d.Balance[3].Rows != 10 || d.Columns[0].Max != 104 {
		t.Errorf("%+v", d)
	}
	d = describe(t, trivium.Data{Source: "adult", Rows: 1000})
	if d.Rows != 1250 || d.Nonzero != 1250*14 || len(d.Balance) != 2 || !strings.Contains(d.Notes[0], "generated") {
		t.Errorf("%+v", d)
	}
	if got, want := d.Sparsity(), 1-14.0/123; got != want {
		t.Errorf("sparsity %v, want %v", got, want)
	}
}

// TestDescribeRagged: of ragged rows each number is counted once, in however many batches they are read, and ids are no numbers.
func TestDescribeRagged(t *testing.T) {
	const rows = 3 * blockRows
	words := trivium.Input{Name: "words", Form: trivium.Ragged, Shape: []int{2}, Ptr: []int64{0}}
	for i := range rows { // of 0 to 2 elements, each (0, i)
		for range i % 3 {
			words.Values = append(words.Values, 0, float32(i))
		}
		words.Ptr = append(words.Ptr, int64(len(words.Values)/2))
	}
	ids := trivium.Input{Name: "ids", Form: trivium.Ragged, Index: make([]int32, len(words.Values)/2), Ptr: words.Ptr}
	both := words
	both.Index = ids.Index
	for _, c := range []struct {
		in    trivium.Input
		cells int64
		max   float64
	}{{words, 2 * rows, rows - 1}, {both, 2 * rows, rows - 1}, {ids, 0, 0}} {
		schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: c.in.Name, Form: c.in.Form, Shape: c.in.Shape}}}
		ds := Memory(schema, trivium.Batch{Rows: rows, Inputs: []trivium.Input{c.in}})
		own := Sources{"mine": func(context.Context, trivium.Data) (*Splits, error) { return &Splits{Train: ds}, nil }}
		d, err := Describe(t.Context(), trivium.Data{Source: "mine"}, Options{Sources: own})
		if err != nil {
			t.Fatal(err)
		}
		if x := d.Columns[0]; d.Cells != c.cells || d.Nonzero != c.cells/2 || x.Count != c.cells || x.Max != c.max || d.Sparsity() != float64(min(c.cells, 1))/2 {
			t.Errorf("%s: %d cells, %d of them not 0, %.3f of them 0; %+v", c.in.Name, d.Cells, d.Nonzero, d.Sparsity(), x)
		}
	}
}

// TestDescribeDrop: the classes of a table are those that its model would have: where --missing drop leaves rows out, those of the rows that stay.
func TestDescribeDrop(t *testing.T) {
	for want, text := range map[string]string{
		"[{big 2} {small 1}]": "label,a\nbig,1\nodd,\nsmall,2\nbig,3\n",
		"[{3 2} {5 1}]":       "label,a\n3,1\n7,\n5,2\n3,3\n",
	} {
		path := write(t, t.TempDir(), "a.csv", []byte(text))
		d := describe(t, trivium.Data{Source: path, Label: "label", Missing: "drop"})
		if got := fmt.Sprint(d.Balance); got != want || len(d.Labels.Names) != 2 || d.Labels.Width != 2 || d.Incomplete != 1 {
			t.Errorf("balance %s, labels %+v, %d rows incomplete, want %s", got, d.Labels, d.Incomplete, want)
		}
		if d := describe(t, trivium.Data{Source: path, Label: "label"}); len(d.Balance) != 3 {
			t.Errorf("where none is dropped: balance %v", d.Balance)
		}
	}
}

// TestDescribeClassWeights: what training would stop at in weights of classes is a mistake here too, of tables, of sparse rows and of arrays.
func TestDescribeClassWeights(t *testing.T) {
	dir := t.TempDir()
	names := write(t, dir, "names.csv", []byte("a,label\n1,yes\n2,no\n3,yes\n"))
	numbers := write(t, dir, "numbers.libsvm", []byte("-1 1:1\n+1 2:1\n"))
	real := write(t, dir, "real.csv", []byte("a,label\n1,0.5\n2,1.5\n"))
	bare := write(t, dir, "bare.libsvm", []byte("1:1\n2:1\n"))
	for _, c := range []struct{ source, weights, want string }{
		{names, "yes=2", ""},
		{names, "balanced", ""},
		{names, "yes=2,nay=1", `there is no class "nay"; the classes are no, yes`},
		{names, "yes=-2", "a weight of 0 or more"},
		{names, "yes=0", ""},
		{names, "yes=0,no=0", "weigh 0"},
		{numbers, "-1=2,+1=3", ""},
		{numbers, "0=2", `there is no class "0"; the classes are -1, 1`},
		{real, "0.5=2", "the labels are real, not classes"},
		{bare, "1=2", "the labels are none, not classes"},
	} {
		d := describe(t, trivium.Data{Source: c.source, ClassWeight: c.weights})
		if c.want == "" && d.ProblemCount == 0 {
			continue
		}
		if d.ProblemCount != 1 || c.want == "" || d.Problems[0].Field != "class_weight" || !strings.Contains(d.Problems[0].Error(), c.want) {
			t.Errorf("%s: %q: %v, want %q", c.source, c.weights, d.Problems, c.want)
		}
	}
}

// TestDescribeUseless: settings that training would refuse of such a file are mistakes here too, and not passed over.
func TestDescribeUseless(t *testing.T) {
	dir := t.TempDir()
	table := write(t, dir, "a.csv", []byte("a,label\n1,yes\n2,no\n3,yes\n"))
	sparse := write(t, dir, "a.libsvm", []byte("0 1:1\n1 2:1\n"))
	array := t.TempDir()
	write(t, array, "x.npy", npyFile("<f4", "2, 3", float32s(1, 2, 3, 4, 5, 6)))
	write(t, array, "y.npy", npyFile("|u1", "2,", []byte{1, 0}))
	for _, c := range []struct {
		source string
		d      trivium.Data
		want   string // of the fields of the mistakes
	}{
		{table, trivium.Data{Label: "label", Drop: []string{"a"}, Missing: "mean", Scale: "standard", Categorical: []string{"label"}}, ""},
		{table, trivium.Data{Rows: 5, Columns: 3, Hash: 8}, "rows columns hash"},
		{table, trivium.Data{Classes: 2}, ""},
		{sparse, trivium.Data{Columns: 3, Classes: 2, Missing: "error", Scale: "none"}, ""},
		{sparse, trivium.Data{Rows: 5, Label: "0", Drop: []string{"a"}, Weight: "w", Scale: "minmax"}, "rows scale label drop weight"},
		{array, trivium.Data{}, ""},
		{array, trivium.Data{Columns: 3, Categorical: []string{"a"}, Missing: "zero", Scale: "minmax"}, "columns scale categorical missing"},
	} {
		c.d.Source = c.source
		var fields []string
		d := describe(t, c.d)
		for _, p := range d.Problems {
			fields = append(fields, p.Field)
		}
		if got := strings.Join(fields, " "); got != c.want || d.ProblemCount != int64(len(fields)) {
			t.Errorf("%+v: mistakes in %q (%v), want %q", c.d, got, d.Problems, c.want)
		}
	}
	if d := describe(t, trivium.Data{Source: table, Classes: 3}); d.ProblemCount != 1 || !strings.Contains(d.Problems[0].Msg, "3 classes are declared, and the labels have 2 values: no, yes") {
		t.Errorf("%v", d.Problems)
	}
}
