package tensorboard

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
)

// An Event is a record of an event file.
type Event struct {
	WallTime    float64 // seconds
	Step        int64
	FileVersion string // of the first record
	Writer      string // likewise: who wrote the file
	Graph       []Node
	Values      []Value
}

// A Value is one entry of a summary: a scalar, a histogram, or a tensor that a plugin shows.
type Value struct {
	Tag       string
	Scalar    float32
	IsScalar  bool
	Histogram *Histogram
	Plugin    string
	Content   []byte   // the plugin's own message
	Strings   [][]byte // of the tensor
}

// Read walks the events of a file. It ends at the first record that does not hold, with an error that names its offset.
func Read(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		in := bufio.NewReader(r)
		var offset int64
		for {
			record, err := readRecord(in)
			if errors.Is(err, io.EOF) {
				return
			}
			var e Event
			if err == nil {
				e, err = parseEvent(record)
			}
			if err != nil {
				yield(Event{}, fmt.Errorf("tensorboard: offset %d: %w", offset, err))
				return
			}
			if !yield(e, nil) {
				return
			}
			offset += int64(len(record)) + 16
		}
	}
}

func parseEvent(m []byte) (e Event, err error) {
	err = fields(m, func(field, wire int, v uint64, p []byte) error {
		switch {
		case field == eventWallTime && wire == wireFixed64:
			e.WallTime = math.Float64frombits(v)
		case field == eventStep && wire == wireVarint:
			e.Step = int64(v)
		case field == eventFileVersion && wire == wireBytes:
			e.FileVersion = string(p)
		case field == eventGraph && wire == wireBytes:
			return parseGraph(p, &e.Graph)
		case field == eventSourceMetadata && wire == wireBytes:
			return firstString(p, 1, &e.Writer)
		case field == eventSummary && wire == wireBytes:
			return fields(p, func(field, wire int, _ uint64, p []byte) error {
				if field != summaryValue || wire != wireBytes {
					return nil
				}
				v, err := parseValue(p)
				e.Values = append(e.Values, v)
				return err
			})
		}
		return nil
	})
	return e, err
}

// firstString sets s to a field of m, if it is there.
func firstString(m []byte, want int, s *string) error {
	return fields(m, func(field, wire int, _ uint64, p []byte) error {
		if field == want && wire == wireBytes {
			*s = string(p)
		}
		return nil
	})
}

func parseValue(m []byte) (v Value, err error) {
	err = fields(m, func(field, wire int, x uint64, p []byte) error {
		switch {
		case field == valueTag && wire == wireBytes:
			v.Tag = string(p)
		case field == valueSimple && wire == wireFixed32:
			v.Scalar, v.IsScalar = math.Float32frombits(uint32(x)), true
		case field == valueHistogram && wire == wireBytes:
			v.Histogram = &Histogram{}
			return parseHistogram(p, v.Histogram)
		case field == valueTensor && wire == wireBytes:
			return fields(p, func(field, wire int, _ uint64, p []byte) error {
				if field == 8 && wire == wireBytes {
					v.Strings = append(v.Strings, p)
				}
				return nil
			})
		case field == valueMetadata && wire == wireBytes:
			return fields(p, func(field, wire int, _ uint64, p []byte) error {
				if field != metadataPlugin || wire != wireBytes {
					return nil
				}
				return fields(p, func(field, wire int, _ uint64, p []byte) error {
					switch {
					case field == pluginName && wire == wireBytes:
						v.Plugin = string(p)
					case field == pluginContent && wire == wireBytes:
						v.Content = p
					}
					return nil
				})
			})
		}
		return nil
	})
	return v, err
}

func parseHistogram(m []byte, h *Histogram) error {
	return fields(m, func(field, wire int, x uint64, p []byte) error {
		switch {
		case field == 6 && wire == wireBytes:
			return parseDoubles(p, &h.Limits)
		case field == 7 && wire == wireBytes:
			return parseDoubles(p, &h.Counts)
		case wire != wireFixed64:
		case field == 1:
			h.Min = math.Float64frombits(x)
		case field == 2:
			h.Max = math.Float64frombits(x)
		case field == 4:
			h.Sum = math.Float64frombits(x)
		case field == 5:
			h.SumSquares = math.Float64frombits(x)
		}
		return nil
	})
}

func parseDoubles(p []byte, into *[]float64) error {
	if len(p)%8 != 0 {
		return fmt.Errorf("a list of doubles of %d bytes", len(p))
	}
	for ; len(p) > 0; p = p[8:] {
		*into = append(*into, math.Float64frombits(binary.LittleEndian.Uint64(p)))
	}
	return nil
}

func parseGraph(m []byte, into *[]Node) error {
	return fields(m, func(field, wire int, _ uint64, p []byte) error {
		if field != 1 || wire != wireBytes {
			return nil
		}
		var n Node
		err := fields(p, func(field, wire int, _ uint64, p []byte) error {
			switch {
			case wire != wireBytes:
			case field == 1:
				n.Name = string(p)
			case field == 2:
				n.Op = string(p)
			case field == 3:
				n.Inputs = append(n.Inputs, string(p))
			case field == 4:
				n.Device = string(p)
			}
			return nil
		})
		*into = append(*into, n)
		return err
	})
}
