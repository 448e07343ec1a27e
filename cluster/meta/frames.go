package meta

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire/control"
)

// The kinds of frame. A request has a number, under which its answers come; a watch has many. Both are control messages, coded as
// package wire/control does.
const (
	kindRequest uint8 = 1 + iota
	kindAnswer
)

type operation uint8

// The operations of a request. None has the number 0, which is what a message without one would mean.
const (
	opReset  operation = 1 + iota // forget all that I asked for before: the link was lost. Both sides send it
	opCancel                      // forget the request of that number
	opMore                        // I have taken rev more answers of that watch
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
	Op       operation     `cbor:"1,keyasint"`
	ID       uint64        `cbor:"2,keyasint"`
	Key      control.Bytes `cbor:"3,keyasint"` // any bytes may stand in a key
	HasValue bool          `cbor:"4,keyasint"`
	Rev      int64         `cbor:"5,keyasint"`
	Lease    cluster.Lease `cbor:"6,keyasint"`
	TTL      time.Duration `cbor:"7,keyasint"`
	Limit    time.Duration `cbor:"8,keyasint"` // that the client waits at most; 0: for ever
}

// parse reads a request that may come from anyone.
func (q *request) parse(p []byte) error {
	*q = request{}
	err := control.Decode("a request", p, q)
	switch {
	case err != nil:
	case q.Op == 0 || q.Op >= opEnd:
		err = fmt.Errorf("a request has an operation from 1 to %d, got %d", opEnd-1, q.Op)
	case len(q.Key) > MaxKey:
		err = fmt.Errorf("a request's key has at most %d bytes, got %d", MaxKey, len(q.Key))
	}
	if err != nil {
		return fmt.Errorf("meta: %w", err)
	}
	return nil
}

// An answer is what the server found: a key, a revision, a lease, or what is wrong.
type answer struct {
	ID       uint64        `cbor:"1,keyasint"` // of the request; 0: forget all that you asked for before
	Code     int           `cbor:"2,keyasint"` // index into sentinels, and len(sentinels): another error
	Text     string        `cbor:"3,keyasint"` // of the error
	Key      control.Bytes `cbor:"4,keyasint"`
	HasValue bool          `cbor:"5,keyasint"`
	Rev      int64         `cbor:"6,keyasint"`
	Lease    int64         `cbor:"7,keyasint"`
}

// maxText is the largest length of an error's text on the wire.
const maxText = 2048

// sentinels are the errors that a caller tells apart. Their place is their code: do not move them.
var sentinels = []error{
	nil, protocol.ErrConflict, protocol.ErrUnavailable, cluster.ErrLeaseLost, cluster.ErrCompacted,
}

// parse reads an answer that may come from anyone.
func (a *answer) parse(p []byte) error {
	*a = answer{}
	err := control.Decode("an answer", p, a)
	switch {
	case err != nil:
	case a.Code < 0 || a.Code > len(sentinels):
		err = fmt.Errorf("an answer has a code from 0 to %d, got %d", len(sentinels), a.Code)
	case len(a.Text) > maxText:
		err = fmt.Errorf("an answer's text has at most %d bytes, got %d", maxText, len(a.Text))
	case len(a.Key) > MaxKey:
		err = fmt.Errorf("an answer's key has at most %d bytes, got %d", MaxKey, len(a.Key))
	}
	if err != nil {
		return fmt.Errorf("meta: %w", err)
	}
	return nil
}

// fail puts an error into a. Its text is cut, and made the UTF-8 that text is on the wire.
func (a *answer) fail(err error) {
	a.Code, a.Text = len(sentinels), err.Error()
	for code, sentinel := range sentinels {
		if code > 0 && errors.Is(err, sentinel) {
			a.Code = code
			break
		}
	}
	a.Text = strings.ToValidUTF8(a.Text[:min(len(a.Text), maxText)], "?")
}

// err is what fail was given, as far as it travels.
func (a *answer) err(from fmt.Stringer) error {
	if a.Code == 0 {
		return nil
	}
	remote := &remoteError{text: fmt.Sprintf("%s (told by %s)", a.Text, from)}
	if a.Code < len(sentinels) {
		remote.is = sentinels[a.Code]
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
