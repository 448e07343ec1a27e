package pstest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/transport"
)

// A child is one process of a job: a server, or a client with its workers. The test itself is the directory.
type child struct {
	Dir                     string // of sockets; empty: TCP
	Role                    string // server or worker
	Index                   int
	Servers, Clients, Lanes int
	Exact                   bool
	Min, Most               int // ps.Placement's MinShardCells and MaxServers
	Workers                 int // of a client
	Cache                   int64
	Case                    string
	Mode                    ps.Mode
	Staleness               int
	Rounds                  int
	Seed                    uint64
	Store                   string // the folder of snapshots; empty: none
}

func (c *child) name(role string, i int) protocol.Name {
	return protocol.Name{Job: "processes", Role: role, ID: strconv.Itoa(i)}
}

func (c *child) network() transport.Network {
	if c.Dir == "" {
		return &transport.TCP{}
	}
	return &transport.Unix{Dir: c.Dir}
}

func (c *child) placement() ps.Placement {
	p := ps.Placement{Epoch: 1, Directory: c.name("directory", 0), Lanes: c.Lanes, Exact: c.Exact, MinShardCells: c.Min, MaxServers: c.Most}
	for i := range c.Servers {
		p.Servers = append(p.Servers, c.name("server", i))
	}
	for i := range c.Clients {
		p.Clients = append(p.Clients, c.name("worker", i))
	}
	return p
}

// A scenario is what the workers of a job do.
type scenario struct {
	tables func(c *child) []ps.Spec
	worker func(in *inside, w *ps.Worker) error
}

// inside is what a worker's program has in its process.
type inside struct {
	*child
	ctx    context.Context
	client *ps.Client
	number int // of the worker, in the job
	lines  *bufio.Scanner
	mu     *sync.Mutex
}

// say tells the test something.
func (in *inside) say(format string, args ...any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	fmt.Printf("say "+format+"\n", args...)
}

// hear waits for a word of the test.
func (in *inside) hear() string {
	in.lines.Scan()
	return in.lines.Text()
}

// runChild is the life of a process.
func runChild(arg string) (err error) {
	var c child
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	port, err := c.network().Open(ctx, c.name(c.Role, c.Index), transport.Options{})
	if err != nil {
		return err
	}
	stream, err := port.Stream("ps", ps.StreamOptions())
	if err != nil {
		return err
	}
	fmt.Println("addr", port.Addr())
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	var addrs map[string]string // by role and number
	if err := json.Unmarshal(lines.Bytes(), &addrs); err != nil {
		return err
	}
	for at, addr := range addrs {
		role, id, _ := strings.Cut(at, "/")
		i, err := strconv.Atoi(id)
		if n := c.name(role, i); err == nil && n != port.Name() {
			err = port.Know(n, addr)
		}
		if err != nil {
			return err
		}
	}
	if c.Role == "server" {
		go func() { // until the test closes the input
			for lines.Scan() {
			}
			cancel()
		}()
		o := ps.ServerOptions{Updaters: updaters}
		if c.Store != "" {
			o.Store = folder(c.Store)
		}
		return errors.Join(ps.Serve(ctx, stream, c.placement(), o), port.Close())
	}
	s := scenarios()[c.Case]
	client, err := ps.Open(ctx, stream, c.placement(), s.tables(&c), ps.Options{Workers: c.Workers, CacheBytes: c.Cache})
	if err != nil {
		return err
	}
	var workers []*ps.Worker
	for range max(c.Workers, 1) {
		w, err := client.Worker(ctx)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	var wait sync.WaitGroup
	errs := make([]error, len(workers))
	mu := new(sync.Mutex)
	for i, w := range workers {
		wait.Go(func() {
			errs[i] = s.worker(&inside{&c, ctx, client, c.Index*len(workers) + i, lines, mu}, w)
			if err := errs[i]; err != nil { // the others may wait for this one
				mu.Lock()
				fmt.Printf("fail %q\n", err.Error())
				os.Exit(1)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println("done")
	return errors.Join(client.Close(), port.Close())
}

// limit is the longest that a job of a test may take: it ends a hang, and a busy machine gets by with it.
const limit = 3 * time.Minute

// processes is a job whose servers and clients have processes of their own.
type processes struct {
	t         testing.TB
	c         child
	port      transport.Port
	directory *ps.Directory
	servers   []*process
	clients   []*process
}

type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	err   *bytes.Buffer
	gone  bool
}

// begin starts the processes of c's job, which goes on from a snapshot where restore is given.
func begin(t testing.TB, c child, restore *ps.Manifest) *processes {
	t.Helper()
	j := &processes{t: t, c: c}
	var err error
	if j.port, err = c.network().Open(t.Context(), c.name("directory", 0), transport.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.kill)
	addrs := map[string]string{"directory/0": j.port.Addr()}
	for i := range c.Servers {
		c.Role, c.Index = "server", i
		j.servers = append(j.servers, start(t, c))
	}
	for i := range c.Clients {
		c.Role, c.Index = "worker", i
		j.clients = append(j.clients, start(t, c))
	}
	for _, p := range j.all() {
		addr, ok := strings.CutPrefix(p.next(), "addr ")
		if !ok {
			t.Fatalf("%s: it has no address", p.name)
		}
		addrs[p.name] = addr
		role, id, _ := strings.Cut(p.name, "/")
		i, _ := strconv.Atoi(id)
		if err := j.port.Know(c.name(role, i), addr); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := j.port.Stream("ps", ps.StreamOptions())
	if err != nil {
		t.Fatal(err)
	}
	if j.directory, err = ps.Direct(stream, c.placement(), ps.DirectoryOptions{Restore: restore, Updaters: updaters}); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(addrs)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range j.all() {
		p.tell(string(text))
	}
	return j
}

func (j *processes) all() []*process {
	return append(append([]*process(nil), j.servers...), j.clients...)
}

func start(t testing.TB, c child) *process {
	t.Helper()
	arg, err := json.Marshal(&c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: fmt.Sprintf("%s/%d", c.Role, c.Index), err: new(bytes.Buffer), lines: make(chan string, 4096)}
	p.cmd = exec.Command(os.Args[0], childFlag, string(arg))
	p.cmd.Stderr = p.err
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	return p
}

// next is the next line that the process prints.
func (p *process) next() string {
	p.t.Helper()
	select {
	case s, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("%s ended: %s", p.name, p.err)
		}
		if why, failed := strings.CutPrefix(s, "fail "); failed {
			p.t.Fatalf("%s: %s", p.name, why)
		}
		return s
	case <-time.After(limit):
		p.t.Fatalf("%s: no word in %v", p.name, limit)
	}
	return ""
}

// said is what the process's program says next.
func (p *process) said() string {
	p.t.Helper()
	s, ok := strings.CutPrefix(p.next(), "say ")
	if !ok {
		p.t.Fatalf("%s: found %q, want a word of its program", p.name, s)
	}
	return s
}

func (p *process) tell(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// kill ends the process without a word (SIGKILL), and returns what it had said by then.
func (p *process) kill() (said []string) {
	if p.gone {
		return nil
	}
	p.gone = true
	_ = p.cmd.Process.Kill() // it may be gone by itself
	_ = p.in.Close()
	for s := range p.lines {
		if s, ok := strings.CutPrefix(s, "say "); ok {
			said = append(said, s)
		}
	}
	_ = p.cmd.Wait() // it was killed
	return said
}

// kill ends what is left.
func (j *processes) kill() {
	for _, p := range j.all() {
		p.kill()
	}
	if j.directory != nil {
		_ = j.directory.Close()
	}
	_ = j.port.Close()
	j.directory = nil
}

// finish waits until all workers that are left are done, and ends the servers.
func (j *processes) finish() {
	j.t.Helper()
	for _, p := range j.clients {
		p.rest() // what it says besides, nobody wants to know
	}
	for _, p := range j.servers {
		if p.gone {
			continue
		}
		_ = p.in.Close()
		for s := range p.lines {
			if strings.HasPrefix(s, "fail ") {
				j.t.Errorf("%s: %s", p.name, s)
			}
		}
		p.wait()
	}
	if err := errors.Join(j.directory.Close(), j.port.Close()); err != nil {
		j.t.Error(err)
	}
	j.directory = nil
}

// rest is what a worker says until it is done and has ended.
func (p *process) rest() (said []string) {
	p.t.Helper()
	if p.gone {
		return nil
	}
	for s := p.next(); s != "done"; s = p.next() {
		said = append(said, strings.TrimPrefix(s, "say "))
	}
	for range p.lines {
	}
	p.wait()
	return said
}

func (p *process) wait() {
	p.t.Helper()
	p.gone = true
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%s: %v: %s", p.name, err, p.err)
	}
}

// updaters are the rules of the tests' own.
var updaters = map[string]trivium.Optimizer{"twice": twice{}}

// twice is MXNet's test rule: a cell grows by twice the sum of the gradients.
type twice struct{}

func (twice) Slots() int { return 0 }

func (twice) Elementwise() bool { return true }

func (twice) Apply(_ int64, _ *trivium.Layout, _ int, _, g, u []float32, _ [][]float32) {
	for i := range u {
		u[i] = 2 * g[i]
	}
}

// A folder is a ps.Store that all processes share. A file "full" in it makes the disk full, a file "hang" makes a write never end.
type folder string

func (f folder) has(name string) bool {
	_, err := os.Stat(filepath.Join(string(f), name))
	return err == nil
}

func (f folder) Put(_ context.Context, key string, r io.Reader) error {
	p, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	path := filepath.Join(string(f), filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	full, hang := f.has("full"), f.has("hang")
	if full || hang {
		p = p[:len(p)/2]
	}
	if err := os.WriteFile(path, p, 0o600); err != nil {
		return err
	}
	if hang {
		fmt.Println("say putting")
		select {}
	}
	if full {
		return errors.New("no space left on device")
	}
	return nil
}

func (f folder) Get(_ context.Context, key string, from, length int64) (io.ReadCloser, error) {
	p, err := os.ReadFile(filepath.Join(string(f), filepath.FromSlash(key)))
	if err != nil {
		return nil, err
	}
	p = p[min(from, int64(len(p))):]
	return io.NopCloser(bytes.NewReader(p[:min(length, int64(len(p)))])), nil
}
