package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// runWork is a job's life in the coordinator: it drives the workers, which run on the nodes.
func (s *session) runWork(ctx context.Context, w *fleet.Work, host string) fleet.Outcome {
	job := *s // also with a program's own metrics, which are looked at before the run is begun
	job.out, job.err = w.Log, w.Log
	err := job.drive(ctx, w, host)
	out := fleet.Outcome{}
	if kept, ok := errors.AsType[*keptError](err); ok {
		out.Why = kept.Error()
	} else if err != nil {
		out = fleet.Outcome{Code: Failed, Why: oneLine(err.Error())}
		var coded *codedError
		var gone *fleet.MachineLostError
		switch {
		case errors.As(err, &coded):
			out.Code = coded.code
		case errors.As(err, &gone): // before its worker ran there
			out.Code = Lost
		}
		fmt.Fprintf(job.err, "%s: %v\n", job.name, err)
	}
	return out
}

// oneLine makes a sentence of several lines, such as several mistakes or what a process printed last, one for a table of jobs.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(strings.TrimSpace(l), "\t", " ")
	}
	return strings.Join(lines, "; ")
}

func (s *session) drive(ctx context.Context, w *fleet.Work, host string) error {
	var sub submission
	if err := json.Unmarshal(w.Job.Spec.Payload, &sub); err != nil {
		return misused(fmt.Errorf("the job: %w", err))
	}
	job, err := trivium.DecodeJob(sub.Job)
	if err := errors.Join(err, checkName(sub.Name)); err != nil {
		return misused(err)
	}
	t := &training{
		job: job, typed: sub.Command, out: filepath.Join(w.Dir, jobRuns), name: sub.Name, threads: w.Job.Threads, every: sub.Every, topology: sub.Topology, options: sub.Options,
		workers: len(w.Nodes), machines: machines(w.Nodes), processes: true, show: newProgress(s.out, false, false, func(string) string { return "" }), called: w.Called,
		reached: func(p train.Progress) {
			if w.Reached != nil {
				w.Reached(fleet.Progress{Step: p.Step, Steps: p.Steps, SamplesSec: p.SamplesPerSec(), Left: p.Left()})
			}
		},
		restarts: w.Job.Spec.Restarts, restarted: w.Job.Restarts,
	}
	if w.Data != "" {
		f, err := os.Open(w.Data)
		if err != nil {
			return err
		}
		t.splits, err = data.Unship(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return misused(err)
		}
		t.ship = true
	}
	if w.Resume != "" {
		dir, err := os.MkdirTemp(filepath.Dir(w.Resume), "checkpoint-") // not among the job's files, which go back
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := unpackCheckpoint(w.Resume, filepath.Join(dir, sentCheckpoint)); err != nil {
			return misused(err)
		}
		if t.resume, t.from, err = loadCheckpoint(ctx, dir, sentCheckpoint); err != nil {
			return err
		}
		t.origin = sub.From
	}
	if t.restarted > 0 {
		if err := t.goOnInQueue(ctx, s); err != nil {
			return err
		}
		t.show.say("notice", t.begins())
	}
	if t.topology == linksName {
		m, err := assembleOn(ctx, w, host)
		if err != nil {
			return err
		}
		defer m.close()
		r, err := s.measure(ctx, t, m, sub.Options)
		if err != nil {
			return err
		}
		_, err = s.out.Write(r)
		return err
	}
	t.assemble = func(ctx context.Context) (*team, error) { return assembleOn(ctx, w, host) }
	if err := s.train(ctx, t); err != nil || t.dir != "" {
		return onMachine(err, w.Nodes)
	}
	return &keptError{filepath.Dir(t.kept)}
}

// onMachine adds to what a worker says the machine that it was on: whose file is not there, or whose memory was too small.
func onMachine(err error, nodes []fleet.Lent) error {
	worker, ok := errors.AsType[*processes.WorkerError](err)
	if !ok || worker.Index >= len(nodes) {
		return err
	}
	return fmt.Errorf("on %s, %w", nodes[worker.Index].ID, err)
}

// machines counts those that lend themselves to a job, each once however many of its workers it has.
func machines(lent []fleet.Lent) int {
	ids := map[string]bool{}
	for _, m := range lent {
		ids[m.ID] = true
	}
	return len(ids)
}

// A keptError says that a job is done, and its model not among what its submitter gets.
type keptError struct{ kept string }

func (e *keptError) Error() string {
	return fmt.Sprintf("the run directory could not be written, and its model is in %s on the coordinator's machine", e.kept)
}

// sentCheckpoint is the name, at the coordinator, of the checkpoint that came with a job.
const sentCheckpoint = "step-sent"

func unpackCheckpoint(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := fleet.Unpack(f, dir); err != nil {
		return fmt.Errorf("the checkpoint that came with the job: %w", err)
	}
	return nil
}

// assembleOn makes the team of a job whose workers run on nodes.
func assembleOn(ctx context.Context, w *fleet.Work, host string) (_ *team, err error) {
	m := &team{log: slog.New(slog.NewTextHandler(w.Log, &slog.HandlerOptions{Level: slog.LevelError})), launcher: keepOpen{w.Launcher}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.sockets, err = newFolder(); err != nil { // the driver's; each machine has its own
		return nil, err
	}
	secret := newSecret()
	plain := loopback(host)
	for _, n := range w.Nodes {
		plain = plain && loopback(n.Offer.Addr)
	}
	network := func(name transport.Name, host string) (processes.Network, error) {
		n := processes.Network{Secret: secret, Listen: net.JoinHostPort(host, "0")}
		if plain { // nothing leaves this machine
			return n, nil
		}
		id, err := w.Identity(processes.CertName(name))
		if err != nil {
			return n, err
		}
		n.Identity, err = id.Encode()
		return n, err
	}
	// Other coordinators have jobs of this number too, maybe on the same machines.
	name := transport.Name{Job: w.Job.ID + "-" + rand.Text()[:8], Role: "driver", ID: "0", Incarnation: 1}
	own, err := network(name, host)
	if err != nil {
		return nil, err
	}
	own.Dir = m.sockets.Path
	opened, err := own.Open()
	if err != nil {
		return nil, err
	}
	if m.port, err = opened.Open(ctx, name, own.Options(m.log)); err != nil {
		return nil, err
	}
	m.networkOf = func(worker transport.Name, index int) (processes.Network, error) {
		return network(worker, w.Nodes[index].Offer.Addr)
	}
	return m, nil
}
