package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/tensor"
)

// maxRestarts is more than machines that are worth their time can need.
const maxRestarts = 1000

// checkRestarts refuses --restarts where no process but this one trains, or too many.
func (v *trainVerb) checkRestarts() error {
	switch {
	case v.Restarts == 0:
	case v.Restarts > maxRestarts:
		return fmt.Errorf("--restarts: want at most %d, found %d", maxRestarts, v.Restarts)
	case !v.Processes && v.On == "":
		return errors.New("--restarts: only workers in processes of their own are lost one by one: give --processes, or --on with a cluster")
	}
	return nil
}

// trainThrough trains t and, where one of its processes is lost, what is left of it, as often as t.restarts says: each time as a run of its own.
func (s *session) trainThrough(ctx context.Context, t *training) error {
	for {
		rest := *t
		lost := s.train(ctx, t)
		if !isLost(lost) || t.restarted == t.restarts || ctx.Err() != nil {
			return lost
		}
		rest.restarted++
		if t.saved != "" {
			if err := rest.goOnFrom(ctx, s, t.kept); err != nil {
				rest.show.say("notice", lost.Error())
				return err
			}
		}
		rest.show.say("notice", fmt.Sprintf("%v; %s", lost, rest.begins()))
		t = &rest
	}
}

// begins says where a restart begins.
func (t *training) begins() string {
	words := fmt.Sprintf("restart %d of %d ", t.restarted, t.restarts)
	switch {
	case t.resume != nil:
		return words + "goes on from update " + thousands(t.resume.Progress.Step)
	case t.keeps != "":
		return words + fmt.Sprintf("begins from the start, since the workers alone have %s of each row", t.keeps)
	}
	return words + "begins from the start, since there was no checkpoint yet"
}

// goOnFrom has t begin with the newest checkpoint of a folder, or with the one before it where that is damaged. A model that cannot be resumed
// begins as it did.
func (t *training) goOnFrom(ctx context.Context, s *session, dir string) error {
	c, name, err := loadCheckpoint(ctx, dir, "")
	if damaged, ok := errors.AsType[*checkpoint.CorruptError](err); ok && damaged.Previous != "" {
		t.show.say("notice", fmt.Sprintf("%v; the one before it, %s, is taken", err, damaged.Previous))
		c, name, err = loadCheckpoint(ctx, dir, damaged.Previous)
	}
	if err != nil {
		return err
	}
	if t.keepOf(s, c); t.keeps == "" {
		t.resume, t.from, t.origin = c, name, name
	}
	return nil
}

// keepOf is keep of the model that c is of.
func (t *training) keepOf(s *session, c *checkpoint.Checkpoint) {
	cpu := tensor.NewCPU(1, c.Job.Exact)
	defer cpu.Close()
	if m, err := s.models.Build(c.Job.Model, c.Schema, cpu); err == nil {
		t.keep(m)
	}
}

// goOnInQueue has t, which a cluster's coordinator begins again, go on from where its newest run with a checkpoint was. Without one it begins
// as it did.
func (t *training) goOnInQueue(ctx context.Context, s *session) error {
	runs, err := readRuns(t.out)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(runs) {
		dir := filepath.Join(r.Dir, checkpointsDir)
		if names, err := checkpoint.List(ctx, blob.Dir(dir)); err != nil {
			return err
		} else if len(names) > 0 {
			return t.goOnFrom(ctx, s, dir)
		}
	}
	return nil
}
