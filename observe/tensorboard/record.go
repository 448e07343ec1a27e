package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the CRC-32C of p, turned and shifted so that a checksum of bytes that hold checksums is none of them.
func masked(p []byte) uint32 {
	c := crc32.Checksum(p, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// appendRecord appends an event as a record.
func appendRecord(p, event []byte) []byte {
	at := len(p)
	p = binary.LittleEndian.AppendUint64(p, uint64(len(event)))
	p = binary.LittleEndian.AppendUint32(p, masked(p[at:at+8]))
	p = append(p, event...)
	return binary.LittleEndian.AppendUint32(p, masked(event))
}

// maxEvent bounds a record that is read: no event of this package comes near.
const maxEvent = 64 << 20

// readRecord reads one record. At the end of r the error is io.EOF; one that ends within a record is io.ErrUnexpectedEOF.
func readRecord(r io.Reader) ([]byte, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(head[:])
	if got, want := masked(head[:8]), binary.LittleEndian.Uint32(head[8:]); got != want {
		return nil, fmt.Errorf("length %d has checksum %08x, want %08x", length, got, want)
	}
	if length > maxEvent {
		return nil, fmt.Errorf("an event of %d bytes, more than %d", length, maxEvent)
	}
	// The buffer grows with what is really there.
	body, err := io.ReadAll(io.LimitReader(r, int64(length)+4))
	if err != nil {
		return nil, err
	}
	if uint64(len(body)) != length+4 {
		return nil, io.ErrUnexpectedEOF
	}
	event := body[:length]
	if got, want := masked(event), binary.LittleEndian.Uint32(body[length:]); got != want {
		return nil, fmt.Errorf("an event of %d bytes has checksum %08x, want %08x", length, got, want)
	}
	return event, nil
}

// Fields of the messages; see the package's comment for where they are from.
const (
	eventWallTime       = 1
	eventStep           = 2
	eventFileVersion    = 3
	eventGraph          = 4
	eventSummary        = 5
	eventSourceMetadata = 10

	summaryValue      = 1
	valueTag          = 1
	valueSimple       = 2
	valueHistogram    = 5
	valueTensor       = 8
	valueMetadata     = 9
	metadataPlugin    = 1
	metadataDataClass = 4
	pluginName        = 1
	pluginContent     = 2

	dataClassTensor = 2
	typeFloat       = 1
	typeString      = 7
)

var errShort = errors.New("a field goes beyond the end")

// fields calls f with each field of a message: number, type, and value (v for the fixed and variable ones, p for bytes).
func fields(m []byte, f func(field, wire int, v uint64, p []byte) error) error {
	for len(m) > 0 {
		key, n := binary.Uvarint(m)
		if n <= 0 || key>>3 == 0 || key>>3 > 1<<29 {
			return errors.New("no field begins here")
		}
		m = m[n:]
		var v uint64
		var p []byte
		switch wire := int(key & 7); wire {
		case wireVarint:
			if v, n = binary.Uvarint(m); n <= 0 {
				return errShort
			}
			m = m[n:]
		case wireFixed64:
			if len(m) < 8 {
				return errShort
			}
			v, m = binary.LittleEndian.Uint64(m), m[8:]
		case wireFixed32:
			if len(m) < 4 {
				return errShort
			}
			v, m = uint64(binary.LittleEndian.Uint32(m)), m[4:]
		case wireBytes:
			length, n := binary.Uvarint(m)
			if n <= 0 || length > uint64(len(m)-n) {
				return errShort
			}
			p, m = m[n:n+int(length)], m[n+int(length):]
		default:
			return fmt.Errorf("wire type %d", wire)
		}
		if err := f(int(key>>3), int(key&7), v, p); err != nil {
			return err
		}
	}
	return nil
}
