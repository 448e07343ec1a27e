package meta

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

// The kinds of frame. A request has a number, under which its answers come; a watch has many.
const (
	kindRequest uint8 = 1 + iota
	kindAnswer
)

type operation uint8

// The operations of a request.
const (
	opReset  operation = iota // forget all that I asked for before: the link was lost. Both sides send it
	opCancel                  // forget the request of that number
	opMore                    // I have taken rev more answers of that watch
	opGet
	opPutIf
	opWatch
	opGrant
	opKeep
	opRevoke
	opEnd // behind the last one
)

// A request is what a client asks. The value travels as the frame's payload.
type request struct {
	op       operation
	id       uint64
	key      string
	hasValue bool
	rev      int64
	lease    cluster.Lease
	ttl      time.Duration
	limit    time.Duration // that the client waits at most; 0: for ever
}

func (q *request) append(p []byte) []byte {
	flag := uint64(0)
	if q.hasValue {
		flag = 1
	}
	p = wire.AppendUvarint(p, uint64(q.op))
	p = wire.AppendUvarint(p, q.id)
	p = wire.AppendString(p, q.key)
	p = wire.AppendUvarint(p, flag)
	p = wire.AppendUint64(p, uint64(q.rev))
	p = wire.AppendUint64(p, uint64(q.lease))
	p = wire.AppendUint64(p, uint64(q.ttl))
	return wire.AppendUint64(p, uint64(q.limit))
}

func (q *request) parse(p []byte) error {
	r := wire.NewReader("meta: request", p)
	*q = request{
		op: operation(r.Uvarint("operation", uint64(opEnd)-1)), id: r.Uvarint("number", math.MaxUint64), key: r.String("key", MaxKey),
		hasValue: r.Uvarint("value", 1) == 1, rev: int64(r.Uint64("revision")), lease: cluster.Lease(r.Uint64("lease")),
		ttl: time.Duration(r.Uint64("time to live")), limit: time.Duration(r.Uint64("limit")),
	}
	return r.Done()
}

// An answer is what the server found: a key, a revision, a lease, or what is wrong.
type answer struct {
	id       uint64 // of the request; 0: forget all that you asked for before
	code     uint64 // index into sentinels, and from len(sentinels) on: another error
	text     string // of the error
	key      string
	hasValue bool
	rev      int64
	lease    int64
}

// maxText is the largest length of an error's text on the wire.
const maxText = 2048

// sentinels are the errors that a caller tells apart. Their place is their code: do not move them.
var sentinels = []error{
	nil, protocol.ErrConflict, protocol.ErrUnavailable, cluster.ErrLeaseLost, cluster.ErrCompacted,
}

func (a *answer) append(p []byte) []byte {
	flag := uint64(0)
	if a.hasValue {
		flag = 1
	}
	p = wire.AppendUvarint(p, a.id)
	p = wire.AppendUvarint(p, a.code)
	p = wire.AppendString(p, a.text)
	p = wire.AppendString(p, a.key)
	p = wire.AppendUvarint(p, flag)
	p = wire.AppendUint64(p, uint64(a.rev))
	return wire.AppendUint64(p, uint64(a.lease))
}

func (a *answer) parse(p []byte) error {
	r := wire.NewReader("meta: answer", p)
	*a = answer{
		id: r.Uvarint("number", math.MaxUint64), code: r.Uvarint("code", uint64(len(sentinels))), text: r.String("text", maxText),
		key: r.String("key", MaxKey), hasValue: r.Uvarint("value", 1) == 1, rev: int64(r.Uint64("revision")),
		lease: int64(r.Uint64("lease")),
	}
	return r.Done()
}

// fail puts an error into a.
func (a *answer) fail(err error) {
	a.code, a.text = uint64(len(sentinels)), err.Error()
	for code, sentinel := range sentinels {
		if code > 0 && errors.Is(err, sentinel) {
			a.code = uint64(code)
			break
		}
	}
	a.text = a.text[:min(len(a.text), maxText)]
}

// err is what fail was given, as far as it travels.
func (a *answer) err(from fmt.Stringer) error {
	if a.code == 0 {
		return nil
	}
	remote := &remoteError{text: fmt.Sprintf("%s (told by %s)", a.text, from)}
	if a.code < uint64(len(sentinels)) {
		remote.is = sentinels[a.code]
	}
	return remote
}

// A remoteError has the text of the other side's error, and its sentinel.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }
