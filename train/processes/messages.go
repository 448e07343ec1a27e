package processes

import (
	"fmt"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// The streams between a driver and its workers, beside those of the strategy.
const (
	jobStream    = "job"     // the messages of this file
	metaStream   = "meta"    // package cluster/meta
	blobStream   = "blob"    // package blob/remote: where checkpoints go
	resumeStream = "resume"  // likewise: where the one to resume from is
	viewStream   = "cluster" // between workers: package cluster
)

// The kinds of message on the job stream.
const (
	kindHello        uint8 = iota + 1 // worker: it runs, and what it is
	kindReady                         // worker: the data is open
	kindBegin                         // worker: training begins
	kindProgress                      // worker
	kindEvaluated                     // worker
	kindCheckpointed                  // worker
	kindSaid                          // worker: a note or a notice
	kindObservation                   // worker: a payload of package observe/relay
	kindResult                        // worker: its last
	kindRows                          // driver: a piece of shipped data, as data.Ship writes it; an empty one is the end
	kindStop                          // driver: finish the update at hand, save, and end
	kindAbort                         // driver: the job has failed; end at once
	kindDied                          // driver: another worker is gone
	kindEnd                           // driver: the result is known, the worker may go
	kindAlive                         // worker: it is still there, every aliveEvery
	kindReport                        // worker of rank 0: a piece of its strategy's report, before its result
	kindAsked                         // worker: its process was asked to end, and so the job is
)

type hello struct {
	Build string `cbor:"1,keyasint"`
	Host  string `cbor:"2,keyasint"`
	PID   int    `cbor:"3,keyasint"`
}

type ready struct {
	Checksum string   `cbor:"1,keyasint"` // of the data; empty: not taken, since the program generates it
	Rows     int64    `cbor:"2,keyasint"` // for training, in all
	Schema   []byte   `cbor:"3,keyasint"` // JSON of trivium.Schema
	Notes    []string `cbor:"4,keyasint,omitempty"`
	Label    string   `cbor:"5,keyasint,omitempty"` // the column of the labels
}

// position is a train.Progress with what the message adds.
type position struct {
	Step         int64              `cbor:"1,keyasint"`
	Steps        int64              `cbor:"2,keyasint"`
	Epoch        int                `cbor:"3,keyasint"`
	Epochs       int                `cbor:"4,keyasint"`
	Row          int64              `cbor:"5,keyasint"`
	Rows         int64              `cbor:"6,keyasint"`
	Samples      int64              `cbor:"7,keyasint"`
	Loss         float64            `cbor:"8,keyasint"`
	EpochLoss    float64            `cbor:"9,keyasint"`
	Elapsed      time.Duration      `cbor:"10,keyasint"`
	Began        int64              `cbor:"11,keyasint"`
	BeganSamples int64              `cbor:"12,keyasint"`
	Metrics      map[string]float64 `cbor:"13,keyasint,omitempty"` // kindEvaluated
	Name         string             `cbor:"14,keyasint,omitempty"` // kindCheckpointed
}

func positionOf(p train.Progress) position {
	return position{
		p.Step, p.Steps, p.Epoch, p.Epochs, p.Row, p.Rows, p.Samples, p.Loss, p.EpochLoss, p.Elapsed, p.Began, p.BeganSamples, nil, "",
	}
}

func (p *position) progress() train.Progress {
	return train.Progress{
		Step: p.Step, Steps: p.Steps, Epoch: p.Epoch, Epochs: p.Epochs, Row: p.Row, Rows: p.Rows, Samples: p.Samples, Loss: p.Loss,
		EpochLoss: p.EpochLoss, Elapsed: p.Elapsed, Began: p.Began, BeganSamples: p.BeganSamples,
	}
}

// passed is how many epochs have ended; Progress counts the one at work, or that just ended, as well.
func (p *position) passed() int {
	if p.Row == p.Rows {
		return p.Epoch
	}
	return p.Epoch - 1
}

type said struct {
	Notice bool          `cbor:"1,keyasint"` // train.Watch.Notice, else Note
	Level  observe.Level `cbor:"2,keyasint"`
	Text   string        `cbor:"3,keyasint"`
}

// A fault says whose an error is to mend: what a command's exit code is made of.
type fault uint8

const (
	faultNone fault = iota
	faultOther
	faultMisuse      // the job or its data: a train.JobError
	faultDiverged    // a trivium.DivergedError
	faultUnreachable // a peer was lost
)

type result struct {
	Reason  trivium.Reason     `cbor:"1,keyasint"`
	Steps   int64              `cbor:"2,keyasint"`
	Epochs  int                `cbor:"3,keyasint"`
	Samples int64              `cbor:"4,keyasint"`
	Metrics map[string]float64 `cbor:"5,keyasint,omitempty"`
	Fault   fault              `cbor:"6,keyasint"`
	Error   string             `cbor:"7,keyasint"`
	Tensor  string             `cbor:"8,keyasint,omitempty"` // faultDiverged
	Loss    float64            `cbor:"9,keyasint,omitempty"`
	Lost    string             `cbor:"11,keyasint,omitempty"` // faultUnreachable: the process that is lost, as ROLE/ID; empty: not known
	Step    int64              `cbor:"12,keyasint,omitempty"` // faultDiverged: the update, the last or the one after
	Largest string             `cbor:"13,keyasint,omitempty"` // faultDiverged
}

// died names a worker that is gone, and how that is known.
type died struct {
	Role        string `cbor:"1,keyasint"`
	ID          string `cbor:"2,keyasint"`
	Incarnation uint64 `cbor:"3,keyasint"`
	Why         string `cbor:"4,keyasint"`
}

// message makes the frame of v, which is nil for kinds without content.
func message(kind uint8, v any) (transport.Frame, error) {
	f := transport.Frame{Kind: kind, Priority: transport.Data}
	if v == nil {
		return f, nil
	}
	p, err := control.Append(nil, v)
	if err != nil {
		return f, fmt.Errorf("processes: message of kind %d: %w", kind, err)
	}
	f.Payload = p
	return f, nil
}
