// Package remote is a blob.Store that lives in another process: [Serve] gives a store to the peers of a stream, and a [Client] is
// their blob.Store. So a worker on any machine writes its checkpoints where the job was started.
//
//	go remote.Serve(ctx, blob.Dir("checkpoints"), stream, remote.Options{})   // there
//	store := remote.NewClient(stream, server)                                   // here
//	go store.Run(ctx)
//	name, err := checkpoint.Save(ctx, store, c)
//
// A request is one frame, and so is its answer: reads are pieces of at most [Piece] bytes, and a write is a session of begin, pieces
// and commit, which the server forgets when the link to its writer is lost. Nothing is seen of a write that was not committed. The streams
// at both ends need a MaxFrame of a piece and 64 KiB.
package remote

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/wire"
)

// Piece is the number of bytes of an object that travel in one frame.
const Piece = 1 << 20

// The kinds of request. An answer has the kind of its request, and answer added.
const (
	get uint8 = iota + 1
	list
	remove
	begin
	piece
	commit
	abort

	answer uint8 = 128
)

// A request is what a client asks for. Its number is the frame's Op.
type request struct {
	kind   uint8
	key    string // get, list (a prefix), remove, begin
	from   int64  // get
	length int64  // get
	absent bool   // begin: only if there is none
	write  uint64 // piece, commit, abort: the Op of the begin
}

const maxKey = 1 << 10

func (q *request) append(p []byte) []byte {
	p = wire.AppendString(p, q.key)
	p = wire.AppendUvarint(p, uint64(q.from))
	p = wire.AppendUvarint(p, uint64(q.length))
	p = wire.AppendUvarint(p, q.write)
	if q.absent {
		return append(p, 1)
	}
	return append(p, 0)
}

func decodeRequest(kind uint8, p []byte) (request, error) {
	if kind < get || kind > abort {
		return request{}, fmt.Errorf("blob: a request of unknown kind %d", kind)
	}
	r := wire.NewReader("blob request", p)
	q := request{
		kind: kind, key: r.String("key", maxKey), from: int64(r.Uvarint("from", 1<<62)), length: int64(r.Uvarint("length", Piece)),
		write: r.Uvarint("write", 1<<63), absent: r.Uvarint("absent", 1) == 1,
	}
	return q, r.Done()
}

// The codes of an answer's error: those that callers branch on.
const (
	codeNone uint8 = iota
	codeOther
	codeNotExist
	codeExist
	codeInvalid
)

var codes = map[uint8]error{codeNotExist: fs.ErrNotExist, codeExist: fs.ErrExist, codeInvalid: fs.ErrInvalid}

// A remoteError is an error of the store at the other end.
type remoteError struct {
	text string
	is   error // nil, or what errors.Is finds
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

func appendError(p []byte, err error) []byte {
	if err == nil {
		return append(p, codeNone)
	}
	code := codeOther
	for c, is := range codes {
		if errors.Is(err, is) {
			code = c
		}
	}
	text := err.Error()
	return wire.AppendString(append(p, code), text[:min(len(text), maxText)])
}

const maxText = 4 << 10

// readError reads what appendError wrote: the store's error, or none.
func readError(r *wire.Reader) error {
	code := uint8(r.Uvarint("code", uint64(codeInvalid)))
	if r.Err() != nil {
		return r.Err()
	}
	if code == codeNone {
		return nil
	}
	text := r.String("error", maxText)
	if r.Err() != nil {
		return r.Err()
	}
	return &remoteError{text, codes[code]}
}

func appendObjects(p []byte, objects []blob.Object) []byte {
	p = wire.AppendUvarint(p, uint64(len(objects)))
	for _, o := range objects {
		p = wire.AppendString(p, o.Key)
		p = wire.AppendUvarint(p, uint64(o.Size))
	}
	return p
}

const maxObjects = 1 << 16

func decodeObjects(p []byte) ([]blob.Object, error) {
	r := wire.NewReader("blob objects", p)
	var out []blob.Object
	for range r.Uvarint("objects", maxObjects) {
		out = append(out, blob.Object{Key: r.String("key", maxKey), Size: int64(r.Uvarint("size", 1<<62))})
		if r.Err() != nil {
			break
		}
	}
	return out, r.Done()
}
