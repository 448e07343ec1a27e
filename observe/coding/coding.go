// Package coding turns frames and steps into bytes and back: the blocks of a run directory, and what a worker sends to the hub of
// another process. Counters and histograms travel as differences, which are mostly small.
package coding

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/wire"
)

// The first byte of a payload. After it: the version of the catalogue and the incarnation.
const (
	kindFrame = 1
	kindSteps = 2
)

// A FrameCoder writes and reads the frames of one source in one sequence, such as a file. Counters and histograms are differences from
// the last key frame, which is written every KeyEvery frames and stands for itself, so that a lost block costs at most the frames up
// to the next key. The zero value is ready; one that appends is not to decode.
type FrameCoder struct {
	key   observe.Frame
	keyed bool
	since int // frames since the key
}

// KeyEvery is the number of frames from one key frame to the next.
const KeyEvery = 60

// Append appends f as a payload.
func (c *FrameCoder) Append(p []byte, f *observe.Frame) []byte {
	isKey := !c.keyed || c.since >= KeyEvery || f.Source.Incarnation != c.key.Source.Incarnation
	if isKey {
		c.key, c.keyed, c.since = observe.Frame{Source: f.Source}, true, 0
	}
	c.since++
	p = append(p, kindFrame)
	p = wire.AppendUvarint(p, uint64(f.Version))
	p = wire.AppendUvarint(p, f.Source.Incarnation)
	p = wire.AppendUvarint(p, f.Sequence)
	p = wire.AppendUvarint(p, c.key.Sequence) // 0: this is a key
	p = binary.AppendVarint(p, int64(f.At))
	p = wire.AppendUvarint(p, uint64(len(f.Counters)))
	for i, v := range f.Counters {
		p = binary.AppendVarint(p, int64(v-c.key.Counters[i]))
	}
	p = wire.AppendUvarint(p, f.GaugeSet)
	for g, v := range f.Gauges {
		if f.GaugeSet>>g&1 == 1 {
			p = wire.AppendFloat64(p, v)
		}
	}
	p = wire.AppendUvarint(p, uint64(len(f.Distributions)))
	for d := range f.Distributions {
		p = appendHistogram(p, &f.Distributions[d], &c.key.Distributions[d])
	}
	p = wire.AppendUvarint(p, uint64(len(f.Values)))
	for _, v := range f.Values {
		p = wire.AppendString(p, v.Name)
		p = wire.AppendFloat64(p, v.Value)
		p = binary.AppendVarint(p, v.Step)
	}
	if len(f.Waited) > 0 { // at the end: a frame of before has none
		p = wire.AppendUvarint(p, uint64(len(f.Waited)))
		for _, d := range f.Waited {
			p = wire.AppendUvarint(p, uint64(d))
		}
	}
	if isKey {
		c.key = *f
	}
	return p
}

func appendHistogram(p []byte, h, key *observe.Histogram) []byte {
	changed := 0
	for b := range h.Buckets {
		if h.Buckets[b] != key.Buckets[b] {
			changed++
		}
	}
	p = wire.AppendUvarint(p, uint64(changed))
	last := 0
	for b := range h.Buckets {
		if h.Buckets[b] != key.Buckets[b] {
			p = wire.AppendUvarint(p, uint64(b-last))
			p = binary.AppendVarint(p, int64(h.Buckets[b]-key.Buckets[b]))
			last = b
		}
	}
	p = binary.AppendVarint(p, int64(h.Sum-key.Sum))
	p = wire.AppendUvarint(p, h.Min)
	return wire.AppendUvarint(p, h.Max)
}

// ErrNoKey says that a frame cannot be read, and that the fault lies before it.
var ErrNoKey = errors.New("a frame of differences whose key frame is missing")

// Decode reads a payload that Append wrote. Its source is that of the sequence; the incarnation comes with the payload.
func (c *FrameCoder) Decode(source observe.Source, payload []byte) (observe.Frame, error) {
	r := wire.NewReader("frame", payload)
	var f observe.Frame
	if err := blockVersion(r, kindFrame); err != nil {
		return f, err
	}
	f.Version = observe.FrameVersion
	f.Source = source
	f.Source.Incarnation = r.Uvarint("incarnation", math.MaxUint64)
	f.Sequence = r.Uvarint("sequence", math.MaxUint64)
	keySequence := r.Uvarint("key", math.MaxUint64)
	isKey := keySequence == 0
	key := &observe.Frame{}
	if !isKey {
		if !c.keyed || c.key.Sequence != keySequence || c.key.Source.Incarnation != f.Source.Incarnation {
			return f, ErrNoKey
		}
		key = &c.key
	}
	f.At = time.Duration(varint(r, "time"))
	// Fewer counters than this program knows: the file is older, and the rest was zero.
	for i := range int(r.Uvarint("counters", uint64(len(f.Counters)))) {
		f.Counters[i] = key.Counters[i] + uint64(varint(r, "counter"))
	}
	f.GaugeSet = r.Uvarint("gauges", 1<<observe.NumGauges-1)
	for g := range f.Gauges {
		if f.GaugeSet>>g&1 == 1 {
			f.Gauges[g] = r.Float64("gauge")
		}
	}
	for d := range int(r.Uvarint("distributions", uint64(len(f.Distributions)))) {
		decodeHistogram(r, &f.Distributions[d], &key.Distributions[d])
	}
	for range int(r.Uvarint("values", 1<<10)) {
		v := observe.Value{Name: r.String("name", 1<<10), Value: r.Float64("value"), Step: varint(r, "step")}
		if r.Err() != nil {
			break
		}
		f.Values = append(f.Values, v)
	}
	if len(r.Rest()) > 0 {
		for range int(r.Uvarint("ranks", observe.MaxRanks)) {
			f.Waited = append(f.Waited, time.Duration(r.Uvarint("waited", math.MaxInt64)))
		}
	}
	if err := r.Done(); err != nil {
		return f, err
	}
	if isKey {
		c.key, c.keyed = f, true
	}
	return f, nil
}

func decodeHistogram(r *wire.Reader, h, key *observe.Histogram) {
	h.Buckets = key.Buckets
	b := 0
	for range int(r.Uvarint("buckets", observe.NumBuckets)) {
		b += int(r.Uvarint("bucket", observe.NumBuckets))
		if b >= observe.NumBuckets {
			r.Fail("bucket", fmt.Errorf("number %d of %d", b, observe.NumBuckets))
			return
		}
		h.Buckets[b] += uint64(varint(r, "count"))
	}
	for _, n := range h.Buckets {
		h.Count += n
	}
	h.Sum = key.Sum + uint64(varint(r, "sum"))
	h.Min, h.Max = r.Uvarint("min", math.MaxUint64), r.Uvarint("max", math.MaxUint64)
}

// blockVersion reads the kind and the version of a payload.
func blockVersion(r *wire.Reader, want uint64) error {
	kind, version := r.Uvarint("kind", math.MaxUint64), r.Uvarint("version", math.MaxUint64)
	switch {
	case r.Err() != nil:
		return r.Err()
	case kind != want:
		return fmt.Errorf("a block of kind %d, want %d", kind, want)
	case version != observe.FrameVersion:
		return fmt.Errorf("a block of version %d, this program reads version %d", version, observe.FrameVersion)
	}
	return nil
}

// varint reads a signed number in zig-zag coding.
func varint(r *wire.Reader, field string) int64 {
	u := r.Uvarint(field, math.MaxUint64)
	return int64(u>>1) ^ -int64(u&1)
}

// EncodeSteps returns a payload of steps, each as its difference from the one before.
func EncodeSteps(incarnation uint64, steps []observe.Step) []byte {
	p := []byte{kindSteps}
	p = wire.AppendUvarint(p, observe.FrameVersion)
	p = wire.AppendUvarint(p, incarnation)
	p = wire.AppendUvarint(p, uint64(len(steps)))
	last := &observe.Step{}
	for i := range steps {
		s := &steps[i]
		p = binary.AppendVarint(p, s.Step-last.Step)
		p = binary.AppendVarint(p, s.Clock-last.Clock)
		p = binary.AppendVarint(p, int64(s.Start-last.Start))
		p = appendPhases(p, &s.Phases, &last.Phases)
		p = appendPhases(p, &s.Overlapped, &last.Overlapped)
		p = binary.AppendVarint(p, s.Samples-last.Samples)
		p = wire.AppendFloat64(p, s.Loss)
		p = wire.AppendUvarint(p, uint64(s.StalenessMax))
		p = binary.AppendVarint(p, int64(s.BytesOut-last.BytesOut))
		p = binary.AppendVarint(p, int64(s.BytesIn-last.BytesIn))
		p = wire.AppendUvarint(p, uint64(s.Every))
		last = s
	}
	return p
}

// appendPhases appends which of the nine differ, as bits, and those.
func appendPhases(p []byte, now, last *[observe.NumPhases]time.Duration) []byte {
	var mask uint64
	for i := range now {
		if now[i] != last[i] {
			mask |= 1 << i
		}
	}
	p = wire.AppendUvarint(p, mask)
	for i := range now {
		if now[i] != last[i] {
			p = binary.AppendVarint(p, int64(now[i]-last[i]))
		}
	}
	return p
}

// DecodeSteps appends to steps what EncodeSteps wrote.
func DecodeSteps(steps []observe.Step, payload []byte) (_ []observe.Step, incarnation uint64, err error) {
	r := wire.NewReader("steps", payload)
	if err := blockVersion(r, kindSteps); err != nil {
		return steps, 0, err
	}
	incarnation = r.Uvarint("incarnation", math.MaxUint64)
	n := int(r.Uvarint("count", uint64(len(payload)))) // a step is more than one byte
	var s observe.Step
	for range n {
		s.Step += varint(r, "step")
		s.Clock += varint(r, "clock")
		s.Start += time.Duration(varint(r, "start"))
		decodePhases(r, &s.Phases)
		decodePhases(r, &s.Overlapped)
		s.Samples += varint(r, "samples")
		s.Loss = r.Float64("loss")
		s.StalenessMax = uint16(r.Uvarint("staleness", math.MaxUint16))
		s.BytesOut += uint64(varint(r, "bytes out"))
		s.BytesIn += uint64(varint(r, "bytes in"))
		s.Every = uint32(r.Uvarint("every", math.MaxUint32))
		if r.Err() != nil {
			return steps, 0, r.Err()
		}
		steps = append(steps, s)
	}
	return steps, incarnation, r.Done()
}

func decodePhases(r *wire.Reader, d *[observe.NumPhases]time.Duration) {
	mask := r.Uvarint("phases", 1<<observe.NumPhases-1)
	for i := range d {
		if mask>>i&1 == 1 {
			d[i] += time.Duration(varint(r, "phase"))
		}
	}
}
