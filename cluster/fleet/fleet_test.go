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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/cluster"
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
	server := &http.Server{Handler: r.c.Handler(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
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

// TestMemberOf: who asks for the status learns what the group knows, also why a member is not fine.
func TestMemberOf(t *testing.T) {
	m := cluster.MemberStatus{Member: cluster.Member{Name: transport.Name{Role: "node", ID: "a"}, Addr: "there"}, Heard: -1, State: "ended", Why: "exit status 3"}
	if got, want := memberOf(m), (MemberStatus{Name: "a", Role: "node", Addr: "there", State: "ended", Why: "exit status 3", Heard: -1}); got != want {
		t.Errorf("found %+v, want %+v", got, want)
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
	if !strings.HasPrefix(large.Sentence(), "job-2 is queued: 3 workers of 1 core each do not fit on what is lent, 1 machine with 2 cores") {
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

// TestWhoseToMend: a request is refused with another status than where it is the coordinator that cannot, and in other words.
func TestWhoseToMend(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir, startAll)
	client := r.client()
	for _, name := range []string{sentDir, filepath.Join("jobs", "job-1")} { // files where folders are to be
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	submit := func(s Spec) error {
		_, err := client.Submit(t.Context(), s)
		return err
	}
	_, sent := client.Send(t.Context(), strings.NewReader("rows"))
	r.joined() // which it would be amid the test
	r.c.mu.Lock()
	members := r.c.members
	r.c.members = nil // as before it has joined
	r.c.mu.Unlock()
	_, status := client.Status(t.Context())
	r.c.mu.Lock()
	r.c.members = members
	r.c.mu.Unlock()
	for what, c := range map[string]struct {
		err  error
		code int
		want string
	}{
		"another program":        {submit(Spec{Need: Need{Workers: 1}, Build: "that"}), http.StatusBadRequest, "fleet: the coordinator refuses: it comes from another program"},
		"no folder for a job":    {submit(Spec{Need: Need{Workers: 1}, Build: "this"}), http.StatusInternalServerError, "fleet: at the coordinator: mkdir "},
		"no folder for a file":   {sent, http.StatusInternalServerError, "fleet: at the coordinator: mkdir "},
		"a status too early":     {status, http.StatusServiceUnavailable, "fleet: at the coordinator: it has not joined its group of machines yet"},
		"a file that nobody has": {submit(Spec{Need: Need{Workers: 1}, Build: "this", Data: "x"}), http.StatusBadRequest, "fleet: the coordinator refuses: the file"},
	} {
		remote, ok := errors.AsType[*RemoteError](c.err)
		if !ok || remote.Code != c.code || !strings.HasPrefix(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %d: %s", what, c.err, c.code, c.want)
		}
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

func TestRefusals(t *testing.T) {
	r := newRig(t, t.TempDir(), startAll)
	client := r.client()
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Build: "that", Need: Need{Workers: 1}}, "another program (build that, the cluster's is this)"},
		{Spec{Build: "this"}, "want 1 to 256, found 0"},
		{Spec{Build: "this", Need: Need{Workers: 257}}, "want 1 to 256, found 257"},
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
	state := filepath.Join(dir, "jobs.json")
	killed, err := os.ReadFile(state) // what it leaves behind if it is killed now
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	ended, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, killed, 0o600); err != nil {
		t.Fatal(err)
	}
	again := newRig(t, dir, startAll)
	if j, err := again.client().Job(t.Context(), ids[0]); err != nil || j.State != Forgotten || j.Code != codeLost || j.Why != "the coordinator ended while it ran" {
		t.Errorf("the one that ran when the coordinator was killed is %+v, %v", j, err)
	}
	again.stop()
	if err := os.WriteFile(state, ended, 0o600); err != nil {
		t.Fatal(err)
	}
	again = newRig(t, dir, startAll)
	client = again.client()
	if j, err := client.Job(t.Context(), ids[0]); err != nil || j.State != Forgotten || j.Code != codeInterrupted {
		t.Errorf("the one that ran is %+v, %v", j, err)
	}
	again.lend("b", offer(1), func(context.Context, launch.Child) error { return nil })
	again.until(client, ids[1], Done)
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
