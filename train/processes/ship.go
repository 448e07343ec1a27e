package processes

import (
	"context"
	"fmt"
	"io"

	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/transport"
)

// A shipment is data on its way to this worker: what data.Ship wrote at the driver, in messages.
type shipment struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newShipment() shipment {
	r, w := io.Pipe()
	return shipment{r, w}
}

// take takes a message of the driver; an empty one is the end.
func (s *shipment) take(p []byte) {
	if len(p) == 0 {
		_ = s.w.Close() // never fails
		return
	}
	_, _ = s.w.Write(p) // an error is that of the reader, who tells
}

// wait returns the data once it is all there.
func (s *shipment) wait(ctx context.Context) (*data.Splits, error) {
	defer context.AfterFunc(ctx, func() { s.w.CloseWithError(context.Cause(ctx)) })()
	splits, err := data.Unship(s.r)
	s.close()
	if err != nil {
		return nil, fmt.Errorf("processes: the data that the driver sends: %w", err)
	}
	return splits, nil
}

// close refuses what still comes.
func (s *shipment) close() { _ = s.r.Close() } // never fails

// shipTo sends worker index its rows of the driver's data, and to number 0 what the model is measured on. They are its shard, or, where
// each update is shared out anew, all.
func (d *Driver) shipTo(ctx context.Context, to transport.Name, index int) error {
	rows := d.Data.Measured() // what classes weigh, the transform says
	if d.Topology.Shards {
		var err error
		rows, err = data.Shard(ctx, rows, data.ShardOptions{
			Part: index, Parts: d.Workers, Shuffle: d.Job.Data.Order != "index", Seed: d.Job.Seed,
		})
		if err != nil {
			return err
		}
	}
	s := data.Splits{Train: rows, Transform: d.Data.Transform, Checksum: d.Data.Checksum, Notes: d.Data.Notes}
	if index == 0 {
		s.Valid, s.Test = d.Data.Valid, d.Data.Test
	}
	w := &shipWriter{ctx: ctx, d: d, to: to}
	if err := data.Ship(ctx, w, &s); err != nil {
		return fmt.Errorf("processes: rows to %v: %w", to, err)
	}
	return w.send(nil)
}

// A shipWriter sends what is written to it as messages.
type shipWriter struct {
	ctx context.Context
	d   *Driver
	to  transport.Name
}

func (w *shipWriter) Write(p []byte) (int, error) {
	for at := 0; at < len(p); at += maxMessage / 2 {
		if err := w.send(p[at:min(len(p), at+maxMessage/2)]); err != nil {
			return at, err
		}
	}
	return len(p), nil
}

func (w *shipWriter) send(p []byte) error {
	return w.d.stream.Send(w.ctx, w.to, transport.Frame{Kind: kindRows, Payload: p})
}
