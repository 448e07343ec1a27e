package data

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

func TestCSVSyntax(t *testing.T) {
	s := table(t, trivium.Data{Categorical: []string{"name, full"}, Train: ":"}, Options{},
		"\xef\xbb\xbflabel;\"name, full\";\"a\"\"b\" \r", `1; "x;1" ;3.5`, "", `0;"two`, `lines"; -4e-1`)
	if got := s.Transform.Columns; got[0].Name != "name, full" || fmt.Sprintf("%q", got[0].Categories) != `["two\nlines" "x;1"]` || got[1].Name != `a"b` {
		t.Errorf("columns %+v", got)
	}
	if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values, got.Labels.Class) != "[0 1 3.5 1 0 -0.4] [1 0]" {
		t.Errorf("%v %v", got.Inputs[0].Values, got.Labels.Class)
	}
	s = table(t, trivium.Data{Train: ":", Label: "-1"}, Options{}, "1\t2\t0", "3\t4\t1")
	if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values, got.Labels.Class) != "[1 2 3 4] [0 1]" {
		t.Errorf("without header, tabs, last column as label: %v %v", got.Inputs[0].Values, got.Labels.Class)
	}
}

// TestRowOfEmptyCells: a line of delimiters alone is a row whose cells are all empty, also where the delimiter is a tab. Passed over, it would give
// the rows behind it other numbers.
func TestRowOfEmptyCells(t *testing.T) {
	tr := table(t, trivium.Data{Label: "c", Missing: "zero", Train: ":"}, Options{}, "a,b,c", "1,2,3").Transform
	for _, delimiter := range []string{",", ";", "\t"} {
		for _, budget := range []int64{0, 1} {
			text := strings.ReplaceAll("a,b,c\n1,2,3\n,,\r\n\n \r\n4,5,6\n,,", ",", delimiter)
			s, err := openText(t, "a.tsv", text, trivium.Data{Train: ":"}, Options{Budget: budget, Transform: tr, Unlabelled: true})
			if err != nil {
				t.Errorf("delimiter %q: %v", delimiter, err)
				continue
			}
			if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values) != "[1 2 0 0 4 5 0 0]" {
				t.Errorf("delimiter %q: %v", delimiter, got.Inputs[0].Values)
			}
		}
	}
}

// TestNaNAmongNames: NaN in a column of names is a cell without a value, as it is in one of numbers, and as it is where the file is no text. It
// is no category, and among labels no class.
func TestNaNAmongNames(t *testing.T) {
	lines := []string{"label,city,n", "yes,a,1", "no,nan,2", "yes,b,NaN", "nan,b,3", "no,NaN,4", "no,a,5"}
	d := trivium.Data{Categorical: []string{"city"}, Missing: "drop", Train: ":"}
	s := table(t, d, Options{}, lines...)
	if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values, got.Labels.Class, s.Schema().Labels.Names, s.Transform.Columns[0].Categories) != "[1 1 1 5] [1 0] [no yes] [a]" {
		t.Errorf("%v %v, labels %q, columns %+v", got.Inputs[0].Values, got.Labels.Class, s.Schema().Labels.Names, s.Transform.Columns)
	}
	_, err := openText(t, "a.csv", strings.Join(lines[:3], "\n"), trivium.Data{Categorical: []string{"city"}, Train: ":"}, Options{})
	if err == nil || !strings.Contains(err.Error(), `line 3, column "city": the value is missing`) {
		t.Errorf("where none may be missing: %v", err)
	}
}

// TestDelimiterInName: what is quoted in the first line is no sign of the delimiter.
func TestDelimiterInName(t *testing.T) {
	s := table(t, trivium.Data{Train: ":"}, Options{}, `label,"size (S; M; L; XL)",b`, "0,1,2", "1,3,4")
	if got := read(t, s.Train); s.Transform.Columns[0].Name != "size (S; M; L; XL)" || fmt.Sprint(got.Inputs[0].Values) != "[1 2 3 4]" {
		t.Errorf("columns %+v, rows %v", s.Transform.Columns, got.Inputs[0].Values)
	}
}

// TestDelimiterInPlainName: what the rows have as often as the first line is the delimiter, also where names hold others as often, or more.
func TestDelimiterInPlainName(t *testing.T) {
	for _, lines := range [][]string{
		{"label;a,x;b,y", "0;1;2", "1;3;4"},
		{"label;a,x,y;b,z", "0;1;2", "1;3;4"},
		{"label\ta,x\tb,y;z,w", "0\t1\t2", "1\t3\t4"},
		{"label,a,b", "0,1,2,", "1,3,4", "1,3,4"}, // a mistake in a row is one of the row
	} {
		text := strings.Join(lines, "\n")
		s, err := openText(t, "a.csv", text, trivium.Data{Train: ":"}, Options{})
		if strings.HasSuffix(lines[1], ",") {
			if err == nil || !strings.Contains(err.Error(), "line 2: want 3 fields, as in the first line, found 4") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values, got.Labels.Class) != "[1 2 3 4] [0 1]" {
			t.Errorf("%q: rows %v of %v", text, got.Inputs[0].Values, got.Labels.Class)
		}
	}
}

// TestNamesLikeNumbers: nan and inf, which are numbers among numbers, are names in a first line of names.
func TestNamesLikeNumbers(t *testing.T) {
	s := table(t, trivium.Data{Train: ":"}, Options{}, "label,nan,Inf,infinity", "0,1,2,3", "1,4,5,6")
	if got := read(t, s.Train); s.Transform.Columns[0].Name != "nan" || fmt.Sprint(got.Inputs[0].Values) != "[1 2 3 4 5 6]" {
		t.Errorf("columns %+v, rows %v", s.Transform.Columns, got.Inputs[0].Values)
	}
	s = table(t, trivium.Data{Train: ":", Missing: "zero"}, Options{}, "0,nan", "1,4")
	if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values) != "[0 4]" {
		t.Errorf("a first row with a number: rows %v", got.Inputs[0].Values)
	}
}

// TestNumbersInFirstLine: numbers that count up from 0 are the names that pandas gives columns without, and so is the line that has them none of the
// rows. Other numbers make it one, and who misses a name is told so.
func TestNumbersInFirstLine(t *testing.T) {
	for head, names := range map[string][]string{
		"0,1,2,label": {"0", "1", "2"}, ",0,1,2,label": {"0", "1", "2"}, "0,1,2,": {"0", "1", "2"}, "0,1,2,3": {"0", "1", "2"},
		"a,0,1,2,label": {"a", "0", "1", "2"},
	} {
		row := strings.Repeat("5,", strings.Count(head, ",")) + "yes"
		d := trivium.Data{Label: "-1", Train: ":"}
		s := table(t, d, Options{}, head, row, row)
		var got []string
		for _, c := range s.Transform.Columns {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, names) || s.Train.Rows() != 2 || !slices.Equal(s.Schema().Labels.Names, []string{"yes"}) {
			t.Errorf("%q: columns %q of %d rows, labels %q", head, got, s.Train.Rows(), s.Schema().Labels.Names)
		}
		text := strings.Join([]string{head, row, row}, "\n")
		notes := describe(t, trivium.Data{Source: write(t, t.TempDir(), "a.csv", []byte(text)), Label: "-1"}).Notes
		if !slices.ContainsFunc(notes, func(note string) bool { return strings.HasPrefix(note, "the first line is no row: 0, 1, 2, …") }) {
			t.Errorf("%q: nothing says that this line is no row: %q", head, notes)
		}
	}
	for head, number := range map[string]string{"0,1,label": "0", "2019,2020,2021,label": "2019", "1,2,3,label": "1", "0,1,3,label": "0"} {
		row := strings.Repeat("5,", strings.Count(head, ",")) + "yes"
		text := strings.Join([]string{head, row, row}, "\n")
		_, err := openText(t, "a.csv", text, trivium.Data{Label: "label", Train: ":"}, Options{})
		want := "the first line is a row, since " + number + " in it is a number"
		if err == nil || !strings.Contains(err.Error(), `no column "label"`) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", head, err)
		}
		_, err = openText(t, "a.csv", strings.Replace(text, "label", "0", 1), trivium.Data{Label: "1", Train: ":"}, Options{})
		if err == nil || strings.Contains(err.Error(), want) {
			t.Errorf("%q, and a mistake behind it: %v", head, err)
		}
		_, err = openText(t, "a.csv", strings.ReplaceAll(text, "yes", "5"), trivium.Data{Label: "0", Train: ":"}, Options{})
		if err == nil || !strings.Contains(err.Error(), `line 1`) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q, and numbers below it: %v", head, err)
		}
		d := describe(t, trivium.Data{Source: write(t, t.TempDir(), "a.csv", []byte(text)), Label: "-1"})
		if d.Rows != 3 || len(d.Notes) != 1 || !strings.HasPrefix(d.Notes[0], want) {
			t.Errorf("%q: %d rows, notes %q", head, d.Rows, d.Notes)
		}
	}
}

// TestQuoteInField: a double quote opens a field only where that begins. Elsewhere it is a character of the field, and no end of a line is lost
// to it.
func TestQuoteInField(t *testing.T) {
	for _, budget := range []int64{0, 1} {
		s := table(t, trivium.Data{Categorical: []string{`size"`}, Train: ":"}, Options{Budget: budget},
			`label,size",b`, `0,6" pipe,1`, `1,"7"" pipe, ""x""",2`, `0,8",3`, `1, "a`, `b" ,4`, `0,9",5`)
		if got, want := fmt.Sprintf("%q", s.Transform.Columns[0].Categories), `["6\" pipe" "7\" pipe, \"x\"" "8\"" "9\"" "a\nb"]`; got != want {
			t.Errorf("budget %d: categories %s, want %s", budget, got, want)
		}
		b := read(t, s.Train)
		if b.Rows != 5 || len(b.Inputs[0].Values) != 30 {
			t.Fatalf("budget %d: %d rows of %d numbers in all", budget, b.Rows, len(b.Inputs[0].Values))
		}
		for r := range b.Rows {
			if got := b.Inputs[0].Values[6*r+5]; got != float32(r+1) {
				t.Errorf("budget %d: row %d ends with %v", budget, r, got)
			}
		}
	}
	_, err := openText(t, "a.tsv", "label\ttall\"\ta\n0\t5'10\"\t1\n1\t6'\tred\n", trivium.Data{Categorical: []string{`tall"`}, Train: ":"}, Options{})
	if err == nil || !strings.Contains(err.Error(), `line 3, column "a"`) {
		t.Errorf("a mistake behind a line with a quote: %v", err)
	}
}

// TestUnnamedColumns: columns that the first line gives no name are told apart, and have one that the inputs of an exported model can have.
func TestUnnamedColumns(t *testing.T) {
	s := table(t, trivium.Data{Label: "y", Train: ":"}, Options{}, "a,,y,", "1.5,5,0,7", "2.5,6,1,8")
	var names []string
	for _, c := range s.Transform.Columns {
		names = append(names, c.Name)
	}
	if got := read(t, s.Train); !slices.Equal(names, []string{"a", "1", "3"}) || fmt.Sprint(got.Inputs[0].Values) != "[1.5 5 7 2.5 6 8]" {
		t.Errorf("columns %q, rows %v", names, got.Inputs[0].Values)
	}
	if len(s.Notes) > 0 {
		t.Errorf("notes %q", s.Notes)
	}
}

// TestRowNames: the names of rows that pandas and R write before the first column are learnt from only where they are asked for by the column's
// name, and it is said that they are not.
func TestRowNames(t *testing.T) {
	values := func(s *Splits) string {
		return fmt.Sprint(read(t, s.Train).Inputs[0].Values, read(t, s.Train).Labels.Class)
	}
	for head, note := range map[string]string{`"",a,y`: `column "0" of `, ",a,y": `column "0" of `, "Unnamed: 0,a,y": `column "Unnamed: 0" of `} {
		s := table(t, trivium.Data{Label: "y", Train: ":"}, Options{}, head, "0,1.5,0", "1,2.5,1")
		if got := values(s); got != "[1.5 2.5] [0 1]" || len(s.Notes) != 1 || !strings.HasPrefix(s.Notes[0], note) {
			t.Errorf("%q: %s, notes %q", head, got, s.Notes)
		}
	}
	r := []string{`"","mpg","y"`, `"Mazda RX4",21,0`, `"Fiat 128",32.4,1`}
	if got := values(table(t, trivium.Data{Label: "y", Train: ":"}, Options{}, r...)); got != "[21 32.4] [0 1]" {
		t.Errorf("names: %s", got)
	}
	if got := values(table(t, trivium.Data{Train: ":"}, Options{}, ",y,a", "7,0,1.5", "8,1,2.5")); got != "[1.5 2.5] [0 1]" {
		t.Errorf("the first column that has a name is the label: %s", got)
	}
	s := table(t, trivium.Data{Label: "y", Categorical: []string{"0"}, Train: ":"}, Options{}, r...)
	if got := values(s); got != "[0 1 21 1 0 32.4] [0 1]" || len(s.Notes) > 0 {
		t.Errorf("by name: %s, notes %q", got, s.Notes)
	}
	if again := values(table(t, trivium.Data{Train: ":"}, Options{Transform: s.Transform}, r...)); again != values(s) {
		t.Errorf("as a model had it: %s, before %s", again, values(s))
	}
	named := table(t, trivium.Data{Label: "y", Train: ":"}, Options{}, "a,Unnamed: 0,y", "1,2,0", "3,4,1")
	if got := values(named); got != "[1 2 3 4] [0 1]" || len(named.Notes) > 0 {
		t.Errorf("in the middle: %s, notes %q", got, named.Notes)
	}
}

// TestGuessedLabel: where nobody has named the label, and no column is called so, it is said which one it is.
func TestGuessedLabel(t *testing.T) {
	for _, c := range []struct {
		label, head, want string
	}{
		{"", "sex,age,target", `column "sex" of `},
		{"", ",sex,target", `column "sex" of `},
		{"", "0,30,1", `column "0" of `},
		{"target", "sex,age,target", ""},
		{"", "sex,label,target", ""},
	} {
		s := table(t, trivium.Data{Label: c.label, Train: ":"}, Options{}, c.head, "1,40,0", "0,50,1")
		got := slices.DeleteFunc(slices.Clone(s.Notes), func(n string) bool { return !strings.Contains(n, "--label names another") })
		if len(got) > 1 || (len(got) == 1) != (c.want != "") || !strings.HasPrefix(strings.Join(got, ""), c.want) {
			t.Errorf("%q, label %q: notes %q", c.head, c.label, s.Notes)
		}
		again := table(t, trivium.Data{Train: ":"}, Options{Transform: s.Transform}, c.head, "1,40,0", "0,50,1")
		if slices.ContainsFunc(again.Notes, func(n string) bool { return strings.Contains(n, "--label") }) {
			t.Errorf("%q: of a model that has been trained: notes %q", c.head, again.Notes)
		}
	}
}

func TestJSONLSyntax(t *testing.T) {
	path := write(t, t.TempDir(), "a.jsonl", []byte(`{"label": true, "x": [1, 2.5], "s": "aé\"b", "n": null}`+"\n"+`{"s":"c","label":false,"n":3,"x":[-1e2,0]}`+"\n"))
	s := open(t, trivium.Data{Source: path, Categorical: []string{"s", "label"}, Missing: "zero", Train: ":"}, Options{})
	if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values, got.Labels.Class, s.Schema().Labels.Names) != "[1 2.5 1 0 0 -100 0 0 1 3] [1 0] [false true]" {
		t.Errorf("%v %v %v", got.Inputs[0].Values, got.Labels.Class, s.Schema().Labels.Names)
	}
	if got := s.Transform.Columns[0].Name; got != "x.0" {
		t.Errorf("first column %q", got)
	}
}

// TestJSONLFields: a field may begin in a later row, be passed over where the model needs none of it, and be absent from the first row of
// what the model is applied to.
func TestJSONLFields(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "a.jsonl", []byte(`{"label":0,"a":1}`+"\n"+`{"label":1,"b":[3,4],"a":2}`+"\n"))
	s := open(t, trivium.Data{Source: path, Missing: "zero", Train: ":"}, Options{})
	if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values) != "[1 0 0 2 3 4]" {
		t.Errorf("rows %v", got.Inputs[0].Values)
	}
	narrow := open(t, trivium.Data{Source: path, Drop: []string{"b.0", "b.1"}, Train: ":"}, Options{})
	if got := read(t, narrow.Train); fmt.Sprint(got.Inputs[0].Values) != "[1 2]" {
		t.Errorf("without b: rows %v", got.Inputs[0].Values)
	}
	late := write(t, dir, "late.jsonl", []byte(`{"a":5}`+"\n"+`{"a":6,"b":[7,8]}`+"\n"))
	s = open(t, trivium.Data{Source: late, Train: ":"}, Options{Transform: s.Transform, Unlabelled: true})
	if got := read(t, s.Train); fmt.Sprint(got.Inputs[0].Values) != "[5 0 0 6 7 8]" {
		t.Errorf("applied: rows %v", got.Inputs[0].Values)
	}
}

// TestJSONLNested: a field that holds more than a row has is no harm where it is dropped, and one mistake where it is not.
func TestJSONLNested(t *testing.T) {
	const text = `{"label":0,"meta":{"a":[1,{"b":2}],"c":"}"},"boxes":[[1,2],[3]],"x":1}` + "\n" +
		`{"label":1,"x":2}` + "\n" + `{"boxes": null,"meta": [{}] ,"label":0,"x":3}` + "\n"
	s, err := openText(t, "a.jsonl", text, trivium.Data{Drop: []string{"meta", "boxes"}, Train: ":"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b := read(t, s.Train); !slices.Equal(b.Inputs[0].Values, []float32{1, 2, 3}) || !slices.Equal(b.Labels.Class, []int32{0, 1, 0}) {
		t.Errorf("rows %v of the classes %v", b.Inputs[0].Values, b.Labels.Class)
	}
	_, err = openText(t, "a.jsonl", text, trivium.Data{Drop: []string{"boxes"}, Train: ":"}, Options{})
	if want := `line 1, column "meta": it holds objects`; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--drop") {
		t.Errorf("%v, want %s", err, want)
	}
	d := describe(t, trivium.Data{Source: write(t, t.TempDir(), "a.jsonl", []byte(text))})
	if d.ProblemCount != 2 || d.Problems[0].Line != 1 || d.Problems[1].Line != 1 {
		t.Errorf("mistakes %v, want two of line 1", d.Problems)
	}
	if _, err = openText(t, "a.jsonl", `{"x":1,"meta":{"a":}}`, trivium.Data{}, Options{}); err == nil || !strings.Contains(err.Error(), `want a value, found "{\"a\":}}"`) {
		t.Errorf("a broken object: %v", err)
	}
}

// TestJSONLArraysOfManyLengths: a list of tags is dropped like an object, and said to be one; so is a field that turns out to hold objects.
func TestJSONLArraysOfManyLengths(t *testing.T) {
	const text = `{"label":0,"tags":["a"],"extra":1,"x":1}` + "\n" + `{"label":1,"tags":["a","b"],"extra":{"k":1},"x":2}` + "\n" + `{"label":0,"tags":[],"x":3}` + "\n"
	s, err := openText(t, "a.jsonl", text, trivium.Data{Drop: []string{"tags", "extra"}, Train: ":"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b := read(t, s.Train); !slices.Equal(b.Inputs[0].Values, []float32{1, 2, 3}) {
		t.Errorf("rows %v", b.Inputs[0].Values)
	}
	for drop, want := range map[string]string{
		"extra": `line 2, column "tags": want an array of 1 values, as in line 1, found 2; --drop leaves the column out`,
		"tags":  `line 2, column "extra": it holds objects`,
	} {
		if _, err := openText(t, "a.jsonl", text, trivium.Data{Drop: []string{drop}, Train: ":"}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestBlanksInQuotes: a number is one with blanks around it in its quotes, and blanks alone are no value.
func TestBlanksInQuotes(t *testing.T) {
	s, err := openText(t, "a.csv", "label,a\n\" 1 \",\" 2.5\"\n\"0 \",\"  \"\n", trivium.Data{Train: ":", Missing: "zero"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b := read(t, s.Train); !slices.Equal(b.Inputs[0].Values, []float32{2.5, 0}) || !slices.Equal(b.Labels.Class, []int32{1, 0}) {
		t.Errorf("rows %v of the classes %v", b.Inputs[0].Values, b.Labels.Class)
	}
}

// TestJSONLNullArray: null in place of an array is that all its values are missing, in the first row too.
func TestJSONLNullArray(t *testing.T) {
	for _, lines := range []string{
		`{"label":0,"b":null}` + "\n" + `{"label":1,"b":[3,4]}` + "\n",
		`{"label":1,"b":[3,4]}` + "\n" + `{"label":0,"b":null}` + "\n",
	} {
		path := write(t, t.TempDir(), "a.jsonl", []byte(lines))
		s := open(t, trivium.Data{Source: path, Missing: "zero", Train: ":"}, Options{})
		b := read(t, s.Train)
		for i, class := range b.Labels.Class {
			if want := []string{"[0 0]", "[3 4]"}[class]; fmt.Sprint(b.Inputs[0].Values[2*i:2*i+2]) != want {
				t.Errorf("%q: row %d has %v, want %s", lines, i, b.Inputs[0].Values, want)
			}
		}
		if _, err := openText(t, "a.jsonl", lines, trivium.Data{Train: ":"}, Options{}); err == nil || !strings.Contains(err.Error(), "the value is missing; say what to do with --missing") {
			t.Errorf("without missing: %v", err)
		}
	}
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "-0": math.Copysign(0, -1), "1.5": 1.5, "-12e3": -12000, "+7": 7, "1e-400": 0, "1e400": math.Inf(1), ".5": 0.5, "5.": 5,
		"12345678901234567890": 12345678901234567890, "0.1": 0.1, "9007199254740993": 9007199254740992, "1e23": 1e23, "inf": math.Inf(1), "-Infinity": math.Inf(-1),
	} {
		if got, ok := parseNumber([]byte(text)); !ok || math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%q = %v %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-", ".", "1e", "1e+", "0x10", "1_000", "1 ", "e5", "--1", "1.2.3", "abc"} {
		if v, ok := parseNumber([]byte(text)); ok {
			t.Errorf("%q is taken for the number %v", text, v)
		}
	}
}

// TestLongLines: lines and quoted fields that are longer than a piece of the file, resident and streamed.
func TestLongLines(t *testing.T) {
	rows := 9
	if testing.Short() {
		rows = 3
	}
	var b bytes.Buffer
	b.WriteString("label,a,text\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,%d,\"%s\"\n\n", i%2, i, strings.Repeat(fmt.Sprintf("line %d \"\"of\"\" many\n", i), 1+linePiece/(16*(1+i%3))))
	}
	path := write(t, t.TempDir(), "long.csv", b.Bytes())
	for _, budget := range []int64{0, 64} {
		s := open(t, trivium.Data{Source: path, Categorical: []string{"text"}, Train: ":"}, Options{Budget: budget})
		var got []float32
		for b, err := range Batches(context.Background(), s.Train, BatchOptions{Batch: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, b.Inputs[0].Values[0])
		}
		if !slices.Equal(got, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8}[:rows]) || len(s.Transform.Columns[1].Categories) != rows {
			t.Errorf("budget %d: %v, %d texts", budget, got, len(s.Transform.Columns[1].Categories))
		}
	}
	x, err := indexLines(bytesFile("f", b.Bytes()), lineSyntax{quotes: true}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.Index(b.Bytes(), []byte("\n1,1,"))
	if got, want := x.lineOf(2), int64(bytes.Count(b.Bytes()[:first+1], []byte{'\n'})+1); got != want {
		t.Errorf("row 2 is on line %d, want %d", got, want)
	}
}

// TestTwoColumnsOfOneName: a later file with two columns that could be the model's is refused, as one to train on is. Others do no harm.
func TestTwoColumnsOfOneName(t *testing.T) {
	s, err := openText(t, "a.csv", "label,a\n0,1\n1,2\n", trivium.Data{Train: ":"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for head, want := range map[string]string{"label,a,a": `two columns are called "a"`, "label,a,label": `two columns are called "label"`, "b,a,b": ""} {
		again, err := openText(t, "a.csv", head+"\n0,1,5\n", trivium.Data{Train: ":"}, Options{Transform: s.Transform})
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", head, err, want)
		case want == "" && err != nil:
			t.Errorf("%s: %v", head, err)
		case want == "":
			if got := read(t, again.Train).Inputs[0].Values; !slices.Equal(got, []float32{1}) {
				t.Errorf("%s: the row is %v", head, got)
			}
		}
	}
}

// TestClassOfDroppedRows: what only rows that are dropped have for a label is no class, whether labels are names or numbers, in the format that
// has them too. The model then opens the same rows again, for no row that stays has another label; of a fresh one that stays it is an error.
func TestClassOfDroppedRows(t *testing.T) {
	for _, c := range []struct {
		name, odd string
		rows      []string // label, a
		names     string
		classes   string
	}{
		{"names", "odd", []string{"big,1", "odd,", "small,2", "odd,", "big,3"}, "[big small]", "[0 1 0]"},
		{"sparse numbers", "7", []string{"3,1", "7,", "5,2", "3,3"}, "[3 5]", "[0 1 0]"},
		{"numbers from 0", "2", []string{"0,1", "2,", "1,2", "0,3"}, "[0 1]", "[0 1 0]"},
		{"no whole number", "0.5", []string{"0,1", "0.5,", "1,2", "0,3"}, "[0 1]", "[0 1 0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := trivium.Data{Missing: "drop", Train: ":", Label: "label"}
			lines := append([]string{"label,a"}, c.rows...)
			s := table(t, d, Options{}, lines...)
			if got := read(t, s.Train); fmt.Sprint(s.Schema().Labels.Names) != c.names || fmt.Sprint(got.Labels.Class) != c.classes {
				t.Errorf("classes %v, labels %v, want %s, %s", s.Schema().Labels.Names, got.Labels.Class, c.names, c.classes)
			}
			again := table(t, trivium.Data{Train: ":"}, Options{Transform: s.Transform}, lines...)
			if got := read(t, again.Train); fmt.Sprint(got.Labels.Class) != c.classes {
				t.Errorf("opened again, labels %v, want %s", got.Labels.Class, c.classes)
			}
			fresh := strings.Join(append(lines, c.odd+",4"), "\n")
			_, err := openText(t, "a.csv", fresh, trivium.Data{Train: ":"}, Options{Transform: s.Transform})
			want := []string{fmt.Sprintf("line %d, column %q", len(lines)+1, "label"), c.odd, "is outside the 2 classes: " + strings.Trim(strings.ReplaceAll(c.names, " ", ", "), "[]")}
			for _, w := range want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("a row that stays: %v, want %q", err, w)
				}
			}
		})
	}
	for _, odd := range []string{"odd", "7"} {
		_, err := openText(t, "a.csv", "label,a\n"+odd+",\n"+odd+",\n", trivium.Data{Missing: "drop", Train: ":", Label: "label"}, Options{})
		if err == nil || !strings.Contains(err.Error(), "train: no rows are left to train on") {
			t.Errorf("where all rows are dropped: %v", err)
		}
	}
}
