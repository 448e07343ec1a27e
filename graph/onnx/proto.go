package onnx

import (
	"encoding/binary"

	"github.com/trivium-ml/trivium/graph"
)

// message is a protocol buffer message being written. Field numbers in this package are those of onnx.proto, IR version 8.
type message []byte

// Wire types of protocol buffers.
const (
	varint = 0
	chunk  = 2
)

func (m *message) tag(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field<<3|wire)) }

func (m *message) int(field int, v int) {
	m.tag(field, varint)
	*m = binary.AppendUvarint(*m, uint64(v))
}

func (m *message) bytes(field int, p []byte) {
	m.tag(field, chunk)
	*m = append(binary.AppendUvarint(*m, uint64(len(p))), p...)
}

func (m *message) string(field int, s string) {
	m.tag(field, chunk)
	*m = append(binary.AppendUvarint(*m, uint64(len(s))), s...)
}

func (m *message) message(field int, sub message) { m.bytes(field, sub) }

// elementType is a TensorProto.DataType.
func elementType(dt graph.DType) int {
	switch dt {
	case graph.F32:
		return 1
	case graph.U8:
		return 2
	case graph.I32:
		return 6
	case graph.I64:
		return 7
	case graph.Bool:
		return 9
	case graph.F16:
		return 10
	case graph.F64:
		return 11
	case graph.BF16:
		return 16
	}
	return 0
}

func tensorProto(name string, l graph.Literal) message {
	var m message
	for _, d := range l.Shape {
		m.int(1, d)
	}
	m.int(2, elementType(l.DType))
	m.string(8, name)
	m.bytes(9, l.Data) // raw: little-endian, row-major, as ours
	return m
}

func valueInfo(name string, t graph.Type) message {
	var shape, typ, outer, m message
	for _, d := range t.Shape {
		var dim message
		if d.Fixed() {
			dim.int(1, d.N)
		} else {
			dim.string(2, d.String())
		}
		shape.message(1, dim)
	}
	typ.int(1, elementType(t.DType))
	typ.message(2, shape)
	outer.message(1, typ)
	m.string(1, name)
	m.message(2, outer)
	return m
}

// attr is an AttributeProto.
type attr struct {
	name string
	kind int // AttributeProto.AttributeType
	body message
}

func (a attr) encode() message {
	var m message
	m.string(1, a.name)
	m = append(m, a.body...)
	m.int(20, a.kind)
	return m
}

func intAttr(name string, v int) attr {
	var m message
	m.int(3, v)
	return attr{name, 2, m}
}

func stringAttr(name, v string) attr {
	var m message
	m.string(4, v)
	return attr{name, 3, m}
}

func graphAttr(name string, g message) attr {
	var m message
	m.message(6, g)
	return attr{name, 5, m}
}

func intsAttr(name string, v []int) attr {
	var m message
	for _, x := range v {
		m.int(8, x)
	}
	return attr{name, 7, m}
}
