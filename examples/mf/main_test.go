package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// read returns how often each rating, as a line has it, is in both splits, and how many there are.
func read(t *testing.T, s *data.Splits) (lines map[string]int, n int64) {
	t.Helper()
	lines = map[string]int{}
	for _, ds := range []data.Dataset{s.Train, s.Test} {
		if ds.Rows() == 0 {
			t.Fatal("a split without rows")
		}
		var b trivium.Batch
		if err := ds.Read(t.Context(), &b, 0, ds.Rows()); err != nil {
			t.Fatal(err)
		}
		user, item := b.Inputs[0], b.Inputs[1]
		for r := range b.Rows {
			lines[fmt.Sprintf("%d::%d::%g", user.Index[user.Ptr[r]], item.Index[item.Ptr[r]], b.Labels.Real[r])]++
		}
		n += ds.Rows()
	}
	return lines, n
}

// TestMovielens: the sample is read where it lies, and each rating is in one of the splits; a line that is none is named; without the file
// ratings are generated, and the run says so.
func TestMovielens(t *testing.T) {
	t.Chdir(t.TempDir())
	var text strings.Builder
	want := map[string]int{}
	for i := range 200 {
		line := fmt.Sprintf("%d::%d::%g", i%7, i%11, float32(i%9)/2)
		want[line]++
		fmt.Fprintf(&text, "%s::%d\n", line, 1424380312+i)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := movielens(t.Context(), trivium.Data{})
	if err != nil {
		t.Fatal(err)
	}
	got, n := read(t, s)
	if n != 200 || len(got) != len(want) || len(s.Notes) != 0 {
		t.Errorf("%d ratings, %d of them unlike, notes %q; want 200, %d and none", n, len(got), s.Notes, len(want))
	}
	for line, k := range want {
		if got[line] != k {
			t.Errorf("%s is there %d times, want %d", line, got[line], k)
		}
	}
	if in := s.Train.Schema().Inputs; in[0].Shape[0] != 7 || in[1].Shape[0] != 11 {
		t.Errorf("inputs %+v, want 7 users and 11 items", in)
	}

	for _, bad := range []string{
		"0::2::good::1424380312", "0::2::nan::1424380312", "0::2::inf::1424380312", "0::2::3::0xyz", "0::2::3::0::", "0::2::3", "-1::2::3::0", "2147483648::2::3::0",
	} {
		if err := os.WriteFile(file, []byte("0::2::3::1424380312\n"+bad+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%s: line 2: want user::item::rating::time, found %q", file, bad)
		if _, err := movielens(t.Context(), trivium.Data{}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if s, err = movielens(t.Context(), trivium.Data{}); err != nil {
		t.Fatal(err)
	}
	if _, n := read(t, s); n != 1501 || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "are generated") {
		t.Errorf("%d ratings, notes %q; want 1501, and that they are generated", n, s.Notes)
	}
}

// TestSettingsRefused: ratings are read from no table and are as many as there are, and a run that asks for a column of one, or for its scaling, is told so.
func TestSettingsRefused(t *testing.T) {
	for field, d := range map[string]trivium.Data{"weight": {Weight: "w"}, "scale": {Scale: "standard"}, "label": {Label: "2"}, "rows": {Rows: 200}} {
		_, err := movielens(t.Context(), d)
		if e, ok := errors.AsType[*data.Error](err); !ok || e.Field != field {
			t.Errorf("%v, want an Error of data about the %s", err, field)
		}
	}
}
