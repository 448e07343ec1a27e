package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/transport"
)

// stopsPatiently ends the coordinator, which waits for the test for as long as that likes: on a busy machine the time that the follower of a
// job has for his next request may pass as he makes it. What it returns ends that, and waits for the coordinator.
func (r *rig) stopsPatiently() (fetched func()) {
	waits := func(d time.Duration) {
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		r.c.lingers = d
	}
	waits(time.Hour)
	var stopped sync.WaitGroup
	stopped.Go(r.stop)
	return func() {
		waits(0)
		stopped.Wait()
	}
}

// TestLingers: a coordinator that ends waits for who follows a job for a second, and for who fetches until nothing was sent for as long.
func TestLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority, err := trust.OpenAuthority(filepath.Join(t.TempDir(), "ca"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		port, err := transport.NewMemory().Open(t.Context(), transport.Name{Role: "coordinator", ID: "0", Incarnation: 1}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer port.Close()
		c, err := New(Options{Dir: t.TempDir(), Build: "this", Authority: authority, Issuer: &trust.Issuer{Authority: authority}, Port: port})
		if err != nil {
			t.Fatal(err)
		}
		for _, sent := range []int{0, 3} {
			began := time.Now()
			c.left = began
			for i := range sent {
				time.AfterFunc(time.Duration(i+1)*fetchWait*3/4, func() {
					if _, err := (fetching{io.Discard, c}).Write([]byte("weights")); err != nil {
						t.Error(err)
					}
				})
			}
			c.linger()
			if took, want := time.Since(began), time.Duration(sent)*fetchWait*3/4+fetchWait; took != want {
				t.Errorf("where something is sent %d times it waits %v, want %v", sent, took, want)
			}
		}
	})
}

// TestFilesAtTheEnd: who follows a job that ends with its coordinator gets what it left.
func TestFilesAtTheEnd(t *testing.T) {
	began := make(chan struct{})
	left := bytes.Repeat([]byte("weights "), 1<<20)
	r := newRig(t, t.TempDir(), func(ctx context.Context, w *Work) Outcome {
		close(began)
		<-ctx.Done()
		if err := os.WriteFile(filepath.Join(w.Dir, "model"), left, 0o600); err != nil {
			t.Error(err)
		}
		return Outcome{6, "interrupted after update 7"}
	})
	r.lend("a", offer(1), nil)
	client := r.client()
	j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	<-began
	defer r.stopsPatiently()()
	if err := client.Log(t.Context(), j.ID, true, io.Discard); err != nil {
		t.Fatal(err)
	}
	if j, err = client.Job(t.Context(), j.ID); err != nil || j.State != Forgotten {
		t.Fatalf("%+v, %v", j, err)
	}
	dir := t.TempDir()
	if err := client.Files(t.Context(), j.ID, dir); err != nil {
		t.Fatal(err)
	}
	if p, err := os.ReadFile(filepath.Join(dir, "model")); err != nil || !bytes.Equal(p, left) {
		t.Errorf("the file has %d bytes, %v", len(p), err)
	}
}

// TestFetchAtTheEnd: who is fetching what a job left when the coordinator is asked to end gets all of it.
func TestFetchAtTheEnd(t *testing.T) {
	left := bytes.Repeat([]byte("weights "), 8<<20) // much more than is on its way at a time
	r := newRig(t, t.TempDir(), func(_ context.Context, w *Work) Outcome {
		if err := os.WriteFile(filepath.Join(w.Dir, "model"), left, 0o600); err != nil {
			return Outcome{1, err.Error()}
		}
		return Outcome{}
	})
	r.lend("a", offer(1), nil)
	client := r.client()
	j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)})
	if err != nil {
		t.Fatal(err)
	}
	r.until(client, j.ID, Done)
	files, err := client.call(t.Context(), http.MethodGet, "/v1/jobs/"+j.ID+"/files", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	var first [1]byte
	if _, err := io.ReadFull(files, first[:]); err != nil {
		t.Fatal(err)
	}
	defer r.stopsPatiently()()
	if n, err := io.Copy(io.Discard, files); err != nil || n < int64(len(left)) {
		t.Errorf("%d bytes came, of more than %d: %v", n, len(left), err)
	}
}

// TestSentFiles: what came for a job stays as long as the job waits: one that is refused or cancelled leaves nothing, and neither does a
// sender that never submitted.
func TestSentFiles(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, func(_ context.Context, w *Work) Outcome {
		p, err := os.ReadFile(w.Data)
		if err != nil {
			return Outcome{1, err.Error()}
		}
		return Outcome{Why: string(p)}
	})
	client := r.client()
	submit := func(build string) (Job, error) {
		t.Helper()
		id, err := client.Send(t.Context(), strings.NewReader("rows"))
		if err != nil {
			t.Fatal(err)
		}
		return client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: build, Payload: json.RawMessage(`1`), Data: id})
	}
	left := func(want int, when string) {
		t.Helper()
		files, err := os.ReadDir(filepath.Join(dir, sentDir))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) != want {
			t.Errorf("%s: %d files are left, want %d", when, len(files), want)
		}
	}
	if _, err := submit("that"); err == nil {
		t.Error("a job of another program is taken")
	}
	left(0, "a job refused")
	j, err := submit("this")
	if err != nil {
		t.Fatal(err)
	}
	left(1, "a job that waits")
	if _, err := client.Cancel(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	left(0, "a job cancelled")
	if j, err = submit("this"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Send(t.Context(), strings.NewReader("nobody's")); err != nil {
		t.Fatal(err)
	}
	left(2, "one that waits and one that never came")
	unpacked := filepath.Join(dir, sentDir, "checkpoint-1", "step-sent") // as of a job that ran when its coordinator was killed
	if err := errors.Join(os.MkdirAll(unpacked, 0o700), os.WriteFile(filepath.Join(unpacked, "params"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	again := newRig(t, dir, r.c.o.Run)
	left(1, "a restart")
	again.lend("a", offer(1), nil)
	if got := again.until(again.client(), j.ID, Done); got.Why != "rows" {
		t.Errorf("the job read %q", got.Why)
	}
	left(0, "a job done")
}

// TestSentForNothing: a file whose sender never submitted its job goes after an hour; one that waits for its job, or has it, stays. A file
// is one job's: another that names it is refused, and does not take it away.
func TestSentForNothing(t *testing.T) {
	dir := t.TempDir()
	authority, err := trust.OpenAuthority(filepath.Join(dir, "ca"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		port, err := transport.NewMemory().Open(t.Context(), transport.Name{Role: "coordinator", ID: "0", Incarnation: 1}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		store := meta.NewMemory(meta.Options{})
		c, err := New(Options{Dir: dir, Build: "this", Authority: authority, Issuer: &trust.Issuer{Authority: authority}, Meta: store, Port: port})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		defer func() {
			cancel()
			wait.Wait()
			if err := errors.Join(port.Close(), store.Close()); err != nil {
				t.Error(err)
			}
		}()
		wait.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		send := func() string {
			w := httptest.NewRecorder()
			if err := c.takeSent(w, httptest.NewRequest(http.MethodPost, "/v1/sent", strings.NewReader("rows"))); err != nil {
				t.Fatal(err)
			}
			var a struct{ ID string }
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
				t.Fatal(err)
			}
			return a.ID
		}
		there := func(id string) bool {
			_, err := os.Stat(c.sentFile(id))
			return err == nil
		}
		spec := Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)}
		spec.Data = send()
		if _, err := c.Submit(spec); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Submit(spec); err == nil || !strings.Contains(err.Error(), "send it again") {
			t.Errorf("a second job with the file of the first: %v", err)
		}
		nobodys := send()
		time.Sleep(sentWait / 2)
		late := send()
		time.Sleep(sentWait * 2 / 3)
		if !there(spec.Data) || there(nobodys) || !there(late) {
			t.Errorf("of a job that waits, of nobody, of one to come: %v, %v, %v; want the second gone", there(spec.Data), there(nobodys), there(late))
		}
	})
}

// TestLogNotRead: a log that cannot be read does not look like one that has ended.
func TestLogNotRead(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, func(context.Context, *Work) Outcome { return Outcome{} })
	r.lend("a", offer(1), func(context.Context, launch.Child) error { return nil })
	client := r.client()
	j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this"})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Log(t.Context(), j.ID, true, io.Discard); err != nil { // until it has ended
		t.Fatal(err)
	}
	path := filepath.Join(dir, "jobs", j.ID, logName)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil { // is opened, and not read
		t.Fatal(err)
	}
	if err := client.Log(t.Context(), j.ID, false, io.Discard); err == nil {
		t.Error("a log that cannot be read ends like one that was")
	}
}

// TestLogOfAnOutsider: a coordinator without which the machines went on ends its jobs and itself. Who follows one does not take that for
// the end of the job, after which there would be more to ask.
func TestLogOfAnOutsider(t *testing.T) {
	for _, out := range []bool{false, true} {
		c := &Coordinator{logs: map[string]*jobLog{}, out: out}
		j := c.queue.Add(Spec{}, time.Now())
		c.logs[j.ID] = endedLog(filepath.Join(t.TempDir(), logName))
		r := httptest.NewRequest(http.MethodGet, "/v1/jobs/"+j.ID+"/log?follow=1", nil)
		r.SetPathValue("id", j.ID)
		broken := func() (p any) {
			defer func() { p = recover() }()
			return c.serveLog(httptest.NewRecorder(), r)
		}()
		if want := map[bool]any{true: http.ErrAbortHandler}[out]; broken != want {
			t.Errorf("out: %v; its log ends with %v, want %v", out, broken, want)
		}
	}
}
