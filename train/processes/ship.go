package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

// splitNames are those of shipped rows, by the number that a batch carries in its Op.
var splitNames = [3]string{"train", "valid", "test"}

// A shipment is data on its way to this worker.
type shipment struct {
	head   shipped
	schema trivium.Schema
	rows   [3]data.Builder
	err    error
	ended  bool
	done   chan struct{} // closed when all is there, or err is set
}

// take takes a message of the driver. It is called by one goroutine.
func (s *shipment) take(kind uint8, p []byte) {
	if s.ended {
		return
	}
	if s.err = s.add(kind, p); s.err == nil {
		for i, want := range s.head.Rows {
			if int64(s.rows[i].Rows()) < want {
				return
			}
		}
	}
	s.ended = true
	close(s.done)
}

func (s *shipment) add(kind uint8, p []byte) error {
	if kind == kindShip {
		if err := control.Decode("shipped data", p, &s.head); err != nil {
			return err
		}
		return json.Unmarshal(s.head.Schema, &s.schema)
	}
	if len(p) == 0 || int(p[0]) >= len(splitNames) {
		return errors.New("processes: shipped rows of an unknown split")
	}
	b, err := data.DecodeBatch(p[1:])
	if err != nil {
		return err
	}
	return s.rows[p[0]].Append(b)
}

// wait returns the data once it is all there.
func (s *shipment) wait(ctx context.Context) (*data.Splits, error) {
	select {
	case <-s.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.err != nil {
		return nil, fmt.Errorf("processes: the data that the driver sends: %w", s.err)
	}
	splits := &data.Splits{Checksum: s.head.Checksum, Notes: s.head.Notes}
	if len(s.head.Transform) > 0 {
		t, err := data.DecodeTransform(s.head.Transform)
		if err != nil {
			return nil, err
		}
		splits.Transform = t
	}
	for i, dst := range []*data.Dataset{&splits.Train, &splits.Valid, &splits.Test} {
		if s.head.Rows[i] > 0 {
			*dst = s.rows[i].Dataset(s.schema)
		}
	}
	return splits, nil
}

// shipRows is the number of rows of a message, unless they would be too large.
const shipRows = 512

// shipTo sends worker index of workers its shard of splits, and to number 0 what the model is measured on.
func (d *Driver) shipTo(ctx context.Context, to transport.Name, index int) error {
	splits := d.Data
	shard, err := data.Shard(ctx, splits.Train, data.ShardOptions{
		Part: index, Parts: d.Workers, Shuffle: d.Job.Data.Order != "index", Seed: d.Job.Seed,
	})
	if err != nil {
		return err
	}
	sets := [3]data.Dataset{shard, nil, nil}
	if index == 0 {
		sets[1], sets[2] = splits.Valid, splits.Test
	}
	head := shipped{Checksum: splits.Checksum, Notes: splits.Notes}
	if head.Schema, err = json.Marshal(splits.Train.Schema()); err != nil {
		return err
	}
	if splits.Transform != nil {
		if head.Transform, err = splits.Transform.Encode(); err != nil {
			return err
		}
	}
	for i, ds := range sets {
		if ds != nil {
			head.Rows[i] = ds.Rows()
		}
	}
	if err := d.send(ctx, to, kindShip, head); err != nil {
		return err
	}
	for i, ds := range sets {
		if ds == nil {
			continue
		}
		for b, err := range data.Batches(ctx, ds, data.BatchOptions{Batch: shipRows, IDs: true}) {
			if err != nil {
				return err
			}
			if err := d.shipBatch(ctx, to, byte(i), b); err != nil {
				return fmt.Errorf("processes: %s rows to %v: %w", splitNames[i], to, err)
			}
		}
	}
	return nil
}

// shipBatch sends b, in halves where it is too large for a message.
func (d *Driver) shipBatch(ctx context.Context, to transport.Name, split byte, b *trivium.Batch) error {
	p := data.AppendBatch([]byte{split}, b)
	if len(p) <= maxMessage/2 {
		return d.stream.Send(ctx, to, transport.Frame{Kind: kindRows, Payload: p})
	}
	if b.Rows == 1 {
		return fmt.Errorf("one row takes %d bytes, a message at most %d", len(p), maxMessage/2)
	}
	first, second := b.Slice(0, b.Rows/2), b.Slice(b.Rows/2, b.Rows)
	return errors.Join(d.shipBatch(ctx, to, split, &first), d.shipBatch(ctx, to, split, &second))
}
