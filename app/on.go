package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/train/processes"
)

// onFlags name a cluster.
type onFlags struct {
	On    string `group:"Cluster" placeholder:"ADDR" help:"The coordinator of a cluster, as host:port (PROGRAM up)."`
	Token string `group:"Cluster" placeholder:"TOKEN" help:"The cluster's token, or @FILE that holds it."`
}

// String is what is typed for the flags. The token is a secret, and not repeated.
func (f onFlags) String() string {
	token := "TOKEN"
	if strings.HasPrefix(f.Token, "@") {
		token = f.Token
	}
	return "--on " + f.On + " --token " + token
}

// conceal returns a command without the token, which others may read where it is kept. A file that holds the token is no secret.
func (f onFlags) conceal(command []string) []string {
	command = slices.Clone(command)
	if f.Token == "" || strings.HasPrefix(f.Token, "@") {
		return command
	}
	for i, word := range command {
		command[i] = strings.ReplaceAll(word, f.Token, "TOKEN")
	}
	return command
}

// joinWait bounds what a command waits for a coordinator's answer.
const joinWait = 30 * time.Second

// parseToken reads a token, or the file that holds it.
func parseToken(text string) (trust.Token, error) {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		p, err := os.ReadFile(name)
		if err != nil {
			return trust.Token{}, fmt.Errorf("--token: %w", err)
		}
		text = strings.TrimSpace(string(p))
	}
	if text == "" {
		return trust.Token{}, errors.New("--token: a cluster wants its token, which its coordinator printed (up)")
	}
	t, err := trust.ParseToken(text)
	if err != nil {
		return t, fmt.Errorf("--token: %w", err)
	}
	return t, nil
}

// dial returns a client of the cluster. The caller closes it.
func (f *onFlags) dial(ctx context.Context) (*fleet.Client, error) {
	if f.On == "" {
		return nil, misusedf("--on: name the coordinator, as host:port")
	}
	if err := checkCoordinator("--on", f.On); err != nil {
		return nil, misused(err)
	}
	token, err := parseToken(f.Token)
	if err != nil {
		return nil, misused(err)
	}
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	self, _, err := trust.Join(ctx, f.On, token, trust.JoinOptions{Name: trust.Name{Role: "client", ID: "pid-" + strconv.Itoa(os.Getpid())}})
	if err = joinError(err); err != nil {
		return nil, err
	}
	return fleet.NewClient(f.On, self), nil
}

// checkCoordinator refuses an address of a coordinator that is none.
func checkCoordinator(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s: want the coordinator as host:port, found %q", flag, addr)
	}
	return nil
}

// joinError gives what trust.Join returned its exit code.
func joinError(err error) error {
	if err == nil {
		return nil
	}
	_, refused := errors.AsType[*trust.Refusal](err)
	switch {
	case refused:
		return misused(err) // the token, the clock, the name or this program is another than the cluster takes
	case errors.Is(err, context.Canceled):
		return &codedError{Interrupted, errors.New("interrupted")}
	}
	return &codedError{Lost, err}
}

// clusterError gives what a cluster's API returned its exit code.
func clusterError(err error) error {
	remote, answered := errors.AsType[*fleet.RemoteError](err)
	switch {
	case err == nil:
		return nil
	case answered && remote.Code == http.StatusServiceUnavailable: // it has just begun, or is about to begin anew
		return &codedError{Lost, err}
	case answered && remote.Code >= http.StatusInternalServerError: // its disk, for one
		return err
	case answered:
		return misused(err)
	case errors.Is(err, context.Canceled):
		return &codedError{Interrupted, errors.New("interrupted")}
	}
	return &codedError{Lost, err}
}

// A submission is the payload of a job that train gives to a cluster.
type submission struct {
	Job      json.RawMessage `json:"job"`
	Topology string          `json:"topology"`
	Options  json.RawMessage `json:"options,omitempty"` // of the topology
	Name     string          `json:"name,omitempty"`    // of the run
	Every    int64           `json:"checkpoint_every,omitempty"`
	Command  []string        `json:"command,omitempty"` // that gave it, without the token
	From     string          `json:"from,omitempty"`    // the checkpoint that came with the job, as who sent it calls it
}

// submit runs t on a cluster: it prints what the job prints, and fetches what it leaves.
func (s *session) submit(ctx context.Context, t *training, on onFlags) error {
	client, err := on.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	b, err := thisBuild()
	if err != nil {
		return err
	}
	spec := fleet.Spec{Name: t.job.Model, Run: t.name, Build: b.Binary, Restarts: t.restarts, Need: fleet.Need{Workers: t.workers, Threads: t.threads}}
	payload := submission{Topology: t.topology, Options: t.options, Name: t.name, Every: t.every, Command: on.conceal(t.typed)}
	if payload.Job, err = t.job.Encode(); err != nil {
		return err
	}
	if t.ship { // before the checkpoint, which the coordinator need not keep so long then
		if spec.Data, err = s.sendData(ctx, t, client); err != nil {
			return err
		}
	}
	if t.resume != nil {
		payload.From = t.from
		if spec.Resume, err = sendWritten(ctx, client, func(w io.Writer) error { return fleet.Pack(w, t.from) }); err != nil {
			return err
		}
	}
	if spec.Payload, err = json.Marshal(payload); err != nil {
		return err
	}
	j, err := give(ctx, client, spec)
	if err != nil {
		return err
	}
	t.show.say("job", j.Sentence())
	return s.attend(ctx, t, client, j.ID, on)
}

// give submits a job. Once it is asked for, its number is waited for, also where ctx ends: else a job could be left that nobody knows of.
func give(ctx context.Context, client *fleet.Client, spec fleet.Spec) (fleet.Job, error) {
	if err := ctx.Err(); err != nil {
		return fleet.Job{}, clusterError(err)
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), joinWait)
	defer cancel()
	j, err := client.Submit(asking, spec)
	return j, clusterError(err)
}

// attend follows a job until it ends, and fetches its files. When ctx ends first, the job goes on.
func (s *session) attend(ctx context.Context, t *training, client *fleet.Client, id string, on onFlags) error {
	words := s.out
	if t.show.style == quiet {
		words = io.Discard
	}
	err := client.Log(ctx, id, true, words)
	follow := fmt.Sprintf("follow it with: %s logs -f %s %s, then get its run with: %s fetch %s %s", s.command, id, on, s.command, id, on)
	if ctx.Err() != nil {
		return &codedError{Interrupted, fmt.Errorf("%s goes on without this command; %s, or end it with: %s cancel %s %s", id, follow, s.command, id, on)}
	}
	var j fleet.Job
	if err == nil {
		j, err = client.Job(ctx, id)
	}
	if err == nil && j.State == fleet.Queued { // its log ended with the coordinator
		return &codedError{Lost, fmt.Errorf("%s; the next coordinator goes on with it: %s", j.Sentence(), follow)}
	}
	var moved []string
	if err = clusterError(err); err == nil {
		moved, err = fetchFiles(ctx, client, t.out, id)
	}
	if isLost(err) && j.ID == "" { // the job may wait still, or go on: the next coordinator says which
		return &codedError{Lost, fmt.Errorf("%w; once it is there again, learn what became of %s: %s", err, id, follow)}
	}
	if isLost(err) {
		return &codedError{Lost, fmt.Errorf("%w; once it is there again, what became of %s, and its run, come with: %s fetch %s %s", err, id, s.command, id, on)}
	}
	if err != nil && j.ID != "" && j.State.Ended() { // what it left is there still
		code := Failed
		if coded, ok := errors.AsType[*codedError](err); ok {
			code = coded.code
		}
		return &codedError{code, fmt.Errorf("%w; %s, get its run with: %s fetch %s %s", err, j.Sentence(), s.command, id, on)}
	}
	if err != nil {
		return err
	}
	if n := len(moved); n > 0 {
		t.show.say("run", fmt.Sprintf("run directory %s", moved[n-1]))
	} else if j.State == fleet.Done {
		return leftNoRun(&j)
	}
	if j.State != fleet.Done {
		code := j.Code
		if code == 0 {
			code = Failed
		}
		return &codedError{code, t.fromThere(ctx, s, code, errors.New(j.Sentence()), moved, on)}
	}
	return nil
}

// fromThere adds to what ended a job, with that code, how it goes on at the cluster from the newest checkpoint of its runs, which have come here.
func (t *training) fromThere(ctx context.Context, s *session, code int, err error, runs []string, on onFlags) error {
	if len(runs) == 0 || code == Misused {
		return err
	}
	var c *checkpoint.Checkpoint
	var saved, dir string
	var no error
	for _, dir = range slices.Backward(runs) { // the last may have been lost before its first
		if c, saved, no = checkpoint.Latest(ctx, blob.Dir(filepath.Join(dir, checkpointsDir))); no == nil {
			break
		}
	}
	switch {
	case no != nil:
		return fmt.Errorf("%w; there was no checkpoint yet", err)
	case code == Diverged: // to go on from there ends alike
		return fmt.Errorf("%w; the last good checkpoint is %s", err, filepath.Join(dir, checkpointsDir, saved))
	}
	t.dir, t.saved, t.processes = dir, saved, false
	if t.keepOf(s, c); t.keeps != "" {
		return fmt.Errorf("%w; %s", err, t.goOnWith(s))
	}
	return fmt.Errorf("%w; %s %s", err, t.goOnWith(s), on)
}

// leftNoRun says of a job that is done why there is nothing to fetch.
func leftNoRun(j *fleet.Job) error {
	return &codedError{Failed, fmt.Errorf("%s is %s, and left no run: %s", j.ID, j.State, cmp.Or(j.Why, "is the coordinator's disk full?"))}
}

// fetchFiles puts the run directories among a job's files, of which one that began again has several, where those of this machine are. It returns
// their new places, oldest first. What comes, comes into a folder of its own: a run here may have the job's name. What a fetch leaves there that fails
// goes, since the cluster has it still; what one leaves that is killed goes with the next.
func fetchFiles(ctx context.Context, client *fleet.Client, out, id string) (moved []string, err error) {
	if _, err := os.Stat(out); errors.Is(err, fs.ErrNotExist) {
		defer os.Remove(out) // which removes it only where nothing came: it is empty then
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	folder, err := processes.NewFolderIn(out, ".fetch-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	root := folder.Path
	if err := client.Files(ctx, id, root); err != nil {
		if _, here := errors.AsType[*fs.PathError](err); !here { // such as a full disk
			err = clusterError(err)
		}
		return nil, err
	}
	made, err := fs.Glob(os.DirFS(root), jobRuns+"/*") // the path of root may have what a pattern takes for its own, such as [
	if err != nil {
		return nil, err
	}
	if len(made) == 0 && ctx.Err() != nil { // a coordinator that is hung up on may say yet that this is all
		return nil, clusterError(ctx.Err())
	}
	age := map[string]int{} // of what can be read
	if len(made) > 1 {
		runs, err := readRuns(filepath.Join(root, jobRuns))
		if err != nil {
			return nil, err
		}
		for i, r := range runs {
			age[filepath.Base(r.Dir)] = i
		}
	}
	slices.SortStableFunc(made, func(a, b string) int { return cmp.Compare(age[filepath.Base(a)], age[filepath.Base(b)]) })
	for _, name := range made {
		dir := filepath.Join(root, filepath.FromSlash(name))
		at := filepath.Join(out, filepath.Base(dir))
		to := at
		for n := 2; vacant(to) != nil; n++ { // a run here has got the name meanwhile
			to = fmt.Sprintf("%s-%d", at, n)
		}
		if err := os.Rename(dir, to); err != nil {
			return nil, err
		}
		moved = append(moved, to)
	}
	return moved, nil
}

// jobRuns is the folder of a job's files that holds its run directory.
const jobRuns = "runs"

// sendData opens the data here and sends it ahead of the job.
func (s *session) sendData(ctx context.Context, t *training, client *fleet.Client) (string, error) {
	if err := t.open(ctx, s); err != nil {
		return "", err
	}
	defer t.splits.Close()
	return sendWritten(ctx, client, func(w io.Writer) error { return data.Ship(ctx, w, t.splits) })
}

// sendWritten sends what write writes, for a job to come, and returns its id. When it returns, so has write, whose rows its caller closes.
func sendWritten(ctx context.Context, client *fleet.Client, write func(io.Writer) error) (string, error) {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		written <- err
	}()
	id, err := client.Send(ctx, r)
	_ = r.Close() // ends the writer, where the coordinator takes no more
	failed := <-written
	if failed != nil && !errors.Is(failed, io.ErrClosedPipe) { // no coordinator's fault
		return "", asInput(failed)
	}
	return id, clusterError(err)
}

// reachable is the address by which this machine reaches a peer, and so the one by which the peer's neighbours reach it.
func reachable(peer string) (string, error) {
	c, err := net.Dial("udp", peer) // sends nothing; it only asks the routing table
	if err != nil {
		return "", err
	}
	defer c.Close()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	return host, err
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
