package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// check reads all that an etcd of earlier has left in dir, before etcd does: on damaged data, etcd ends the process, or panics in a
// goroutine of its own.
func check(dir string) (err error) {
	logs, db := filepath.Join(dir, "member", "wal"), filepath.Join(dir, "member", "snap", "db")
	_, logsErr := os.Stat(logs)
	_, dbErr := os.Stat(db)
	switch {
	case errors.Is(logsErr, fs.ErrNotExist) && errors.Is(dbErr, fs.ErrNotExist):
		return nil // a new one
	case errors.Is(dbErr, fs.ErrNotExist) || logsErr == nil && dbErr == nil:
	case errors.Is(logsErr, fs.ErrNotExist):
		return damaged(dir, fmt.Errorf("there is a database (%s), but no log (%s)", db, logs))
	default:
		return errors.Join(logsErr, dbErr)
	}
	applied := uint64(0)
	if dbErr == nil {
		if applied, err = checkDatabase(db); err != nil {
			if errors.Is(err, bolterrors.ErrTimeout) {
				return fmt.Errorf("%s is in use: another coordinator runs with this directory: stop it, or give another directory", db)
			}
			return damaged(dir, fmt.Errorf("the database %s: %w", db, err))
		}
	}
	last, err := checkLog(logs)
	if err != nil {
		return damaged(dir, fmt.Errorf("the log in %s: %w", logs, err))
	}
	if last < applied {
		return damaged(dir, fmt.Errorf("the log in %s ends at entry %d, and the database has entry %d: the log was cut off", logs, last, applied))
	}
	return nil
}

// recovered makes what goes wrong in reading, faults at mapped pages that the file does not have included, an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = caught(r)
	}
}

// checkDatabase reads every key, and returns the number of the last entry of the log that is applied.
func checkDatabase(path string) (applied uint64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recovered(&err)
	if st, err := os.Stat(path); err != nil {
		return 0, err
	} else if st.Size() == 0 {
		return 0, errors.New("it is empty")
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := checkPages(f, st.Size()); err != nil { // bbolt would follow them without end
		return 0, err
	}
	tx, err := db.Begin(false)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	sum := crc32.NewIEEE() // of no use but to touch each byte
	keys := 0
	err = tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			keys++
			if string(name) == "meta" && string(k) == "consistent_index" && len(v) == 8 {
				applied = binary.BigEndian.Uint64(v)
			}
			_, _ = sum.Write(k)
			_, _ = sum.Write(v)
			return nil
		})
	})
	if err == nil && keys == 0 {
		err = errors.New("it has no keys")
	}
	return applied, err
}

// checkLog reads the log from its last snapshot, and returns the number of the last entry. An entry cut short at the end is no damage: it
// was being written when the process ended, and etcd drops it.
func checkLog(dir string) (last uint64, err error) {
	defer recovered(&err)
	log := zap.NewNop()
	snapshots, err := wal.ValidSnapshotEntries(log, dir)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	from := &walpb.Snapshot{}
	if n := len(snapshots); n > 0 {
		from = snapshots[n-1]
	}
	w, err := wal.OpenForRead(log, dir, from)
	if err != nil {
		return 0, err
	}
	defer w.Close() // opened for reading, it always has an error to tell: it has no directory to close
	_, state, entries, err := w.ReadAll()
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	last = from.GetIndex()
	if n := len(entries); n > 0 {
		last = entries[n-1].GetIndex()
	}
	if c := state.GetCommit(); c > last {
		return 0, fmt.Errorf("it says that entry %d was committed, and ends at entry %d", c, last)
	}
	return last, nil
}
