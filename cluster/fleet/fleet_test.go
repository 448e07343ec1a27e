package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a coordinator on a network in memory, with its API on loopback.
type rig struct {
	t       *testing.T
	network *transport.Memory
	port    transport.Port
	c       *Coordinator
	addr    string
	token   trust.Token
	stop    func()
}

func newRig(t *testing.T, dir string, run func(context.Context, *Work) Outcome) *rig {
	t.Helper()
	r := &rig{t: t, network: transport.NewMemory()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	r.port, err = r.network.Open(t.Context(), transport.Name{Role: "coordinator", ID: "0", Incarnation: uint64(time.Now().UnixNano())}, transport.Options{})
	must(err)
	authority, err := trust.OpenAuthority(filepath.Join(dir, "ca"), time.Now())
	must(err)
	secret, err := trust.OpenSecret(dir)
	must(err)
	self, err := authority.Identity(CoordinatorName, []string{"127.0.0.1"}, time.Now())
	must(err)
	r.token = trust.Token{Secret: secret, CA: authority.Hash()}
	store := meta.NewMemory(meta.Options{})
	r.c, err = New(Options{
		Dir: dir, Build: "this", Authority: authority, Issuer: &trust.Issuer{Authority: authority, Secret: secret},
		Meta: store, Port: r.port, Run: run, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	r.addr = l.Addr().String()
	server := &http.Server{Handler: r.c.Handler(), ReadHeaderTimeout: time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	ctx, cancel := context.WithCancel(context.Background())
	var running, serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(tls.NewListener(l, self.OpenConfig())) })
	running.Go(func() {
		if err := r.c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = server.Close()
		serving.Wait()
		if err := errors.Join(r.port.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// lend adds a machine whose processes are goroutines that run does. The func that it returns ends it.
func (r *rig) lend(id string, o Offer, run func(context.Context, launch.Child) error) (end func() error) {
	r.t.Helper()
	port, err := r.network.Open(r.t.Context(), transport.Name{Role: "node", ID: id, Incarnation: 1}, transport.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := port.Know(r.port.Name(), r.port.Addr()); err != nil {
		r.t.Fatal(err)
	}
	s, err := port.Stream(StreamName, transport.StreamOptions{MaxFrame: MaxMessage})
	if err != nil {
		r.t.Fatal(err)
	}
	launcher := launch.NewGoroutines(run)
	ctx, cancel := context.WithCancel(context.Background())
	node := Node{Stream: s, Coordinator: r.port.Name(), Launcher: launcher, Offer: o, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil))}
	done := make(chan error, 1)
	go func() {
		err := node.Run(ctx)
		done <- errors.Join(err, port.Close(), launcher.Close())
	}()
	end = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	r.t.Cleanup(func() { _ = end() }) // a test that wants its error has called it
	return end
}

func (r *rig) client() *Client {
	r.t.Helper()
	self, _, err := trust.Join(r.t.Context(), r.addr, r.token, trust.JoinOptions{Name: trust.Name{Role: "client", ID: "1"}})
	if err != nil {
		r.t.Fatal(err)
	}
	c := NewClient(r.addr, self)
	r.t.Cleanup(c.Close)
	return c
}

// until waits for a job's state.
func (r *rig) until(c *Client, id string, want State) Job {
	r.t.Helper()
	for {
		j, err := c.Job(r.t.Context(), id)
		if err != nil {
			r.t.Fatal(err)
		}
		if j.State == want {
			return j
		}
		if j.State.Ended() {
			r.t.Fatalf("%s is %s (%s), want %s", id, j.State, j.Why, want)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.t.Context().Done():
			r.t.Fatal("the test ended")
		}
	}
}

// startAll is a job whose workers each print a line, leave a file, and end.
func startAll(ctx context.Context, w *Work) Outcome {
	for i := range w.Nodes {
		p, err := w.Launcher.Start(ctx, launch.Spec{Name: fmt.Sprintf("worker/%d", i), Config: w.Job.Spec.Payload, Stderr: w.Log})
		if err != nil {
			return Outcome{3, err.Error()}
		}
		<-p.Exited()
		if err := p.Exit().AsError(); err != nil {
			return Outcome{3, err.Error()}
		}
	}
	if err := os.WriteFile(filepath.Join(w.Dir, "model"), []byte("weights"), 0o600); err != nil {
		return Outcome{1, err.Error()}
	}
	return Outcome{}
}

func offer(cores int) Offer {
	return Offer{Host: "here", Cores: cores, Memory: 1 << 30, Build: "this", Addr: "127.0.0.1"}
}

func TestJobs(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	client := r.client()
	early, err := client.Submit(t.Context(), Spec{Name: "softmax", Need: Need{Workers: 3, Threads: 1}, Build: "this", Payload: json.RawMessage(`"hello"`)})
	if err != nil || early.State != Queued {
		t.Fatalf("%+v, %v", early, err)
	}
	said := func(_ context.Context, c launch.Child) error {
		_, err := fmt.Fprintf(c.Stderr, "%s got %s\n", c.Name, c.Config)
		return err
	}
	r.lend("a", offer(2), said)
	r.lend("b", offer(1), said)
	var lines bytes.Buffer
	if err := client.Log(t.Context(), early.ID, true, &lines); err != nil {
		t.Fatal(err)
	}
	if got := lines.String(); got != "worker/0 got \"hello\"\nworker/1 got \"hello\"\nworker/2 got \"hello\"\n" {
		t.Errorf("the log is %q", got)
	}
	j := r.until(client, early.ID, Done)
	if len(j.Nodes) != 3 || j.Code != 0 {
		t.Errorf("it ended as %+v", j)
	}
	dir := t.TempDir()
	if err := client.Files(t.Context(), j.ID, dir); err != nil {
		t.Fatal(err)
	}
	if p, err := os.ReadFile(filepath.Join(dir, "model")); err != nil || string(p) != "weights" {
		t.Errorf("the file holds %q, %v", p, err)
	}
	st, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Jobs) != 1 || len(st.Members) != 1 || st.Epoch == 0 || st.Budget == 0 || st.Jobs[0].Spec.Payload != nil {
		t.Errorf("status %+v", st)
	}
}

// TestSaysWhyItWaits: a job that waits says so to who submits it; one that fits no machine does not keep another from them.
func TestSaysWhyItWaits(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	client := r.client()
	submit := func(n Need) Job {
		t.Helper()
		j, err := client.Submit(t.Context(), Spec{Need: n, Build: "this", Payload: json.RawMessage(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	early := submit(Need{Workers: 1, Threads: 1})
	if !strings.HasPrefix(early.Sentence(), "job-1 is queued: no machine is lent yet") {
		t.Error(early.Sentence())
	}
	r.lend("a", offer(2), func(context.Context, launch.Child) error { return nil })
	r.until(client, early.ID, Done)
	large := submit(Need{Workers: 3, Threads: 1})
	if !strings.HasPrefix(large.Sentence(), "job-2 is queued: 3 workers of 1 cores each do not fit on the 1 machines that are lent, 2 cores in all") {
		t.Error(large.Sentence())
	}
	r.until(client, submit(Need{Workers: 2, Threads: 1}).ID, Done)
	r.lend("b", offer(1), func(context.Context, launch.Child) error { return nil })
	r.until(client, large.ID, Done)
}

func TestCancel(t *testing.T) {
	began := make(chan struct{})
	r := newRig(t, t.TempDir(), func(ctx context.Context, _ *Work) Outcome {
		close(began)
		<-ctx.Done()
		return Outcome{6, "interrupted after update 7"}
	})
	client := r.client()
	r.lend("a", offer(1), nil)
	spec := Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)}
	runs, err := client.Submit(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	waits, err := client.Submit(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if j, err := client.Cancel(t.Context(), waits.ID); err != nil || j.State != Cancelled || j.Code != 6 {
		t.Errorf("one that waits is %+v, %v", j, err)
	}
	if _, err := client.Cancel(t.Context(), runs.ID); err != nil {
		t.Error(err)
	}
	if j := r.until(client, runs.ID, Cancelled); j.Code != 6 || j.Why != "interrupted after update 7" {
		t.Errorf("one that runs ended as %+v", j)
	}
	var refused *RemoteError
	if _, err := client.Cancel(t.Context(), "job-99"); !errors.As(err, &refused) || refused.Code != http.StatusNotFound {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestBounds: neither jobs that wait nor those that ended become ever more, whatever ended them.
func TestBounds(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	r.c.mu.Lock()
	for range maxWaiting - 1 {
		r.c.queue.Add(Spec{Need: Need{Workers: 1}}, time.Now())
	}
	for range keepEnded {
		r.c.queue.End(r.c.queue.Add(Spec{}, time.Now()), Done, 0, "", time.Now())
	}
	r.c.mu.Unlock()
	spec := Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)}
	for range 2 {
		j, err := r.c.Submit(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.c.Submit(spec); err == nil || !strings.Contains(err.Error(), "1000 jobs wait already") {
			t.Fatalf("one more than may wait: %v", err)
		}
		if _, err := r.c.Cancel(j.ID); err != nil {
			t.Fatal(err)
		}
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if got, want := len(r.c.queue.jobs), maxWaiting-1+keepEnded; got != want {
		t.Errorf("%d jobs are known, want %d", got, want)
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

// TestPanicOfAJob: it is the job's, and the next one runs.
func TestPanicOfAJob(t *testing.T) {
	r := newRig(t, t.TempDir(), func(_ context.Context, w *Work) Outcome {
		if string(w.Job.Spec.Payload) == "1" {
			panic("a model's constructor")
		}
		return Outcome{}
	})
	r.lend("a", offer(1), nil)
	client := r.client()
	for payload, want := range map[string]State{"1": Failed, "2": Done} {
		j, err := client.Submit(t.Context(), Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(payload)})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.until(client, j.ID, want); want == Failed && got.Why != "panic: a model's constructor" {
			t.Errorf("it ended as %+v", got)
		}
	}
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
	var stopped sync.WaitGroup
	stopped.Go(r.stop)
	defer stopped.Wait()
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
	var stopped sync.WaitGroup
	stopped.Go(r.stop)
	defer stopped.Wait()
	if n, err := io.Copy(io.Discard, files); err != nil || n < int64(len(left)) {
		t.Errorf("%d bytes came, of more than %d: %v", n, len(left), err)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	client := r.client()
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Build: "that", Need: Need{Workers: 1}}, "another program (build that, the cluster's is this)"},
		{Spec{Build: "this"}, "want 1 to 1024, found 0"},
		{Spec{Build: "this", Need: Need{Workers: 1, Threads: -1}}, "threads"},
		{Spec{Build: "this", Need: Need{Workers: 1, Threads: 1}, Data: "../jobs.json"}, "send it again"},
	} {
		if _, err := client.Submit(t.Context(), c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	o := offer(1)
	o.Build = "that"
	var refused *RefusedError
	port, err := r.network.Open(t.Context(), transport.Name{Role: "node", ID: "other", Incarnation: 1}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	if err := port.Know(r.port.Name(), r.port.Addr()); err != nil {
		t.Fatal(err)
	}
	s, err := port.Stream(StreamName, transport.StreamOptions{MaxFrame: MaxMessage})
	if err != nil {
		t.Fatal(err)
	}
	n := Node{Stream: s, Coordinator: r.port.Name(), Launcher: launch.NewGoroutines(nil), Offer: o}
	if err := n.Run(t.Context()); !errors.As(err, &refused) || !strings.Contains(refused.Why, "start the same one on all machines") {
		t.Errorf("a machine with another program: %v", err)
	}
	// Without a certificate there is nothing but the door to join by.
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer plain.CloseIdleConnections()
	a, err := plain.Get("https://" + r.addr + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(a.Body)
	if err := errors.Join(err, a.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if a.StatusCode != http.StatusUnauthorized || !strings.Contains(string(p), "join with its token") {
		t.Errorf("a stranger gets %s: %s", a.Status, p)
	}
}

// TestRestart: a coordinator that begins again knows its jobs: those that waited run, those that ran are lost.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	began := make(chan struct{}, 2)
	r := newRig(t, dir, func(ctx context.Context, _ *Work) Outcome {
		began <- struct{}{}
		<-ctx.Done()
		return Outcome{6, "interrupted"}
	})
	r.lend("a", offer(1), nil)
	client := r.client()
	spec := Spec{Need: Need{Workers: 1}, Build: "this", Payload: json.RawMessage(`1`)}
	var ids []string
	for range 2 {
		j, err := client.Submit(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, j.ID)
	}
	<-began
	r.stop()
	again := newRig(t, dir, startAll)
	client = again.client()
	if j, err := client.Job(t.Context(), ids[0]); err != nil || j.State != Forgotten {
		t.Errorf("the one that ran is %+v, %v", j, err)
	}
	again.lend("b", offer(1), func(context.Context, launch.Child) error { return nil })
	again.until(client, ids[1], Done)
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

// TestBrokenState: a list of jobs that cannot be read is named, and stays.
func TestBrokenState(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jobs.json"), []byte(`{"next": 3, "jobs": [{`), 0o600); err != nil {
		t.Fatal(err)
	}
	network := transport.NewMemory()
	port, err := network.Open(t.Context(), transport.Name{ID: "0"}, transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	_, err = New(Options{Dir: dir, Port: port})
	if err == nil || !strings.Contains(err.Error(), "jobs.json") || !strings.Contains(err.Error(), "move the file away") {
		t.Errorf("error %v", err)
	}
}

// TestOneNameAtOnce: of two machines of one name that come at once the first is lent, and the other is refused. The name of one that got
// no further is free a moment later.
func TestOneNameAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Coordinator{nodes: NewNodes(nil, "this", nil), names: map[string]time.Time{}}
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
