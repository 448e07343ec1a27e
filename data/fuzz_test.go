package data

import (
	"bytes"
	"context"
	"testing"

	"github.com/trivium-ml/trivium"
)

// decodes opens the bytes as a file of that format, resident and streamed: whatever they are, the outcome is an error or sound batches,
// the same both ways.
func decodes(t *testing.T, format string, p []byte, d trivium.Data) {
	if len(p) == 0 || len(p) > 1<<16 {
		return
	}
	d.Format, d.Train = format, ":"
	var first *trivium.Batch
	for _, budget := range []int64{1 << 24, 1} {
		f, err := decodeFile(bytesFile("fuzz", p), &d)
		if err != nil {
			return
		}
		tr, err := f.fit(context.Background(), fitting{desc: d, budget: budget, to: f.numRows()})
		if err == nil {
			err = tr.Validate()
			if err != nil {
				t.Fatalf("the fitted transform is not valid: %v", err)
			}
		}
		var ds Dataset
		if err == nil {
			ds, _, err = f.dataset(context.Background(), tr, budget)
		}
		if err != nil {
			if first != nil && d.Missing != "drop" {
				t.Fatalf("streamed: %v; resident: no error", err)
			}
			return
		}
		if ds.Rows()*int64(tr.input().Columns()) > 1<<24 {
			return
		}
		var b trivium.Batch
		if err := ds.Read(context.Background(), &b, 0, ds.Rows()); err != nil {
			t.Fatalf("budget %d: reading what was accepted: %v", budget, err)
		}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, in := range b.Inputs {
			for _, v := range in.Values {
				if !finite32(float64(v)) {
					t.Fatalf("%v among the values", v)
				}
			}
		}
		if first != nil && first.Rows != b.Rows {
			t.Fatalf("%d rows in memory, %d streamed", first.Rows, b.Rows)
		}
		first = &b
	}
}

func FuzzIDX(f *testing.F) {
	f.Add(idxFile(2051, []uint32{2, 2, 2}, make([]byte, 8)))
	f.Add(idxFile(2049, []uint32{2}, []byte{0, 1}))
	f.Add(idxFile(0x0d02, []uint32{1, 1}, []byte{0x7f, 0x80, 0, 0}))
	f.Fuzz(func(t *testing.T, p []byte) {
		decodes(t, "idx", p, trivium.Data{})
		_, _ = openIDX(bytesFile("fuzz", p), true)
	})
}

func FuzzNPY(f *testing.F) {
	f.Add(npyFile("<f4", "2, 2", float32s(1, 2, 3, 4)))
	f.Add(npyFile("|u1", "2, 2, 2", make([]byte, 8)))
	f.Add(npyFile(">i2", "3,", make([]byte, 6)))
	f.Add(fortranFile("<f8", []int{2, 3}, 8, make([]byte, 48)))
	f.Fuzz(func(t *testing.T, p []byte) { decodes(t, "npy", p, trivium.Data{}) })
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("label,a,b\n0,1,2\n1,,4\n"), "", "mean")
	f.Add([]byte("y;\"a\"\"b\"\n1;\"x\ny\"\n0;z\n"), "1", "drop")
	f.Add([]byte("\xef\xbb\xbf1\t2\r\n\r\n3\tNA\r\n"), "0", "zero")
	f.Fuzz(func(t *testing.T, p []byte, categorical, missing string) {
		d := trivium.Data{Missing: missing, Scale: "standard"}
		if categorical != "" {
			d.Categorical = []string{categorical}
		}
		switch missing {
		case "", "error", "mean", "zero", "drop":
			decodes(t, "csv", p, d)
		}
	})
}

func FuzzLibsvm(f *testing.F) {
	f.Add([]byte("+1 1:2 3:4.5 # c\n-1 2:1\n"), 0)
	f.Add([]byte("1 qid:3 1:2\n\n#x\n0 7:1e3\n"), 9)
	f.Add([]byte("1:2\n3:4\n"), 4)
	f.Fuzz(func(t *testing.T, p []byte, columns int) {
		if columns >= 0 && columns < 1<<20 {
			decodes(t, "libsvm", p, trivium.Data{Columns: columns})
		}
	})
}

func FuzzJSONL(f *testing.F) {
	f.Add([]byte("{\"label\":0,\"a\":1}\n{\"label\":1,\"a\":null}\n"))
	f.Add([]byte("{\"x\":[1,2],\"s\":\"\\u00e9\",\"b\":true}\n{\"b\":false,\"x\":[3,4],\"s\":\"\"}\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		decodes(t, "jsonl", p, trivium.Data{Missing: "mean"})
		decodes(t, "jsonl", p, trivium.Data{})
	})
}

func FuzzParquet(f *testing.F) {
	f.Add(parquetBytes(f, []struct {
		Label int32
		X     *float64
		S     string
	}{{1, nil, "a"}, {0, new(float64), "b"}}))
	f.Fuzz(func(t *testing.T, p []byte) {
		decodes(t, "parquet", p, trivium.Data{Missing: "mean", Categorical: []string{"2"}})
	})
}

func FuzzTransform(f *testing.F) {
	tr := Transform{Version: 1, Kind: KindTable, Missing: "mean", Schema: trivium.Schema{
		Inputs: []trivium.InputSpec{{Name: "x", Form: trivium.CSR, Shape: []int{11}}},
		Labels: trivium.LabelSpec{Kind: trivium.Class, Width: 2, Names: []string{"a", "b"}},
	}, Columns: []Column{
		{Name: "n", Kind: Number, Mean: 1, Scale: 2},
		{Name: "c", Kind: OneHot, From: 1, Categories: []string{"x", "y"}},
		{Name: "h", Kind: Hashed, From: 3, Buckets: 8},
	}, Label: LabelTransform{Column: "y", Text: true}}
	if err := tr.Validate(); err != nil {
		f.Fatal(err)
	}
	p, err := tr.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Add([]byte(`{"version":1,"kind":"array","schema":{"inputs":[{"name":"x","form":0,"shape":[28,28,1]}],"labels":{"kind":0,"width":0}},"divisor":255,"label":{}}`))
	table := []byte("n,c,h,y\n1,x,q,a\n2,z,r,b\n")
	f.Fuzz(func(t *testing.T, p []byte) {
		tr, err := DecodeTransform(p)
		if err != nil {
			return
		}
		again, err := tr.Encode()
		if err != nil {
			t.Fatal(err)
		}
		third, err := DecodeTransform(again)
		if err != nil {
			t.Fatalf("what was encoded does not decode: %v", err)
		}
		if p3, err := third.Encode(); err != nil || !bytes.Equal(again, p3) {
			t.Fatalf("the encoding is not stable: %v", err)
		}
		if tr.input().Columns() > 1<<20 {
			return
		}
		r, err := decodeFile(bytesFile("fuzz", table), &trivium.Data{Format: "csv"})
		if err != nil {
			t.Fatal(err)
		}
		if ds, _, err := r.dataset(context.Background(), tr, 1<<20); err == nil {
			read(t, ds)
		}
	})
}
