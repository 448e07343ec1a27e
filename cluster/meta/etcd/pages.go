package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
)

// pages reads the pages of a bbolt database without trusting a number in them. bbolt follows them as they are: a page that is its own
// child is followed until the memory is full, and a length beyond the page leads anywhere. The format is that of bbolt's page.go, meta.go
// and bucket.go; numbers are those of a little-endian machine.
type pages struct {
	f    io.ReaderAt
	size int64 // of the file
	page int64 // bytes
	meta pageMeta
	seen map[uint64]bool
	todo []uint64 // to be read
}

// A pageMeta says where a database begins. There are two, and the later one that is whole counts.
type pageMeta struct {
	Magic, Version, PageSize, Flags        uint32
	Root, Sequence, Freelist, High, Commit uint64
	Sum                                    uint64 // FNV-1a of what is before it
}

const (
	pageHead  = 16 // number, kind, count, further pages
	pageEntry = 16
	metaSize  = 64
	metaMagic = 0xED0CDAED

	branchPage = 1
	leafPage   = 2
	freePage   = 16

	noFreelist = math.MaxUint64
	bucketLeaf = 1 // an entry that is a bucket
	bucketHead = 16
)

// checkPages follows every page of the database of size bytes.
func checkPages(f io.ReaderAt, size int64) error {
	p := &pages{f: f, size: size, seen: map[uint64]bool{}}
	if err := p.begin(); err != nil {
		return err
	}
	return p.walk()
}

// walk follows the pages from the root.
func (p *pages) walk() error {
	p.todo = append(p.todo, p.meta.Root)
	for len(p.todo) > 0 {
		id := p.todo[len(p.todo)-1]
		p.todo = p.todo[:len(p.todo)-1]
		kind, b, err := p.read(id)
		if err == nil {
			err = p.follow(kind, b)
		}
		if err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
	}
	if p.meta.Freelist == noFreelist {
		return nil
	}
	if err := p.checkFree(); err != nil {
		return fmt.Errorf("page %d: %w", p.meta.Freelist, err)
	}
	return nil
}

// begin finds the meta page that counts.
func (p *pages) begin() error {
	first, firstErr := p.metaAt(0)
	if firstErr == nil {
		p.page, p.meta = int64(first.PageSize), first
	}
	for size := int64(1 << 10); size <= 16<<20; size <<= 1 { // where the second is depends on the page's size
		if firstErr == nil && size != p.page {
			continue
		}
		m, err := p.metaAt(size)
		if err != nil || int64(m.PageSize) != size || firstErr == nil && m.Commit <= first.Commit {
			continue
		}
		p.page, p.meta, firstErr = size, m, nil
		break
	}
	return firstErr
}

func (p *pages) metaAt(at int64) (m pageMeta, err error) {
	b := make([]byte, metaSize)
	if _, err := p.f.ReadAt(b, at+pageHead); err != nil {
		return m, err
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &m); err != nil {
		return m, err
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSize-8])
	switch {
	case m.Magic != metaMagic || m.Sum != sum.Sum64():
		return m, errors.New("it does not begin as a database does")
	case m.PageSize < 1<<10 || m.PageSize > 16<<20 || m.PageSize&(m.PageSize-1) != 0:
		return m, fmt.Errorf("its pages have %d bytes", m.PageSize)
	}
	return m, nil
}

// read returns the bytes of a page, and of those that continue it. No page is read twice.
func (p *pages) read(id uint64) (kind uint16, b []byte, err error) {
	if id < 2 || id >= p.meta.High || id >= uint64(p.size/p.page) {
		return 0, nil, fmt.Errorf("the file has %d pages, of which %d are in use", p.size/p.page, p.meta.High)
	}
	head := make([]byte, pageHead)
	if _, err := p.f.ReadAt(head, int64(id)*p.page); err != nil {
		return 0, nil, err
	}
	n := 1 + uint64(binary.LittleEndian.Uint32(head[12:]))
	if own := binary.LittleEndian.Uint64(head); own != id {
		return 0, nil, fmt.Errorf("it says that it is page %d", own)
	}
	if n > p.meta.High-id || n > uint64(p.size/p.page)-id {
		return 0, nil, fmt.Errorf("it goes on for %d pages", n)
	}
	for k := id; k < id+n; k++ {
		if p.seen[k] {
			return 0, nil, errors.New("two pages lead to it")
		}
		p.seen[k] = true
	}
	b = make([]byte, int64(n)*p.page)
	_, err = p.f.ReadAt(b, int64(id)*p.page)
	return binary.LittleEndian.Uint16(head[8:]), b, err
}

// follow checks the entries of a page, and notes the pages that they lead to. A small bucket is a page within an entry.
func (p *pages) follow(kind uint16, b []byte) error {
	if len(b) < pageHead {
		return errors.New("it is cut short")
	}
	n := int(binary.LittleEndian.Uint16(b[10:]))
	if pageHead+n*pageEntry > len(b) {
		return fmt.Errorf("it has %d entries in %d bytes", n, len(b))
	}
	if kind != leafPage && (kind != branchPage || n == 0) {
		return fmt.Errorf("it is of kind %d and has %d entries", kind, n)
	}
	for i := range n {
		at := pageHead + i*pageEntry
		e := b[at:]
		if kind == branchPage {
			if end := uint64(at) + uint64(binary.LittleEndian.Uint32(e)) + uint64(binary.LittleEndian.Uint32(e[4:])); end > uint64(len(b)) {
				return fmt.Errorf("entry %d ends behind it", i)
			}
			p.todo = append(p.todo, binary.LittleEndian.Uint64(e[8:]))
			continue
		}
		value := uint64(at) + uint64(binary.LittleEndian.Uint32(e[4:])) + uint64(binary.LittleEndian.Uint32(e[8:]))
		end := value + uint64(binary.LittleEndian.Uint32(e[12:]))
		if end > uint64(len(b)) {
			return fmt.Errorf("entry %d ends behind it", i)
		}
		if binary.LittleEndian.Uint32(e)&bucketLeaf == 0 {
			continue
		}
		bucket := b[value:end]
		if len(bucket) < bucketHead {
			return fmt.Errorf("the bucket of entry %d is cut short", i)
		}
		if root := binary.LittleEndian.Uint64(bucket); root != 0 {
			p.todo = append(p.todo, root)
		} else if err := p.follow(leafPage, bucket[bucketHead:]); err != nil {
			return fmt.Errorf("the bucket of entry %d: %w", i, err)
		}
	}
	return nil
}

// checkFree reads the list of free pages, none of which may be in use.
func (p *pages) checkFree() error {
	kind, b, err := p.read(p.meta.Freelist)
	if err != nil {
		return err
	}
	const many = 0xFFFF // then the number is the first of the list
	n, list := uint64(binary.LittleEndian.Uint16(b[10:])), b[pageHead:]
	if n == many {
		n, list = binary.LittleEndian.Uint64(list), list[8:]
	}
	if kind != freePage || n > uint64(len(list)/8) {
		return fmt.Errorf("it is of kind %d and has %d entries", kind, n)
	}
	for i := range n {
		id := binary.LittleEndian.Uint64(list[8*i:])
		if id < 2 || id >= p.meta.High || p.seen[id] {
			return fmt.Errorf("page %d cannot be free", id)
		}
	}
	return nil
}
