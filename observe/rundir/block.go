package rundir

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

const (
	blockHead  = 16      // marker, length, checksum
	maxPayload = 1 << 20 // a frame is some 10 KB; more is not believed
)

// marker begins each block. It is no text and no valid UTF-8; its line ends show a transfer that changed them.
var marker = []byte{0x93, 'T', 'r', 'v', '\r', '\n', 0x1a, 0xf7}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendBlock appends payload as a block.
func appendBlock(p, payload []byte) []byte {
	p = append(p, marker...)
	at := len(p)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(p[at:], castagnoli), castagnoli, payload)
	p = binary.LittleEndian.AppendUint32(p, sum)
	return append(p, payload...)
}

// A Damage is a stretch of a file that could not be read and was passed over.
type Damage struct {
	File   string // within the run directory
	Offset int64
	Bytes  int64
	Why    string
}

func (d Damage) String() string {
	return fmt.Sprintf("%s: %d bytes at offset %d dropped: %s", d.File, d.Bytes, d.Offset, d.Why)
}

// scan calls f with each block of r, in order, until f returns false. What is no block, or of which f says that it cannot be decoded,
// is returned as damage; blocks and damage together are all of r.
//
// size is how long r is; what is written to it meanwhile is not waited for.
func scan(name string, r io.Reader, size int64, f func(payload []byte) (more bool, err error)) ([]Damage, error) {
	in := bufio.NewReaderSize(r, int(min(max(size+blockHead, 4096), 2*maxPayload)))
	var damage []Damage
	var offset int64
	drop := func(n int, why string) {
		if k := len(damage); k > 0 && damage[k-1].Offset+damage[k-1].Bytes == offset {
			damage[k-1].Bytes += int64(n)
		} else {
			damage = append(damage, Damage{name, offset, int64(n), why})
		}
		offset += int64(n)
		_, _ = in.Discard(n) // n bytes are buffered: it cannot fail
	}
	for {
		payload, block, why, err := peekBlock(in)
		switch {
		case err != nil:
			return damage, err
		case block == 0 && why == "":
			return damage, nil
		case why != "":
			drop(toMarker(in), why)
			continue
		}
		more, err := f(payload)
		if err != nil {
			drop(block, err.Error())
			continue
		}
		if !more {
			return damage, nil
		}
		offset += int64(block)
		_, _ = in.Discard(block) // likewise
	}
}

// peekBlock returns the block that r is at, without passing it, or says why there is none. At the end of r all results are zero.
func peekBlock(r *bufio.Reader) (payload []byte, size int, why string, err error) {
	head, err := r.Peek(blockHead)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, 0, "", err
	case len(head) == 0:
		return nil, 0, "", nil
	case len(head) < blockHead:
		return nil, 0, "the file ends inside a block's head", nil
	case !bytes.HasPrefix(head, marker):
		return nil, 0, "no block begins here", nil
	}
	length := binary.LittleEndian.Uint32(head[8:])
	if length > maxPayload {
		return nil, 0, fmt.Sprintf("a block of %d bytes, more than %d", length, maxPayload), nil
	}
	size = blockHead + int(length)
	block, err := r.Peek(size)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, 0, "", err
	}
	if len(block) < size {
		return nil, 0, "the file ends inside a block", nil
	}
	payload = block[blockHead:]
	sum := crc32.Update(crc32.Checksum(block[8:12], castagnoli), castagnoli, payload)
	if want := binary.LittleEndian.Uint32(block[12:]); sum != want {
		return nil, 0, fmt.Sprintf("checksum %08x, want %08x", sum, want), nil
	}
	return payload, size, "", nil
}

// toMarker returns how many of the buffered bytes, at least one, come before the next marker or what may be the begin of one.
func toMarker(r *bufio.Reader) int {
	buffered, _ := r.Peek(max(r.Buffered(), 1))
	if len(buffered) <= 1 {
		return len(buffered)
	}
	if at := bytes.Index(buffered[1:], marker); at >= 0 {
		return 1 + at
	}
	keep := min(len(marker)-1, len(buffered)-1)
	for ; keep > 0; keep-- {
		if slices.Equal(buffered[len(buffered)-keep:], marker[:keep]) {
			break
		}
	}
	return len(buffered) - keep
}
