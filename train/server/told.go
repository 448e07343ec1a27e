package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/internal/raw"
	"github.com/trivium-ml/trivium/ps"
)

// A told is what the state of a segment begins with, on its way to rank 0.
type told struct {
	table string
	row   uint32
	from  int
	steps int64
	slots [][]float32
}

// appendState writes all segments, row by row.
func (k *keeper) appendState(p []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.blocks {
		b := &k.blocks[i]
		for j := range b.segs {
			s := &b.segs[j]
			for r := range s.rows {
				p = k.appendRow(p, s, r, &b.rows[s.first+r])
			}
		}
	}
	return p
}

// appendRow writes the rth row of a segment.
func (k *keeper) appendRow(p []byte, s *segment, r int, c *counts) []byte {
	most, steps := k.most.Load(), int64(c.steps)
	name := s.layout.Spec(0).Name
	p = binary.LittleEndian.AppendUint16(p, uint16(len(name)))
	p = append(p, name...)
	p = binary.LittleEndian.AppendUint32(p, s.row+uint32(r))
	p = binary.LittleEndian.AppendUint64(p, uint64(s.from))
	p = binary.LittleEndian.AppendUint32(p, uint32(s.n))
	if k.apart && rowTable(s.layout) { // what one optimizer would have made
		steps = updatesOf(steps, most, k.n)
	}
	p = binary.LittleEndian.AppendUint64(p, uint64(int64(c.base)+steps))
	p = append(p, byte(len(s.slots)))
	for i, v := range s.slots {
		v = v[r*s.n : (r+1)*s.n]
		if i == k.part.squares && s.of != nil {
			by := float64(k.n)
			if rowTable(s.layout) {
				by = together(float64(c.steps)/float64(max(1, most)), k.n)
			}
			v = slices.Clone(v)
			k.part.neutral(v, s.of[r*s.n:(r+1)*s.n], k.n, by)
		}
		p = append(p, raw.Bytes(v)...)
	}
	return p
}

var errShort = errors.New("server: the optimizer's state ends in the middle")

// eachState calls f with what appendState wrote. What f gets is valid until it returns.
func eachState(p []byte, f func(t told) error) error {
	var cells []float32
	for len(p) > 0 {
		if len(p) < 2 {
			return errShort
		}
		n := int(binary.LittleEndian.Uint16(p))
		if len(p) < 2+n+25 {
			return errShort
		}
		t := told{table: string(p[2 : 2+n])}
		p = p[2+n:]
		t.row, t.from = binary.LittleEndian.Uint32(p), int(binary.LittleEndian.Uint64(p[4:]))
		width, slots := int(binary.LittleEndian.Uint32(p[12:])), int(p[24])
		t.steps = int64(binary.LittleEndian.Uint64(p[16:]))
		p = p[25:]
		if t.from < 0 || len(p) < 4*width*slots {
			return errShort
		}
		cells = slices.Grow(cells[:0], width*slots)[:width*slots]
		raw.Copy(cells, p[:4*len(cells)])
		p = p[4*len(cells):]
		for i := range slots {
			t.slots = append(t.slots, cells[i*width:(i+1)*width])
		}
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// stateKey is the object's name.
const stateKey = "state"

// Get implements blob.Store.
func (k *keeper) Get(_ context.Context, key string, from, length int64) (io.ReadCloser, error) {
	if key != stateKey {
		return nil, fmt.Errorf("server: %s: %w", key, fs.ErrNotExist)
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	if from <= 0 {
		k.told = k.appendState(nil)
	}
	p := k.told
	p = p[min(max(from, 0), int64(len(p))):]
	if length >= 0 {
		p = p[:min(length, int64(len(p)))]
	}
	return io.NopCloser(bytes.NewReader(p)), nil
}

// readOnly is all of a blob.Store but Get, of a state that a member tells.
type readOnly struct{}

var errReadOnly = errors.New("server: a state that is told is not to be written")

// Put implements blob.Store.
func (readOnly) Put(context.Context, string, io.Reader) error { return errReadOnly }

// PutIfAbsent implements blob.Store.
func (readOnly) PutIfAbsent(context.Context, string, io.Reader) error { return errReadOnly }

// List implements blob.Store.
func (readOnly) List(context.Context, string) ([]blob.Object, error) { return nil, nil }

// Delete implements blob.Store.
func (readOnly) Delete(context.Context, string) error { return errReadOnly }

var (
	_ blob.Store = (*keeper)(nil)
	_ ps.Store   = (*keeper)(nil)
)
