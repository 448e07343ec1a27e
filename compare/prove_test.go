package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// TestWayToTheTarget: of the parameters that a row saved, the first that meet the target say when it was reached, and those behind them belong to
// the proof all the same: a row that computes something else after the target is no equal, and neither is one that keeps some of them back.
func TestWayToTheTarget(t *testing.T) {
	task, dir := digits(), t.TempDir()
	const batch, first = 100, 5
	task.Target = Target{"train", "loss", 0, false}
	e, err := openEvaluator(t.Context(), task, inMemory())
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	var keep []Event
	spec := Spec{Task: task, Workers: 1, Batch: batch}
	ref := reference{Batch: batch, Losses: map[int64]float64{}}
	err = e.follow(t.Context(), task, batch, 48, func(p trivium.Params, step int64) (bool, error) {
		if step%4 != 0 {
			return true, nil
		}
		k := Event{Kind: Snapshot, Update: step, Seconds: float64(step) / 8, Path: filepath.Join(dir, fmt.Sprint(step))}
		keep, spec.Snapshots = append(keep, k), append(spec.Snapshots, step)
		return true, writeParams(k.Path, p)
	})
	if err == nil {
		err = e.losses(t.Context(), task, &ref, spec.Snapshots)
	}
	if err != nil {
		t.Fatal(err)
	}
	task.Target.Value = ref.Losses[keep[first].Update] // losses fall from place to place
	look := func(keep []Event) (result Result) {
		t.Helper()
		result.Updates = 48
		g := &group{task: task, batch: batch, work: 1}
		if err := (&runner{}).judge(t.Context(), e, g, recorded{"allreduce", About{Mode: Sync}}, spec, &ref, 1, &result, keep); err != nil {
			t.Fatal(err)
		}
		return result
	}
	r := look(keep)
	if !r.Reached || r.SecondsToTarget != keep[first].Seconds || r.SamplesToTarget != batch*keep[first].Update || r.Proof != proven || len(r.Curve) != len(keep) {
		t.Errorf("reached %v in %v s, of %d samples, %q, %d places; want %v s", r.Reached, r.SecondsToTarget, r.SamplesToTarget, r.Proof, len(r.Curve), keep[first].Seconds)
	}
	if r = look(keep[:first]); r.Reached || r.SecondsToTarget != 0 || r.Best != ref.Losses[keep[first-1].Update] {
		t.Errorf("before the target: reached %v in %v s, best %v", r.Reached, r.SecondsToTarget, r.Best)
	}
	// One that was to be saved, and was not, is missed; not one that the row did not come to.
	for missing, want := range map[int]string{0: fmt.Sprintf("no parameters of update %d were saved: it is not proven", keep[0].Update), 11: "no parameters of update 48 were saved: it is not proven"} {
		if r = look(slices.Delete(slices.Clone(keep), missing, missing+1)); r.Proof != want {
			t.Errorf("without update %d: %q", keep[missing].Update, r.Proof)
		}
	}
	spec.Snapshots = append(spec.Snapshots, 52)
	if r = look(keep); r.Proof != proven {
		t.Errorf("update 52 is wanted of 48 that it made: %q", r.Proof)
	}
	spec.Snapshots = spec.Snapshots[:len(keep)]
	if r = look(nil); r.Proof != "no parameters were saved: nothing is proven" {
		t.Errorf("none saved: %q", r.Proof)
	}
	other, err := os.ReadFile(keep[0].Path)
	if err == nil {
		err = os.WriteFile(keep[first+3].Path, other, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r = look(keep); !r.Reached || !strings.HasPrefix(r.Proof, fmt.Sprintf("not the same computation: %.4g against", ref.Losses[keep[0].Update])) {
		t.Errorf("another computation behind the target: reached %v, %q", r.Reached, r.Proof)
	}
}
