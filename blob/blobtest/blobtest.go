// Package blobtest is the conformance kit of blob.Store: Run passes on every implementation.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/trivium-ml/trivium/blob"
)

// Run tests the stores that open returns, an empty one each time.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	ctx := context.Background()
	put := func(t *testing.T, s blob.Store, key, value string) {
		t.Helper()
		if err := s.Put(ctx, key, strings.NewReader(value)); err != nil {
			t.Fatal(err)
		}
	}
	get := func(t *testing.T, s blob.Store, key string, from, length int64) string {
		t.Helper()
		r, err := s.Get(ctx, key, from, length)
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		return string(p)
	}

	t.Run("put and get", func(t *testing.T) {
		s := open(t)
		put(t, s, "a/b", "0123456789")
		put(t, s, "empty", "")
		for _, c := range []struct {
			key          string
			from, length int64
			want         string
		}{
			{"a/b", 0, -1, "0123456789"},
			{"a/b", 3, 4, "3456"},
			{"a/b", 8, 10, "89"},
			{"a/b", 10, -1, ""},
			{"a/b", 20, 5, ""},
			{"a/b", 2, 0, ""},
			{"empty", 0, -1, ""},
		} {
			if got := get(t, s, c.key, c.from, c.length); got != c.want {
				t.Errorf("%d bytes of %s from %d are %q, want %q", c.length, c.key, c.from, got, c.want)
			}
		}
		put(t, s, "a/b", "new")
		if got := get(t, s, "a/b", 0, -1); got != "new" {
			t.Errorf("after a second Put: %q", got)
		}
		if p, err := blob.Read(ctx, s, "a/b", 3); err != nil || string(p) != "new" {
			t.Errorf("Read: %q, %v", p, err)
		}
		if _, err := blob.Read(ctx, s, "a/b", 2); err == nil {
			t.Error("Read took 3 bytes with a limit of 2")
		}
	})

	t.Run("absent", func(t *testing.T) {
		s := open(t)
		put(t, s, "x", "1")
		if _, err := s.Get(ctx, "y", 0, -1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Get of no key: %v, want fs.ErrNotExist", err)
		}
		if err := s.Delete(ctx, "y"); err != nil {
			t.Errorf("Delete of no key: %v", err)
		}
		if err := s.Delete(ctx, "x"); err != nil {
			t.Error(err)
		}
		if _, err := s.Get(ctx, "x", 0, -1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Get of a deleted key: %v, want fs.ErrNotExist", err)
		}
	})

	t.Run("put if absent", func(t *testing.T) {
		s := open(t)
		var wins [8]bool
		var group sync.WaitGroup
		for i := range wins {
			group.Go(func() {
				err := s.PutIfAbsent(ctx, "once", strings.NewReader(fmt.Sprint(i)))
				if err != nil && !errors.Is(err, fs.ErrExist) {
					t.Error(err)
				}
				wins[i] = err == nil
			})
		}
		group.Wait()
		winner := -1
		for i, won := range wins {
			if won && winner >= 0 {
				t.Fatalf("%d and %d both won", winner, i)
			} else if won {
				winner = i
			}
		}
		if got := get(t, s, "once", 0, -1); got != fmt.Sprint(winner) {
			t.Errorf("%d won, found %q", winner, got)
		}
	})

	t.Run("a failed write changes nothing", func(t *testing.T) {
		s := open(t)
		put(t, s, "k", "old")
		// Some speak of an end, as those of a source which was cut off or of a link which broke.
		for _, cause := range []error{errors.New("pulled"), io.ErrUnexpectedEOF, fmt.Errorf("pulled: %w", io.EOF)} {
			broken := func() io.Reader {
				return io.MultiReader(bytes.NewReader(make([]byte, 100_000)), iotest.ErrReader(cause))
			}
			if err := s.Put(ctx, "k", broken()); err == nil || !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("error %v, want the reader's, %v", err, cause)
			}
			if err := s.PutIfAbsent(ctx, "new", broken()); err == nil {
				t.Errorf("a broken reader was accepted: %v", cause)
			}
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := s.Put(gone, "k", strings.NewReader("newer")); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		if got := get(t, s, "k", 0, -1); got != "old" {
			t.Errorf("found %q, want the old object", got)
		}
		if objects, err := s.List(ctx, ""); err != nil || len(objects) != 1 {
			t.Errorf("listed %v, %v; want k alone", objects, err)
		}
	})

	t.Run("list", func(t *testing.T) {
		s := open(t)
		if objects, err := s.List(ctx, ""); err != nil || len(objects) != 0 {
			t.Errorf("empty: listed %v, %v", objects, err)
		}
		for _, k := range []string{"b", "a/2", "a/10", "a-b", "ab/c/d"} {
			put(t, s, k, k)
		}
		for prefix, want := range map[string][]blob.Object{
			"":      {{Key: "a-b", Size: 3}, {Key: "a/10", Size: 4}, {Key: "a/2", Size: 3}, {Key: "ab/c/d", Size: 6}, {Key: "b", Size: 1}},
			"a/":    {{Key: "a/10", Size: 4}, {Key: "a/2", Size: 3}},
			"a/1":   {{Key: "a/10", Size: 4}},
			"ab/c/": {{Key: "ab/c/d", Size: 6}},
			"zz/":   nil,
		} {
			if got, err := s.List(ctx, prefix); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%q: listed %v, %v; want %v", prefix, got, err, want)
			}
		}
	})

	// A key that others continue is none itself, and a key that is there is not continued: nobody must take a part of one for an object.
	t.Run("parts of keys", func(t *testing.T) {
		s := open(t)
		put(t, s, "a/b", "1")
		for _, key := range []string{"a", "a/b/c"} {
			if r, err := s.Get(ctx, key, 0, -1); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Get of %s, where there is a/b: %v, want fs.ErrNotExist", key, err)
				if err == nil {
					_ = r.Close() // it should not be there
				}
			}
			if err := s.Delete(ctx, key); err != nil {
				t.Errorf("Delete of %s, where there is a/b: %v", key, err)
			}
			if err := s.PutIfAbsent(ctx, key, strings.NewReader("2")); errors.Is(err, fs.ErrExist) {
				t.Errorf("PutIfAbsent of %s, where there is a/b: %v, but there is no such object", key, err)
			} else if err == nil { // not every store can hold both
				if err := s.Delete(ctx, key); err != nil {
					t.Error(err)
				}
			}
			if objects, err := s.List(ctx, key+"/x/"); err != nil || len(objects) != 0 {
				t.Errorf("listed %v, %v; want nothing", objects, err)
			}
		}
		if got := get(t, s, "a/b", 0, -1); got != "1" {
			t.Errorf("a/b is %q", got)
		}
	})

	t.Run("keys", func(t *testing.T) {
		s := open(t)
		for _, key := range []string{"", "/a", "a/", "a//b", "..", "../a", "a/../b", ".hidden", "a/.b", "c:\\a", "a b", "ä", "a\x00", strings.Repeat("a", 513)} {
			if err := s.Put(ctx, key, strings.NewReader("1")); err == nil {
				t.Errorf("Put accepted key %q", key)
			}
			if _, err := s.Get(ctx, key, 0, -1); err == nil {
				t.Errorf("Get accepted key %q", key)
			}
			if err := s.Delete(ctx, key); err == nil {
				t.Errorf("Delete accepted key %q", key)
			}
		}
	})
}
