package tensorboard

import (
	"encoding/binary"
	"math"
	"strings"
)

// The wire format of protocol buffers, as far as event files need it: a field is its number and type, then its value.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

func appendKey(p []byte, field, wire int) []byte {
	return binary.AppendUvarint(p, uint64(field)<<3|uint64(wire))
}

// appendInt leaves out a zero, as proto3 does; so do the others.
func appendInt(p []byte, field int, v int64) []byte {
	if v == 0 {
		return p
	}
	return binary.AppendUvarint(appendKey(p, field, wireVarint), uint64(v))
}

func appendDouble(p []byte, field int, v float64) []byte {
	if math.Float64bits(v) == 0 {
		return p
	}
	return appendFixed64(appendKey(p, field, wireFixed64), v)
}

func appendFixed64(p []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(p, math.Float64bits(v))
}

// appendFloat writes a zero too: simple_value is one of several, and absent is not zero.
func appendFloat(p []byte, field int, v float32) []byte {
	return binary.LittleEndian.AppendUint32(appendKey(p, field, wireFixed32), math.Float32bits(v))
}

func appendString(p []byte, field int, v string) []byte {
	if v == "" {
		return p
	}
	v = valid(v)
	return append(binary.AppendUvarint(appendKey(p, field, wireBytes), uint64(len(v))), v...)
}

// valid is v in UTF-8: a reader would refuse a string that is not, with all that is in its record. Names of metrics are a user's.
func valid(v string) string { return strings.ToValidUTF8(v, "\uFFFD") }

// appendMessage writes an empty message too: its presence means something.
func appendMessage(p []byte, field int, v []byte) []byte {
	return append(binary.AppendUvarint(appendKey(p, field, wireBytes), uint64(len(v))), v...)
}

func appendDoubles(p []byte, field int, v []float64) []byte {
	if len(v) == 0 {
		return p
	}
	p = binary.AppendUvarint(appendKey(p, field, wireBytes), uint64(8*len(v)))
	for _, x := range v {
		p = appendFixed64(p, x)
	}
	return p
}
