package onnx_test

import (
	"encoding/binary"
	"testing"
)

// field is one field of a protocol buffer message: a number or bytes.
type field struct {
	id    int
	num   uint64
	bytes []byte
}

// fields takes a message apart.
func fields(t *testing.T, p []byte) []field {
	var out []field
	for len(p) > 0 {
		tag, n := binary.Uvarint(p)
		v, k := binary.Uvarint(p[max(n, 0):])
		if n <= 0 || k <= 0 {
			t.Fatal("a varint is cut off")
		}
		p = p[n+k:]
		f := field{id: int(tag >> 3), num: v}
		if tag&7 == 2 {
			f.bytes, p = p[:v], p[v:]
		} else if tag&7 != 0 {
			t.Fatalf("wire type %d", tag&7)
		}
		out = append(out, f)
	}
	return out
}

func get(fs []field, id int) (out []field) {
	for _, f := range fs {
		if f.id == id {
			out = append(out, f)
		}
	}
	return out
}

// checkModel checks what every ONNX model must be: names assigned once, before they are used, outputs there.
func checkModel(t *testing.T, file []byte, outputs []string) {
	m := fields(t, file)
	if get(m, 1)[0].num != 8 || get(fields(t, get(m, 8)[0].bytes), 2)[0].num != 17 {
		t.Error("want IR version 8 and operator set 17")
	}
	known := map[string]bool{}
	checkGraph(t, get(m, 7)[0].bytes, known)
	for _, name := range outputs {
		if !known[name] {
			t.Errorf("output %q is not computed", name)
		}
	}
}

func checkGraph(t *testing.T, p []byte, known map[string]bool) {
	g := fields(t, p)
	define := func(name string) {
		if known[name] || name == "" {
			t.Errorf("%q is empty or assigned twice", name)
		}
		known[name] = true
	}
	for _, f := range get(g, 5) {
		define(string(get(fields(t, f.bytes), 8)[0].bytes))
	}
	for _, f := range get(g, 11) {
		define(string(get(fields(t, f.bytes), 1)[0].bytes))
	}
	for _, f := range get(g, 1) {
		n := fields(t, f.bytes)
		for _, in := range get(n, 1) {
			if !known[string(in.bytes)] {
				t.Errorf("node %s uses %q before it is computed", get(n, 3)[0].bytes, in.bytes)
			}
		}
		for _, a := range get(n, 5) {
			for _, body := range get(fields(t, a.bytes), 6) {
				checkGraph(t, body.bytes, known)
			}
		}
		for _, out := range get(n, 2) {
			define(string(out.bytes))
		}
	}
	for _, f := range get(g, 12) {
		if name := string(get(fields(t, f.bytes), 1)[0].bytes); !known[name] {
			t.Errorf("result %q is not computed", name)
		}
	}
}
