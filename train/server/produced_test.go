package server_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestProduced: a run has the numbers that the catalogue promises of it. One worker is slow, so that the others wait for it.
func TestProduced(t *testing.T) {
	j := job()
	j.Data.Rows, j.Data.Train, j.Data.Test, j.Batch, j.Epochs = 500, "0:400", "400:", 100, 3
	hub := observe.NewHub(observe.Options{Start: time.Now()})
	o := server.Options{Mode: ps.SSP, Staleness: 1, Slow: server.Slow{Worker: 1, Factor: 3, Unit: time.Millisecond}}
	c := &crew{env: train.Env{Run: "r", Observe: hub, Blob: blob.Dir(t.TempDir())}, workers: 3, servers: 1, o: o}
	if _, err := c.Train(t.Context(), j); err != nil {
		t.Fatal(errors.Join(c.errs...))
	}
	traintest.Produced(t, "server", hub)
}
