package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/transport"
)

// joined waits until the coordinator has joined the group of machines.
func (r *rig) joined() {
	r.t.Helper()
	there := false
	for deadline := time.Now().Add(time.Minute); !there; time.Sleep(time.Millisecond) { // it ends a hang, no more
		if time.Now().After(deadline) {
			r.t.Fatal("the coordinator does not join")
		}
		r.c.mu.Lock()
		there = r.c.members != nil
		r.c.mu.Unlock()
	}
}

// TestOneMachineAName: who comes with the name of a machine that is lent is told so, and drives nobody out; once that is gone, it is taken.
func TestOneMachineAName(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	end := r.lend("a", offer(1), func(context.Context, launch.Child) error { return nil })
	client := r.client()
	j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	r.until(client, j.ID, Done)
	join := func(id string) error {
		_, _, err := trust.Join(t.Context(), r.addr, r.token, trust.JoinOptions{Name: trust.Name{Role: NodeRole, ID: id}})
		return err
	}
	var refusal *trust.Refusal
	if err := join("a"); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "lent already, here at 127.0.0.1: take another (--id)") {
		t.Errorf("a second machine of a name: %v", err)
	}
	if err := join("b"); err != nil {
		t.Errorf("another name: %v", err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(r.c.nodes.List()) > 0; time.Sleep(time.Millisecond) { // it ends a hang, no more
		if time.Now().After(deadline) {
			t.Fatal("its loss is not noticed")
		}
	}
	if err := join("a"); err != nil {
		t.Errorf("the name of one that is gone: %v", err)
	}
}

// TestOneNameAtOnce: of two machines of one name that come at once the first is lent, and the other is refused. The name of one that got
// no further is free a moment later.
func TestOneNameAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Coordinator{nodes: newLentNodes(nil, "this", nil), names: map[string]time.Time{}}
		a, b := trust.Name{Role: NodeRole, ID: "a"}, trust.Name{Role: NodeRole, ID: "b"}
		if err := c.accept(a); err != nil {
			t.Fatal(err)
		}
		var second error
		var wait sync.WaitGroup
		wait.Go(func() { second = c.accept(a) })
		time.Sleep(nameWait / 2) // the first joins the group meanwhile
		c.nodes.mu.Lock()
		c.nodes.lent = append(c.nodes.lent, &lent{name: transport.Name{Role: NodeRole, ID: "a"}, offer: offer(1)})
		c.nodes.mu.Unlock()
		if wait.Wait(); second == nil || !strings.Contains(second.Error(), "lent already") {
			t.Errorf("a second machine of a name: %v", second)
		}
		began := time.Now()
		for range 2 {
			if err := c.accept(b); err != nil {
				t.Errorf("the name of one that got no further: %v", err)
			}
		}
		if took := time.Since(began); took != nameWait {
			t.Errorf("it is free after %v, want %v", took, nameWait)
		}
		time.Sleep(nameWait)
		if err := c.accept(trust.Name{Role: NodeRole, ID: "another"}); err != nil || len(c.names) != 1 {
			t.Errorf("%d names are kept of machines that got no further, want the last one's: %v", len(c.names), err)
		}
	})
}

// TestLostMachine: what runs there is lost with it, and the job says so.
func TestLostMachine(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	client := r.client()
	began := make(chan struct{})
	end := r.lend("a", offer(1), func(ctx context.Context, _ launch.Child) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	})
	j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.until(client, j.ID, Failed); got.Code != 3 {
		t.Errorf("it ended as %+v", got)
	}
	if left := r.c.nodes.List(); len(left) != 0 {
		t.Errorf("%d machines are left", len(left))
	}
}

// TestLeavingMachine: a machine whose node is asked to end has left, and is not lost: its job says so, and the log.
func TestLeavingMachine(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	var told bytes.Buffer // complete when the rig has stopped
	r.c.nodes.log = slog.New(slog.NewTextHandler(&told, nil))
	client := r.client()
	began := make(chan struct{})
	end := r.lend("a", offer(1), func(ctx context.Context, _ launch.Child) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	})
	j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.until(client, j.ID, Failed); !strings.Contains(got.Why, "the machine a has left: its node was asked to end") || got.Code != 3 {
		t.Errorf("it ended as %+v", got)
	}
	r.stop()
	if text := told.String(); !strings.Contains(text, `level=INFO msg="node left"`) || strings.Contains(text, "lost") {
		t.Errorf("the log says %s", text)
	}
}

// TestEndsAfterItsJobs: a coordinator that is told to end hears its machines until the last job has ended, also one that just starts.
func TestEndsAfterItsJobs(t *testing.T) {
	began, heard := make(chan struct{}), make(chan error, 1)
	r := newRig(t, t.TempDir(), func(ctx context.Context, w *Work) Outcome {
		close(began)
		<-ctx.Done()
		p, err := w.Launcher.Start(context.WithoutCancel(ctx), launch.Spec{Name: "worker/0"})
		if err == nil {
			<-p.Exited()
			err = p.Exit().AsError()
		}
		heard <- err
		return Outcome{6, "interrupted"}
	})
	r.lend("a", offer(1), func(context.Context, launch.Child) error { return nil })
	if _, err := r.client().Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	<-began
	r.stop()
	if err := <-heard; err != nil {
		t.Error(err)
	}
}
