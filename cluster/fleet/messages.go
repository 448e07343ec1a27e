package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// StreamName is the stream between a coordinator and its nodes.
const StreamName = "fleet"

// MaxMessage is the largest message in bytes: a process's configuration has at most launch.MaxConfig.
const MaxMessage = 2 << 20

// The kinds of message.
const (
	kindOffer   uint8 = iota + 1 // node: what it lends
	kindWelcome                  // coordinator: it is taken
	kindRefused                  // coordinator: it is not, and why
	kindStart                    // coordinator: start a process
	kindSignal                   // coordinator: send one a signal
	kindStarted                  // node: the answer to kindStart
	kindLine                     // node: a line of a process's standard error
	kindExited                   // node: a process has ended
	kindLeave                    // node: it is asked to end, and goes with all that runs there
)

// An Offer is what a machine lends.
type Offer struct {
	Host     string `cbor:"1,keyasint" json:"host"`
	Cores    int    `cbor:"2,keyasint" json:"cores"`
	Memory   int64  `cbor:"3,keyasint" json:"memory"` // bytes
	Build    string `cbor:"4,keyasint" json:"build"`  // of the program that its processes will run
	Platform string `cbor:"5,keyasint" json:"platform"`
	Addr     string `cbor:"6,keyasint" json:"addr"` // of the host, by which the others reach it
}

type refused struct {
	Why string `cbor:"1,keyasint"`
}

type start struct {
	Seq    uint64   `cbor:"1,keyasint"`
	Name   string   `cbor:"2,keyasint"`
	Args   []string `cbor:"3,keyasint,omitempty"`
	Config []byte   `cbor:"4,keyasint"`
}

type signalled struct {
	Seq    uint64 `cbor:"1,keyasint"`
	Signal int    `cbor:"2,keyasint"`
}

type started struct {
	Seq   uint64 `cbor:"1,keyasint"`
	PID   int    `cbor:"2,keyasint"`
	Error string `cbor:"3,keyasint,omitempty"`
}

type line struct {
	Seq  uint64 `cbor:"1,keyasint"`
	Text []byte `cbor:"2,keyasint"`
}

type exited struct {
	Seq    uint64        `cbor:"1,keyasint"`
	Code   int           `cbor:"2,keyasint"`
	Signal int           `cbor:"3,keyasint,omitempty"`
	Error  string        `cbor:"4,keyasint,omitempty"`
	Ran    time.Duration `cbor:"5,keyasint"`
	Stderr []string      `cbor:"6,keyasint,omitempty"`
}

// sendWait bounds a message: a peer that takes none for so long is as good as lost.
const sendWait = 10 * time.Second

// send sends v to a peer.
func send(ctx context.Context, s transport.Stream, to transport.Name, kind uint8, v any) error {
	f := transport.Frame{Kind: kind}
	if v != nil {
		p, err := control.Append(nil, v)
		if err != nil {
			return fmt.Errorf("fleet: message of kind %d: %w", kind, err)
		}
		f.Payload = p
	}
	ctx, cancel := context.WithTimeout(ctx, sendWait)
	defer cancel()
	if err := s.Send(ctx, to, f); err != nil {
		return fmt.Errorf("fleet: to %v: %w", to, err)
	}
	return nil
}
