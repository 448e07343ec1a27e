package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/ps"
)

// rerunVerb repeats a run.
type rerunVerb struct {
	Name    string `arg:"" name:"run" help:"A run: its folder, its name, the beginning of its name, or last."`
	Out     string `default:"runs" placeholder:"DIR" help:"Where the runs are, and where the new one goes (default runs)."`
	Threads amount `placeholder:"N" help:"Threads (default: as train without them). They change no bit."`
	JSON    bool   `name:"json" help:"Print a JSON object a line."`
	Quiet   bool   `short:"q" help:"Print only what differs."`
}

func (rerunVerb) Help() string {
	return "Trains the same job on the same data and compares the parameters bit for bit. Exits with 0 if they are the same, else with 1, naming what differs between the runs: the code, the data's checksum, the kernels. Of the topologies, server repeats its bits only under bsp."
}

func (v *rerunVerb) Run(ctx context.Context, s *session) error {
	if err := checkThreads(v.Threads); err != nil {
		return misused(err)
	}
	old, err := findRun(v.Out, v.Name)
	if err != nil {
		return err
	}
	if err := old.noResult(); err != nil {
		return misused(fmt.Errorf("rerun: there is nothing to compare with: %w", err))
	}
	if old.Result == nil {
		return misusedf("rerun: %s has not finished: there is nothing to compare with", old.Dir)
	}
	job, err := old.job()
	if err != nil {
		return misused(fmt.Errorf("rerun: %s: %w; only as it was written can it be repeated", filepath.Join(old.Dir, "run.json"), err))
	}
	if err := s.checkOptimizer(job); err != nil {
		return misused(fmt.Errorf("rerun: %s: %w", old.Dir, err))
	}
	want, _, err := loadCheckpoint(ctx, filepath.Join(old.Dir, checkpointsDir), "")
	if err != nil {
		return err
	}
	if old.Result.Reason == string(trivium.Interrupted) || old.Result.ExitCode != Done {
		job.Steps = want.Progress.Step // it came so far
	} else if want.Progress.Step != old.Result.Steps {
		return misusedf("rerun: %s ended after update %d, and its newest checkpoint is of update %d: there is nothing to compare with", old.Dir,
			old.Result.Steps, want.Progress.Step)
	}
	t := &training{
		job: job, typed: s.typed, out: v.Out, threads: int(v.Threads), show: newProgress(s.out, v.JSON, v.Quiet, os.Getenv),
		topology: old.Head.Strategy, workers: max(1, old.Head.Workers), servers: old.Head.Servers, options: old.Head.Options,
		every: old.Head.CheckpointEvery, needed: true,
	}
	t.again = []string{s.command, "rerun", old.Dir} // last is another by then
	if v.Out != "runs" {
		t.again = append(t.again, "--out", v.Out)
	}
	if v.Threads > 0 {
		t.again = append(t.again, "--threads", fmt.Sprint(v.Threads))
	}
	want.Optimizer, want.Codecs = nil, nil // only parameters are compared: the rest is not for the run
	debug.FreeOSMemory()
	t.check = func(k facts) error {
		if k.checksum != old.Head.DataChecksum {
			return fmt.Errorf("rerun: the data has changed: its checksum is %s, the run had %s", k.checksum, old.Head.DataChecksum)
		}
		return nil
	}
	if err := s.train(ctx, t); err != nil {
		return err
	}
	debug.FreeOSMemory() // of the training
	got, _, err := loadCheckpoint(ctx, filepath.Join(t.dir, checkpointsDir), "")
	if err != nil {
		return err
	}
	fresh, err := findRun(v.Out, t.dir)
	if err != nil {
		return err
	}
	differences := old.conditions(fresh)
	wrong, first := unequal(want.Params, got.Params)
	if got.Progress.Step != want.Progress.Step {
		wrong, first = max(wrong, 1), fmt.Sprintf("the number of updates, %d in place of %d", got.Progress.Step, want.Progress.Step)
	}
	if v.JSON {
		if err := json.NewEncoder(s.out).Encode(map[string]any{
			"event": "rerun", "same": wrong == 0, "parameters": len(want.Params.Flat), "different": wrong, "first": first,
			"conditions": differences, "run": t.dir,
		}); err != nil {
			return err
		}
	} else if wrong == 0 && !v.Quiet {
		fmt.Fprintf(s.out, "the same bits: %s parameters after %s updates\n", thousands(int64(len(want.Params.Flat))), thousands(want.Progress.Step))
		for _, d := range differences {
			fmt.Fprintf(s.out, "although %s\n", d)
		}
	}
	if wrong == 0 {
		return nil
	}
	why := whyOther(looseMode(t), slices.Concat(differences, otherOrder(t, old.Head.Machines), old.resumed(fresh)), s.name)
	return fmt.Errorf("rerun: %s of %s parameters differ, first in %s; %s", thousands(int64(wrong)), thousands(int64(len(want.Params.Flat))), first, why)
}

// job is what the run trained, by options that its topology reads.
func (r *run) job() (*trivium.Job, error) {
	err := checkTopology(r.Head.Strategy)
	switch r.Head.Strategy {
	case summed:
		_, err = summedOptions(r.Head.Options)
	case served:
		_, err = serverOptions(r.Head.Options)
	}
	if err != nil {
		return nil, err
	}
	job, err := trivium.DecodeJob(r.Head.Configuration)
	if err != nil {
		return nil, err
	}
	var encoded bytes.Buffer // as it was before the file was indented
	if err := json.Compact(&encoded, r.Head.Configuration); err != nil {
		return nil, err
	}
	if found := trivium.HashEncoded(encoded.Bytes()); found != r.Head.ConfigurationHash {
		return nil, fmt.Errorf("its configuration is not the one that was trained: that has the hash %s, this %s", r.Head.ConfigurationHash, found)
	}
	return job, nil
}

// whyOther says why a rerun has other bits: its mode leaves them to chance, or its conditions differ, or else it is this program's fault.
func whyOther(loose string, differences []string, program string) string {
	var why []string
	if loose != "" {
		why = append(why, fmt.Sprintf("under %s what a worker reads depends on who is late: only bsp repeats", loose))
	}
	if len(differences) > 0 {
		why = append(why, "what differs: "+strings.Join(differences, "; "))
	}
	if len(why) == 0 {
		return "job, data, code and kernels are the same: this is a fault of " + program
	}
	return strings.Join(why, "; ")
}

// looseMode is the consistency of a training whose bits depend on time; empty: there is none.
func looseMode(t *training) string {
	o, err := serverOptions(t.options)
	if t.topology != served || err != nil || o.Mode == ps.BSP {
		return ""
	}
	return o.Mode.String()
}

// otherOrder is what may have allreduce add in another order, and is not among the conditions; machines is how many the run was on, of a cluster
// (a rerun is on one). With --calibrate the order is what was measured, and with --compress auto so is what is encoded. Else gradients of more than
// 16 KiB are added by machines where some workers share one, and small gradients of workers whose number is no power of two otherwise on one host
// with fewer than two cores for each (collective.Group.Crowd). Two workers add in one order: a sum of two has no other.
func otherOrder(t *training, machines int) (out []string) {
	n := t.workers
	o, err := summedOptions(t.options)
	if t.topology != summed || t.job.Exact || n < 2 || err != nil {
		return nil
	}
	if o.Auto() {
		return []string{fmt.Sprintf("perhaps what --compress %s measured: it decides which sums are encoded, and in which order %s adds", o.Compress, summed)}
	}
	if n < 3 {
		return nil
	}
	if o.Calibrate {
		return []string{fmt.Sprintf("perhaps what --calibrate measured: it decides in which order %s adds, but with --exact", summed)}
	}
	if n&(n-1) != 0 {
		out = append(out, fmt.Sprintf("perhaps the cores: whether each of %d workers has two decides in which order %s adds small gradients, but with --exact", n, summed))
	}
	if 1 < machines && machines < n {
		out = append(out, fmt.Sprintf("perhaps the machines: which of %d workers shared one of %d decided in which order %s added, but with --exact", n, machines, summed))
	}
	return out
}

// resumed is what may differ where a run went on from a checkpoint: it is repeated from its beginning, under the topology that it ended with, and
// its early stop may end it no later than there. A run that goes on is not asked before its next evaluation.
func (r *run) resumed(again *run) (out []string) {
	for _, n := range r.Head.Notes {
		if !strings.HasPrefix(n, resumedNote) {
			continue
		}
		at, err := strconv.ParseInt(n[strings.LastIndex(n, " ")+1:], 10, 64)
		if end := again.Result; err == nil && end != nil && end.Steps <= at && stoppedEarly(end.Reason) {
			out = append(out, fmt.Sprintf("that the run was %s, and repeated from its beginning is ended by its early stop after update %d", n, end.Steps))
			continue
		}
		out = append(out, fmt.Sprintf("perhaps that the run was %s: before, another topology or number of workers may have trained it", n))
	}
	return out
}

func stoppedEarly(reason string) bool {
	return reason == string(trivium.Stopped) || reason == string(trivium.TargetMet)
}

// conditions lists what differs between two runs of one job and can change its bits.
func (r *run) conditions(o *run) (out []string) {
	compare := func(what, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s was %s, is %s", what, orDash(was), orDash(is)))
		}
	}
	compare("the kernels", r.Head.Kernels, o.Head.Kernels)
	compare("the data's checksum", r.Head.DataChecksum, o.Head.DataChecksum)
	for _, k := range []string{"trivium", "revision", "go", "platform", "binary"} {
		compare("the code's "+k, r.Head.Versions[k], o.Head.Versions[k])
	}
	return out
}

// unequal counts the parameters whose bits differ, and names the tensor of the first.
func unequal(a, b trivium.Params) (n int, first string) {
	if a.Layout.Hash() != b.Layout.Hash() {
		return max(len(a.Flat), len(b.Flat)), "the layout"
	}
	for i := range a.Flat {
		if math.Float32bits(a.Flat[i]) != math.Float32bits(b.Flat[i]) {
			if n == 0 {
				first = fmt.Sprintf("tensor %q", a.Layout.Spec(a.Layout.At(i)).Name)
			}
			n++
		}
	}
	return n, first
}
