package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/checkpoint"
)

func file(header string, cells ...byte) []byte {
	p := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(p, header...), cells...)
}

// TestSafetensorsByHand compares with bytes worked by hand from the format's description.
func TestSafetensorsByHand(t *testing.T) {
	tensors := []checkpoint.Tensor{
		{Name: "w", DType: "F32", Shape: []int{1, 2}, Float32: []float32{1, -2}},
		{Name: "b", DType: "I64", Shape: []int{}, Int64: []int64{-1}},
	}
	var buf bytes.Buffer
	if err := checkpoint.WriteSafetensors(&buf, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	header := `{"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[],"data_offsets":[8,16]},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := file(header, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 255, 255, 255, 255, 255, 255, 255, 255)
	if !bytes.Equal(buf.Bytes(), want) {
		t.Errorf("wrote\n%q, want\n%q", buf.Bytes(), want)
	}
	got, metadata, err := checkpoint.ReadSafetensors(want)
	if err != nil || !reflect.DeepEqual(got, tensors) || metadata["format"] != "pt" {
		t.Errorf("read %+v, %v, %v", got, metadata, err)
	}
}

func TestSafetensorsLarge(t *testing.T) {
	f := make([]float32, 100_003)
	for i := range f {
		f[i] = float32(math.Sqrt(float64(i)))
	}
	tensors := []checkpoint.Tensor{
		{Name: "a", DType: "F32", Shape: []int{100_003}, Float32: f},
		{Name: "h", DType: "BF16", Shape: []int{3}, Raw: []byte{1, 2, 3, 4, 5, 6}},
		{Name: "none", DType: "F32", Shape: []int{0, 7}, Float32: []float32{}},
		{Name: "z", DType: "F32", Shape: []int{1}, Float32: []float32{7}},
	}
	var buf bytes.Buffer
	if err := checkpoint.WriteSafetensors(&buf, tensors, nil); err != nil {
		t.Fatal(err)
	}
	got, _, err := checkpoint.ReadSafetensors(buf.Bytes())
	if err != nil || !reflect.DeepEqual(got, tensors) {
		t.Errorf("%d tensors, %v", len(got), err)
	}
}

func TestSafetensorsRefuses(t *testing.T) {
	w := func(fields string) string { return `{"w":{` + fields + `}}` }
	for _, c := range []struct {
		p    []byte
		want string
	}{
		{nil, "8 bytes, found 0"},
		{[]byte{1, 2, 3}, "8 bytes, found 3"},
		{binary.LittleEndian.AppendUint64(nil, math.MaxUint64), "are read"},
		{file(`{`), "header"},
		{file(`{"w":3}`), `tensor "w"`},
		{file(w(`"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1`), 1, 2, 3, 4), "unknown field"},
		{file(w(`"dtype":"F31","shape":[1],"data_offsets":[0,4]`), 1, 2, 3, 4), `unknown type "F31"`},
		{file(w(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`), 1, 2, 3, 4), "wants 8 bytes, found 4"},
		{file(w(`"dtype":"F32","shape":[1],"data_offsets":[0,8]`), 1, 2, 3, 4), "outside the 4"},
		{file(w(`"dtype":"F32","shape":[1],"data_offsets":[-4,0]`), 1, 2, 3, 4), "outside the 4"},
		{file(w(`"dtype":"F32","shape":[1],"data_offsets":[1,5]`), 0, 1, 2, 3, 4), "begins at byte 1"},
		{file(w(`"dtype":"F32","shape":[1],"data_offsets":[0,4]`), 1, 2, 3, 4, 5), "bytes follow"},
		{file(w(`"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]`), 1, 2, 3, 4), "negative"},
		{file(w(`"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]`), 1, 2, 3, 4), "too large"},
	} {
		_, _, err := checkpoint.ReadSafetensors(c.p)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.p, err, c.want)
		}
	}
	for _, c := range []struct {
		tensors []checkpoint.Tensor
		want    string
	}{
		{[]checkpoint.Tensor{{Name: "a", DType: "F32", Shape: []int{2}, Float32: []float32{1}}}, "wants 2 cells, found 1"},
		{[]checkpoint.Tensor{{Name: "a", DType: "F99", Shape: []int{}}}, "found -1"},
		{[]checkpoint.Tensor{{Name: "__metadata__", DType: "F32", Float32: []float32{1}}}, "taken"},
		{[]checkpoint.Tensor{{Name: "a", DType: "F32", Float32: []float32{1}}, {Name: "a", DType: "F32", Float32: []float32{1}}}, "taken"},
	} {
		if err := checkpoint.WriteSafetensors(&bytes.Buffer{}, c.tensors, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// TestLargestHeader: a header is as long as 100,000 tensors need, or refused before there is memory for it.
func TestLargestHeader(t *testing.T) {
	for n, whole := range map[int]bool{16 << 20: true, 16<<20 + 8: false} {
		_, _, err := checkpoint.ReadSafetensors(file("{}" + strings.Repeat(" ", n-2)))
		if (err == nil) != whole {
			t.Errorf("a header of %d bytes: %v", n, err)
		}
	}
}

// FuzzSafetensors reads any bytes: an error, or tensors that are no larger than the file and come back from a file of their own.
func FuzzSafetensors(f *testing.F) {
	f.Add(file(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2, 3, 4))
	f.Add(file(`{"__metadata__":{"a":"b"},"w":{"dtype":"I64","shape":[0],"data_offsets":[0,0]},"h":{"dtype":"F16","shape":[],"data_offsets":[0,2]}}`, 1, 2))
	f.Fuzz(func(t *testing.T, p []byte) {
		tensors, metadata, err := checkpoint.ReadSafetensors(p)
		if err != nil {
			return
		}
		size := 0
		for _, x := range tensors {
			size += 4*len(x.Float32) + 8*len(x.Int64) + len(x.Raw)
		}
		if size > len(p) {
			t.Fatalf("%d bytes of cells out of %d", size, len(p))
		}
		var buf bytes.Buffer
		if err := checkpoint.WriteSafetensors(&buf, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		again, _, err := checkpoint.ReadSafetensors(buf.Bytes())
		if err != nil || len(again) != len(tensors) {
			t.Fatalf("%d tensors came back as %d: %v", len(tensors), len(again), err)
		}
	})
}
