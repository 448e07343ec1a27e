package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/cluster/launch"
)

// TestAgain: a job that was lost goes back into the queue as often as it says, with all that came with it; its followers read on.
func TestAgain(t *testing.T) {
	var sent []string // files that came with it, at each begin
	r := newRig(t, t.TempDir(), func(_ context.Context, w *Work) Outcome {
		p, err := os.ReadFile(w.Data)
		if err != nil {
			return Outcome{1, err.Error()}
		}
		sent = append(sent, string(p))
		if w.Job.Spec.Name == "broken" {
			return Outcome{1, "it is broken"}
		}
		if w.Job.Restarts < 2 {
			return Outcome{codeLost, "worker 0 is lost"}
		}
		return Outcome{}
	})
	client := r.client()
	r.lend("a", offer(1), nil)
	for _, c := range []struct {
		name              string
		restarts          int
		state             State
		code, begun, lost int
	}{
		{"never", 0, Failed, codeLost, 1, 0},
		{"once", 1, Failed, codeLost, 2, 1},
		{"enough", 5, Done, 0, 3, 2},
		{"broken", 5, Failed, 1, 1, 0},
	} {
		sent = nil
		id, err := client.Send(t.Context(), strings.NewReader("rows"))
		if err != nil {
			t.Fatal(err)
		}
		j, err := client.Submit(t.Context(), Spec{Name: c.name, Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`), Data: id, Restarts: c.restarts})
		if err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		if err := client.Log(t.Context(), j.ID, true, &lines); err != nil {
			t.Fatal(err)
		}
		got := r.until(client, j.ID, c.state)
		if got.Code != c.code || got.Restarts != c.lost || len(sent) != c.begun {
			t.Errorf("%s: it ended as %+v, begun %d times, want code %d after %d restarts", c.name, got, len(sent), c.code, c.lost)
		}
		if n := strings.Count(lines.String(), " waits for machines to go on: restart "); n != c.lost {
			t.Errorf("%s: the log has %d restarts, want %d: %s", c.name, n, c.lost, &lines)
		}
		if _, err := os.Stat(r.c.sentFile(id)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: what came with it stays: %v", c.name, err)
		}
	}
}

// TestAgainElsewhere: a job whose machine is lost waits for another in its place in the line, and can be cancelled there.
func TestAgainElsewhere(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	client := r.client()
	began := make(chan struct{}, 1)
	stays := func(ctx context.Context, _ launch.Child) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	submit := func(restarts int) string {
		j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`), Restarts: restarts})
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	end := r.lend("a", offer(1), stays)
	first, second := submit(2), submit(0)
	<-began
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if j := r.until(client, first, Queued); j.Restarts != 1 || len(j.Nodes) > 0 || !j.Started.IsZero() {
		t.Errorf("without a machine the job is %+v", j)
	}
	end = r.lend("b", offer(1), stays)
	<-began // the first again: the second came later
	if j := r.until(client, first, Running); len(j.Nodes) != 1 || j.Nodes[0] != "b" || j.Sentence() != first+" is running: restart 1 of 2" {
		t.Errorf("on %q, %s", j.Nodes, j.Sentence())
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	r.until(client, first, Queued)
	if j, err := client.Cancel(t.Context(), first); err != nil || j.State != Cancelled || j.Why != "it had not begun again" {
		t.Errorf("cancelled, it is %+v, %v", j, err)
	}
	r.lend("c", offer(1), func(context.Context, launch.Child) error { return nil })
	r.until(client, second, Done)
}

// TestAgainAfterTheCoordinator: a job whose coordinator was killed, or ended, goes on at the next.
func TestAgainAfterTheCoordinator(t *testing.T) {
	dir := t.TempDir()
	began := make(chan struct{}, 1)
	r := newRig(t, dir, func(ctx context.Context, _ *Work) Outcome {
		began <- struct{}{}
		<-ctx.Done()
		return Outcome{codeInterrupted, "interrupted"}
	})
	r.lend("a", offer(1), nil)
	client := r.client()
	id, err := client.Send(t.Context(), strings.NewReader("rows"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`), Data: id, Restarts: 1})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	state := filepath.Join(dir, "jobs.json")
	killed, err := os.ReadFile(state) // what it leaves behind if it is killed now
	if err != nil {
		t.Fatal(err)
	}
	asked := r.stopsPatiently()
	if err := client.Log(t.Context(), j.ID, true, io.Discard); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Job(t.Context(), j.ID); err != nil || got.State != Queued || got.Why != "the coordinator ended" {
		t.Errorf("who follows it hears that it is %+v, %v", got, err)
	}
	asked()
	if _, err := os.Stat(r.c.sentFile(id)); err != nil {
		t.Errorf("what came with a job that goes on does not stay: %v", err)
	}
	ended, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	for how, left := range map[string][]byte{"killed": killed, "ended": ended} {
		if err := os.WriteFile(state, left, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.c.sentFile(id), []byte("rows"), 0o600); err != nil {
			t.Fatal(err)
		}
		next := newRig(t, dir, func(_ context.Context, w *Work) Outcome {
			p, err := os.ReadFile(w.Data)
			if string(p) != "rows" {
				return Outcome{1, err.Error()}
			}
			return Outcome{}
		})
		client := next.client()
		if got, err := client.Job(t.Context(), j.ID); err != nil || got.State != Queued || got.Restarts != 1 {
			t.Errorf("%s: the job is %+v, %v", how, got, err)
		}
		next.lend("b", offer(1), nil)
		next.until(client, j.ID, Done)
		next.stop()
	}
	if err := os.WriteFile(state, bytes.Replace(killed, []byte(`"code": 0,`), []byte(`"code": 0, "restarts": 1,`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := newRig(t, dir, startAll).client().Job(t.Context(), j.ID); err != nil || got.State != Forgotten || got.Code != codeLost {
		t.Errorf("begun again already, it is %+v, %v", got, err)
	}
}
