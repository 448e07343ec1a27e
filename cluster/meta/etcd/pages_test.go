package etcd

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// database writes one with buckets of all kinds: of several pages, within an entry, and with values longer than a page; and free pages.
func database(t testing.TB) []byte {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 4096, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err := db.Update(func(tx *bbolt.Tx) error {
			large, err := tx.CreateBucketIfNotExists([]byte("large"))
			if err != nil {
				return err
			}
			for k := range 400 {
				if err := large.Put(fmt.Appendf(nil, "key %d", k), bytes.Repeat([]byte{byte(round)}, 100+k)); err != nil {
					return err
				}
			}
			if _, err := large.CreateBucketIfNotExists([]byte("within")); err != nil {
				return err
			}
			small, err := tx.CreateBucketIfNotExists([]byte("small"))
			if err != nil {
				return err
			}
			return small.Put([]byte("k"), make([]byte, 10_000*round))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPages: a database is whole, and each way in which its pages may mislead is an error that names the page.
func TestPages(t *testing.T) {
	good := database(t)
	p := &pages{f: bytes.NewReader(good), size: int64(len(good)), seen: map[uint64]bool{}}
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	meta := p.meta
	if err := p.walk(); err != nil {
		t.Fatal(err)
	}
	if len(p.seen) < 20 {
		t.Errorf("%d pages were read, the values alone fill more", len(p.seen))
	}
	branch := uint64(0)
	for id := range p.seen {
		if binary.LittleEndian.Uint16(good[id*4096+8:]) == branchPage && binary.LittleEndian.Uint64(good[id*4096:]) == id {
			branch = id
		}
	}
	if branch == 0 {
		t.Fatal("the database has no branch: write more")
	}
	for _, c := range []struct {
		at   uint64
		with []byte
		want string
	}{
		{branch*4096 + pageHead + 8, binary.LittleEndian.AppendUint64(nil, branch), "two pages lead to it"},
		{branch*4096 + pageHead + 8, binary.LittleEndian.AppendUint64(nil, 1<<40), "page 1099511627776: the file has"},
		{branch*4096 + pageHead, binary.LittleEndian.AppendUint32(nil, 1<<31), fmt.Sprintf("page %d: entry 0 ends behind it", branch)},
		{branch*4096 + 10, []byte{0xFF, 0xFF}, "65535 entries in 4096 bytes"},
		{branch*4096 + 8, []byte{9}, "of kind 9"},
		{branch*4096 + 12, []byte{0, 0, 0, 1}, "it goes on for 16777217 pages"},
		{branch * 4096, []byte{7, 7}, fmt.Sprintf("page %d: it says that it is page", branch)},
		{meta.Freelist*4096 + pageHead, binary.LittleEndian.AppendUint64(nil, meta.Root), fmt.Sprintf("page %d cannot be free", meta.Root)},
		{0, make([]byte, 8192), "not begin as a database does"},
	} {
		bad := bytes.Clone(good)
		copy(bad[c.at:], c.with)
		if err := checkPages(bytes.NewReader(bad), int64(len(bad))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%x at %d: %v; want %q", c.with, c.at, err, c.want)
		}
	}
}

// FuzzPages: whatever the pages hold, they are read to an end. The meta page is taken as it is, since its sum keeps a fuzzer out.
func FuzzPages(f *testing.F) {
	good := database(f)
	f.Add(good[2*4096:min(len(good), 40*4096)], uint64(3))
	f.Add(bytes.Repeat([]byte{2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0}, 400), uint64(2))
	f.Fuzz(func(t *testing.T, b []byte, root uint64) {
		b = append(make([]byte, 2048), b...) // two meta pages
		p := &pages{f: bytes.NewReader(b), size: int64(len(b)), page: 1024, seen: map[uint64]bool{}}
		p.meta = pageMeta{Root: root, Freelist: root + 1, High: uint64(len(b) / 1024)}
		_ = p.walk()
	})
}
