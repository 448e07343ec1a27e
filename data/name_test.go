package data

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestFormatsAgree: a transform that was fitted to one table reads the same from it in every other format, as the programs that write them spell
// truth values, numbers and dates.
func TestFormatsAgree(t *testing.T) {
	type row struct {
		Label bool    `parquet:"label"`
		On    bool    `parquet:"on"`
		Rooms float64 `parquet:"rooms"`
		Day   int32   `parquet:"day,date"`
		Size  float32 `parquet:"size"`
		Code  string  `parquet:"code"`
	}
	var rows []row
	table, lines := "label,on,rooms,day,size,code\n", ""
	for i := range 24 {
		r := row{i%2 == 0, i%3 == 0, float64(i % 4), int32(19_722 + i%5), 0.1 * float32(i%3+1), []string{"007", "7", "x"}[i%3]}
		rows = append(rows, r)
		truth := map[bool]string{true: "True", false: "False"}
		day := []string{"2023-12-31", "2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"}[i%5]
		table += fmt.Sprintf("%s,%s,%.1f,%s,%v,%s\n", truth[r.Label], truth[r.On], r.Rooms, day, r.Size, r.Code)
		lines += fmt.Sprintf(`{"label":%v,"on":%v,"rooms":%e,"day":%q,"size":%.3f,"code":%q}`+"\n", r.Label, r.On, r.Rooms, day, r.Size, r.Code)
	}
	dir := t.TempDir()
	paths := []string{
		write(t, dir, "a.csv", []byte(table)), write(t, dir, "a.jsonl", []byte(lines)), write(t, dir, "a.parquet", parquetBytes(t, rows)),
	}
	for _, hash := range []int{0, 1 << 10} {
		for _, fitted := range paths {
			d := trivium.Data{Source: fitted, Train: ":", Categorical: []string{"on", "rooms", "day", "size", "code"}, Hash: hash}
			s := open(t, d, Options{})
			want := read(t, s.Train)
			for _, path := range paths {
				got := read(t, open(t, trivium.Data{Source: path, Train: ":"}, Options{Transform: s.Transform}).Train)
				if !slices.Equal(got.Inputs[0].Values, want.Inputs[0].Values) || !slices.Equal(got.Inputs[0].Index, want.Inputs[0].Index) {
					t.Errorf("hash %d: fitted to %s, %s has other rows", hash, fitted, path)
				}
				if !slices.Equal(got.Labels.Class, want.Labels.Class) {
					t.Errorf("hash %d: fitted to %s, %s has the labels %v, want %v", hash, fitted, path, got.Labels.Class, want.Labels.Class)
				}
			}
		}
	}
	// Truth values that are numbers to the one are words in the other.
	d := trivium.Data{Source: paths[2], Train: ":", Drop: []string{"day", "code"}}
	s := open(t, d, Options{})
	want := read(t, s.Train)
	if got := read(t, open(t, trivium.Data{Source: paths[0], Train: ":"}, Options{Transform: s.Transform}).Train); !slices.Equal(got.Inputs[0].Values, want.Inputs[0].Values) {
		t.Errorf("the numbers of the CSV are %v, want %v", got.Inputs[0].Values, want.Inputs[0].Values)
	}
}

// TestPlainNames: what is written otherwise than in training is the one value that it equals, and no other.
func TestPlainNames(t *testing.T) {
	d := newDictionary([]string{"007", "1.0", "10", "10.0", "12345678901234567890", "2.50", "7", "False", "true"})
	for value, want := range map[string]int32{
		"007": 0, "07": codeUnknown, "7": 6, "7.0": 6, "1": 1, "1.0": 1, "1e0": 1, "+1": 1, "1.5": codeUnknown, "10": 2, "10.0": 3, "10.00": 2, "1e1": 2,
		"12345678901234567890": 4, "12345678901234567891": codeUnknown, "2.5": 5, "false": 7, "FALSE": 7, "True": 8, "t": codeUnknown, "": codeUnknown,
		"-0": codeUnknown, "inf": codeUnknown, "0x1": codeUnknown,
	} {
		if got := d.of([]byte(value)); got != want {
			t.Errorf("%q has the code %d, want %d", value, got, want)
		}
	}
	// Names of which two are one number are neither's.
	if got := newDictionary([]string{"3.0", "3.00"}).of([]byte("3")); got != codeUnknown {
		t.Errorf("3 has the code %d, and is as much 3.0 as 3.00", got)
	}
}
