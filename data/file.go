package data

import (
	"bufio"
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// A file is the decompressed contents of a file, to be read anywhere.
type file struct {
	io.ReaderAt
	name  string // as the user wrote it
	size  int64
	close func() error
}

// openFile opens a plain or gzip file; gzip is known by its first bytes. The contents of a gzip file lie in memory up to 16 MiB, then in
// a temporary file that goes away when the file is closed.
func openFile(name string) (*file, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fault(name, "%s", reason(err))
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file, and rows are read more than once: write what a pipe gives to a file first")
	}
	if err != nil {
		return nil, errors.Join(fault(name, "%s", reason(err)), f.Close())
	}
	out, err := newFile(name, f, info.Size(), f.Close)
	if err != nil {
		return nil, err
	}
	if out.size == 0 {
		return nil, errors.Join(fault(name, "the file is empty"), out.close())
	}
	return out, nil
}

// reason is an operating system's error without the path, which our message already has.
func reason(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// packings are what others pack files with, by their first bytes, which begin no format that is read.
var packings = []struct{ magic, what string }{
	{"PK\x03\x04", "a ZIP archive, or a spreadsheet of such a form (save that as CSV)"},
	{"\x28\xb5\x2f\xfd", "packed with zstd"},
	{"\xfd7zXZ\x00", "packed with xz"},
	{"BZh91AY&SY", "packed with bzip2"},
}

// newFile wraps size bytes of r, decompressing them if they are gzip. It takes over closing.
func newFile(name string, r io.ReaderAt, size int64, close func() error) (*file, error) {
	var head [10]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) && err != nil && err != io.EOF {
		return nil, errors.Join(fault(name, "%s", reason(err)), close())
	}
	for _, p := range packings {
		if bytes.HasPrefix(head[:], []byte(p.magic)) {
			return nil, errors.Join(fault(name, "it is %s, which is not read: unpack it, or pack it with gzip", p.what), close())
		}
	}
	magic := [2]byte(head[:])
	if magic != [2]byte{0x1f, 0x8b} {
		if strings.HasSuffix(name, ".gz") && size > 0 {
			return nil, errors.Join(faultAt(name, 0, "not gzip data, as the name promises: want bytes 1f 8b, found %x", magic), close())
		}
		return &file{ReaderAt: r, name: name, size: size, close: close}, nil
	}
	f, err := gunzip(name, io.NewSectionReader(r, 0, size))
	return f, errors.Join(err, close())
}

func gunzip(name string, r io.Reader) (*file, error) {
	out := newSpool(name)
	err := gunzipMembers(out, bufio.NewReaderSize(r, 1<<20))
	var bad gzipError
	if errors.As(err, &bad) {
		err = faultAt(name, out.n, "the gzip data is corrupt or cut off after this many decompressed bytes: %v", bad.error)
	}
	if err != nil {
		return nil, errors.Join(err, out.discard())
	}
	return out.file(), nil
}

// gunzipMembers writes what the members of a gzip file hold, one after another. Zeros behind a member are passed over, as gzip(1) does:
// tapes, and what copies whole blocks, fill the last one with them.
func gunzipMembers(w io.Writer, r *bufio.Reader) error {
	z, err := gzip.NewReader(r)
	for err == nil {
		z.Multistream(false) // else it takes zeros for a member
		if _, err := io.Copy(w, gzipReader{z}); err != nil {
			return err
		}
		var next byte
		for err == nil && next == 0 {
			next, err = r.ReadByte()
		}
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = r.UnreadByte()
		}
		if err == nil {
			err = z.Reset(r)
		}
	}
	return gzipError{err}
}

// gzipReader marks the errors of reading, to tell them from those of writing.
type gzipReader struct{ z io.Reader }

type gzipError struct{ error }

func (g gzipReader) Read(p []byte) (int, error) {
	n, err := g.z.Read(p)
	if err != nil && err != io.EOF {
		err = gzipError{err}
	}
	return n, err
}

// bytesFile is a file that lies in memory.
func bytesFile(name string, p []byte) *file {
	return &file{ReaderAt: bytes.NewReader(p), name: name, size: int64(len(p)), close: func() error { return nil }}
}

// read returns the bytes [from, to) in buf's memory if that suffices.
func (f *file) read(buf []byte, from, to int64) ([]byte, error) {
	n := int(to - from)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	got, err := f.ReadAt(buf, from)
	if got < n {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, faultAt(f.name, from+int64(got), "%s", reason(err))
	}
	return buf, nil
}

// crcTable is CRC-32C's polynomial, which processors have an instruction for.
var crcTable = crc32.MakeTable(crc32.Castagnoli)

// checksum reads the whole file.
func (f *file) checksum() (uint32, error) {
	h := crc32.New(crcTable)
	if _, err := io.CopyBuffer(h, io.NewSectionReader(f, 0, f.size), make([]byte, 1<<20)); err != nil {
		return 0, fault(f.name, "%s", reason(err))
	}
	return h.Sum32(), nil
}
