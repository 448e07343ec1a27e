package server

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/tensor"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// TestCutStoreState: the state is what it was when its first byte was asked for, however many pieces it is read in; a snapshot that was read, and a
// state that was, are let go of, each by a word of its own.
func TestCutStoreState(t *testing.T) {
	made := 0
	s := cutStore{state: func() ([]byte, error) {
		made++
		return []byte{byte(made), byte(made), byte(made)}, nil
	}}
	get := func(key string, from, length int64) string {
		t.Helper()
		r, err := s.Get(t.Context(), key, from, length)
		if err != nil {
			t.Fatal(err)
		}
		p, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(p)
	}
	if err := s.Put(t.Context(), "ps-5.1/a", strings.NewReader("cut")); err != nil {
		t.Fatal(err)
	}
	if got := get(stateKey, 0, 2) + get(stateKey, 2, 2) + get(stateKey, 0, -1); got != "\x01\x01\x01\x02\x02\x02" {
		t.Errorf("the state is read as %q", got)
	}
	get(stateDoneKey, 0, -1)
	if s.now != nil || get("ps-5.1/a", 0, -1) != "cut" {
		t.Errorf("after the state was read %d bytes of it are kept, and of the snapshot %d objects", len(s.now), len(s.objs))
	}
	get(stateKey, 0, -1)
	get(doneKey, 0, -1)
	if s.now == nil || len(s.objs) > 0 {
		t.Errorf("after the snapshot was read %d of its objects are kept, and %d bytes of the state", len(s.objs), len(s.now))
	}
	s.state = func() ([]byte, error) { return nil, errors.New("closed") }
	if _, err := s.Get(t.Context(), stateKey, 0, -1); err == nil || err.Error() != "closed" {
		t.Errorf("a state that cannot be told: %v", err)
	}
}

// TestCutStoreNewest: the lanes of a server share its store. One that still writes a snapshot that was put off does not end what another
// has written of the next.
func TestCutStoreNewest(t *testing.T) {
	var s cutStore
	has := func(key string) bool {
		t.Helper()
		r, err := s.Get(t.Context(), key, 0, -1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil && r.Close() == nil
	}
	for _, key := range []string{"ps-5.1/a", "ps-9.2/b", "ps-5.1/c", "ps-9.2/d"} {
		if err := s.Put(t.Context(), key, strings.NewReader(key)); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]bool{"ps-5.1/a": false, "ps-9.2/b": true, "ps-5.1/c": false, "ps-9.2/d": true} {
		if has(key) != want {
			t.Errorf("%s is there: %t, want %t", key, !want, want)
		}
	}
	if err := s.Put(t.Context(), "model", strings.NewReader("")); err == nil || !strings.Contains(err.Error(), `"model"`) {
		t.Errorf("an object of no snapshot: %v", err)
	}
}

// TestCutForgotten: servers hold what they wrote of a snapshot until worker 0 has read it, and not for the rest of the run.
func TestCutForgotten(t *testing.T) {
	j := &trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits", Rows: 300}, Batch: 10, Steps: 28, Seed: 9,
		Optimizer: trivium.OptimizerSpec{Name: "adam", Rate: 0.01},
	}
	splits, err := data.Open(t.Context(), j.Data, data.Options{Sources: traintest.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	store := blob.Dir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		cpu := tensor.NewCPU(1, false)
		defer cpu.Close()
		o := Options{Mode: ps.SSP, Servers: 2, Lanes: 2, Slow: Slow{Factor: 1, Unit: time.Millisecond}}
		env := train.Env{Splits: splits, Blob: store, Checkpoints: train.Checkpoints{Every: 10, Keep: 100}, CPU: cpu, Shares: true}
		run, err := train.Open(t.Context(), env, j, "server")
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		c, err := newCluster(t.Context(), &env, o, j, run.Recorder, 4*run.Layout().Len())
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if _, err := (&worker{run: run, env: &env, o: o, job: j, cluster: c}).train(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, s := range c.memory {
			s.cuts.mu.Lock()
			if n := len(s.cuts.objs); s.cuts.cut == 0 || n > 0 || s.cuts.tell != nil {
				t.Errorf("server %d: of snapshot %d it still has %d objects and a manifest of %d bytes", i, s.cuts.cut, n, len(s.cuts.tell))
			}
			s.cuts.mu.Unlock()
		}
	})
	if names, err := checkpoint.List(t.Context(), store); err != nil || len(names) != 3 {
		t.Errorf("%d checkpoints, want two that are cut, and that at the end: %v", len(names), err)
	}
}
