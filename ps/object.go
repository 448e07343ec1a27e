package ps

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/trivium-ml/trivium/wire"
)

// A file is what lies at a key of a Store. Who reads it compares both.
type file struct {
	Key    string `json:"key"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// An object is what one shard was at the cut, as it lies in the store. It says which cells it has, so that any number of servers can
// take theirs from it.
type object struct {
	file
	Table uint32 `json:"table"`
	Form  string `json:"form"` // "cells": Lo to Hi of all rows laid end to end; "rows": those of shard Lo of Hi
	Lo    int64  `json:"lo"`
	Hi    int64  `json:"hi"`
}

const maxKey = 512

func (f *file) append(p []byte) []byte {
	p = wire.AppendString(p, f.Key)
	p = wire.AppendUvarint(p, uint64(f.Size))
	return wire.AppendString(p, f.SHA256)
}

func readFile(r *wire.Reader) file {
	return file{Key: r.String("key", maxKey), Size: int64(r.Uvarint("size", maxFile)), SHA256: r.String("sha256", 64)}
}

// maxFile is far beyond what a store has: a byte more can be asked for.
const maxFile = math.MaxInt64 - 1

func (f *file) check() error {
	if f.Key == "" || len(f.Key) > maxKey || f.Size < 0 || f.Size > maxFile {
		return fmt.Errorf("%q of %d bytes makes no sense", f.Key, f.Size)
	}
	return nil
}

func (o *object) append(p []byte) []byte {
	p = o.file.append(p)
	p = wire.AppendUvarint(p, uint64(o.Table))
	p = wire.AppendString(p, o.Form)
	p = wire.AppendUvarint(p, uint64(o.Lo))
	return wire.AppendUvarint(p, uint64(o.Hi))
}

func readObject(r *wire.Reader) *object {
	return &object{
		file: readFile(r), Table: uint32(r.Uvarint("table", maxTables)), Form: r.String("form", 8),
		Lo: int64(r.Uvarint("lo", math.MaxInt64)), Hi: int64(r.Uvarint("hi", math.MaxInt64)),
	}
}

// check says what is wrong with an object of a snapshot of so many tables.
func (o *object) check(tables int) error {
	if err := o.file.check(); err != nil {
		return err
	}
	if int(o.Table) >= tables || o.Form != "cells" && o.Form != "rows" || o.Lo < 0 || o.Lo > o.Hi {
		return fmt.Errorf("%s makes no sense: %s %d to %d of table %d of %d", o.Key, o.Form, o.Lo, o.Hi, o.Table, tables)
	}
	return nil
}

// What objects and indexes begin with.
const (
	objectMagic = "trivium ps 1\n"
	indexMagic  = "trivium ps index 1\n"
)

func readMagic(r *wire.Reader, magic string) {
	for _, c := range []byte(magic) {
		if r.Uvarint("magic", 127) != uint64(c) {
			r.Fail("magic", fmt.Errorf("this does not begin with %q", magic))
		}
	}
}

// appendIndex appends an index: it names the objects that a lane wrote, so that what is sent of them is one name, however many they are.
func appendIndex(p []byte, objects []*object) []byte {
	p = append(p, indexMagic...)
	p = wire.AppendUvarint(p, uint64(len(objects)))
	for _, o := range objects {
		p = o.append(p)
	}
	return p
}

// readIndex calls f with the objects of an index, of a snapshot of so many tables.
func readIndex(key string, p []byte, tables int, f func(o *object)) error {
	r := wire.NewReader("ps index "+key, p)
	readMagic(r, indexMagic)
	for n := r.Uvarint("objects", uint64(len(p))); n > 0 && r.Err() == nil; n-- {
		o := readObject(r)
		if r.Err() == nil {
			if err := o.check(tables); err != nil {
				r.Fail("object", err)
				break
			}
			f(o)
		}
	}
	return r.Done()
}

// rawBytes reads n bytes with their length before them.
func rawBytes(r *wire.Reader, field string, n int) []byte {
	p := r.Bytes(field, math.MaxInt)
	if r.Err() == nil && len(p) != n {
		r.Fail(field, fmt.Errorf("want %d bytes, found %d", n, len(p)))
		return nil
	}
	return p
}

// put writes p at f's key, and makes f its size and checksum.
func put(s Store, f *file, p []byte) error {
	f.sum(p)
	if err := s.Put(context.Background(), f.Key, bytes.NewReader(p)); err != nil {
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	return nil
}

func (f *file) sum(p []byte) {
	sum := sha256.Sum256(p)
	f.Size, f.SHA256 = int64(len(p)), hex.EncodeToString(sum[:])
}

// fetch reads a file and compares its checksum.
func fetch(s Store, f *file) ([]byte, error) {
	p, err := read(s, f.Key, f.Size+1)
	if err != nil {
		return nil, err
	}
	found := *f
	if found.sum(p); found != *f {
		return nil, fmt.Errorf("ps: restore %s: it is damaged: want %d bytes with SHA-256 %s, found %d with %s", f.Key, f.Size, f.SHA256, found.Size, found.SHA256)
	}
	return p, nil
}

// read reads what lies at a key, so many bytes at most.
func read(s Store, key string, most int64) ([]byte, error) {
	r, err := s.Get(context.Background(), key, 0, most)
	if err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", key, err)
	}
	p, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", key, err)
	}
	return p, nil
}
