package compare

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/shell"
)

// The peers' programs travel in this one: how they are driven is in peers/README.md.
//
//go:embed peers
var peerFiles embed.FS

// A peerSpec is a peer.json: how a peer is started and installed.
type peerSpec struct {
	Name    string         `json:"name"`
	Title   string         `json:"title"`
	Module  string         `json:"module"` // that Python must find
	Built   string         `json:"built"`  // a file that its environment must have beside, built from a source that the user gives
	Python  string         `json:"python"` // versions that it takes
	Program []string       `json:"program"`
	Roles   map[string]any `json:"roles"` // how many of each: a number, or "workers", "servers"
	Lead    Role           `json:"lead"`  // the role that is told what to do; empty: the workers
	Modes   []string       `json:"modes"`
	Full    bool           `json:"full"`
	Approx  string         `json:"approx"` // of every row that says nothing else, as Models
	Models  []string       `json:"models"`
	Rows    []peerRow      `json:"rows"`
	Install [][]string     `json:"install"`
	SizeMB  int            `json:"size_mb"`
	Memory  int            `json:"memory_mb"` // of each process, beside the rows that it trains on; 0: not measured
	Source  string         `json:"source"`    // what the user is to give the folder of; empty: nothing
	Mend    string         `json:"mend"`
	Counts  []string       `json:"counts"`    // files beside the program that its lines of code are in too
	NoCount string         `json:"not_count"` // why its lines of code are not counted; empty: they are

	dir    fs.FS  // of all peers: one program may build on another's
	folder string // its own in there
	root   string // of all environments, where the user named it; empty: his cache folder

	found *finding // what Detect found, which its rows share, since to import some libraries takes seconds; nil: it was not asked yet
}

// A finding is what a look for a peer's program found.
type finding struct {
	interpreter string
	facts       Facts
	err         error
}

// A peerRow is one way to run a peer.
type peerRow struct {
	Name      string         `json:"name"`
	Mode      string         `json:"mode"`
	Staleness int            `json:"staleness"`
	Title     string         `json:"title"`
	Approx    string         `json:"approx"` // why it computes something else
	Extra     map[string]any `json:"extra"`

	// What is not as in the rest of the peer. Empty: it is.
	Program []string       `json:"program"`
	Roles   map[string]any `json:"roles"`
	Counts  []string       `json:"counts"`
	Full    string         `json:"full"` // "too": it also takes the full batch; "only": nothing else

	Models []string `json:"models"` // that it has: "logistic", "softmax", "mlp", "cnn"; empty: all
	Clocks int      `json:"clocks"` // see About
}

// knownPeers reads the peer.json files of dir.
func knownPeers(dir fs.FS) (list []*peerSpec, err error) {
	names, err := fs.Glob(dir, "*/peer.json")
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		p, err := fs.ReadFile(dir, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		spec := &peerSpec{}
		d := json.NewDecoder(bytes.NewReader(p))
		d.DisallowUnknownFields()
		if err := d.Decode(spec); err != nil {
			errs = append(errs, fmt.Errorf("compare: %s: %w", name, err))
			continue
		}
		spec.dir, spec.folder = dir, path.Dir(name)
		list = append(list, spec)
	}
	return list, errors.Join(errs...)
}

// Peers returns the rows of other systems. root is where their environments are; empty: the user's own.
func Peers(root string) ([]System, error) {
	files, err := fs.Sub(peerFiles, "peers")
	if err != nil {
		return nil, err
	}
	specs, err := knownPeers(files)
	if err != nil {
		return nil, err
	}
	named := root != ""
	if !named {
		if root, err = peerRoot(); err != nil {
			return nil, err
		}
	}
	if root, err = filepath.Abs(root); err != nil { // programs are started elsewhere
		return nil, err
	}
	var list []System
	for _, s := range specs {
		if named {
			s.root = root
		}
		for i := range s.Rows {
			list = append(list, s.peer(&s.Rows[i], filepath.Join(root, s.Name)))
		}
	}
	return list, nil
}

// peer is a row of s.
func (s *peerSpec) peer(row *peerRow, env string) *peer {
	if len(row.Program) == 0 {
		row.Program = s.Program
	}
	if len(row.Counts) == 0 {
		row.Counts = s.Counts
	}
	if len(row.Roles) == 0 {
		row.Roles = s.Roles
	}
	if len(row.Models) == 0 {
		row.Models = s.Models
	}
	row.Approx = orElse(row.Approx, s.Approx)
	return &peer{peerSpec: s, row: row, env: env}
}

// peerRoot is where environments of peers go: they are hundreds of megabytes, and serve every comparison.
func peerRoot() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("compare: where environments of other systems go: %w (--peers names a folder)", err)
	}
	return filepath.Join(cache, "trivium", "peers"), nil
}

// A peer is a row of another system.
type peer struct {
	*peerSpec
	row *peerRow
	env string // folder of its private environment

	interpreter string // that Detect found
}

// Name implements System.
func (p *peer) Name() string { return p.row.Name }

// About implements System.
func (p *peer) About() About {
	a := About{
		Title: orElse(p.row.Title, p.Title+", "+p.row.Mode), Peer: true, Full: p.Full || p.row.Full != "", Whole: p.row.Full == "only", Approx: p.row.Approx,
		Mode: Mode{Kind: p.row.Mode, Staleness: p.row.Staleness}, Clocks: p.row.Clocks,
	}
	if p.row.Roles["server"] != nil {
		a.Server = 1
	}
	return a
}

// trains reports whether the row has that model.
func (p *peer) trains(model string) bool {
	name, _, _ := strings.Cut(model, ":")
	return len(p.row.Models) == 0 || slices.Contains(p.row.Models, name)
}

// detectLimit is for a Python to import what may be a large library, on a machine that may be busy.
const detectLimit = 2 * time.Minute

// Detect implements System: it looks into the peer's own environment, and then for a Python that has the module.
func (p *peer) Detect(ctx context.Context) (Facts, error) {
	if p.found == nil {
		f := p.look(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p.found = &f
	}
	p.interpreter = p.found.interpreter
	return maps.Clone(p.found.facts), p.found.err
}

// look does what Detect says.
func (p *peer) look(ctx context.Context) finding {
	ctx, cancel := context.WithTimeoutCause(ctx, detectLimit, fmt.Errorf("no answer in %v", detectLimit))
	defer cancel()
	absent := func(looked string) finding {
		return finding{err: &AbsentError{p.peerSpec.Name, looked, p.mend()}}
	}
	if p.Built != "" {
		if _, err := os.Stat(filepath.Join(p.env, p.Built)); err != nil {
			return absent(filepath.Join(p.env, p.Built))
		}
	}
	candidates := []string{filepath.Join(p.env, "bin", "python")}
	for _, n := range []string{"python3", "python"} {
		if path, err := exec.LookPath(n); err == nil && !slices.Contains(candidates, path) {
			candidates = append(candidates, path)
		}
	}
	if p.Module == "" { // not a Python module: the program itself says
		candidates = p.Program[:1]
	}
	for _, python := range candidates {
		if p.Module != "" {
			if _, err := os.Stat(python); err != nil {
				continue
			}
			if _, err := answer(ctx, detectLimit, python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('"+p.Module+"') is None)"); err != nil {
				continue
			}
		}
		facts, err := p.detect(ctx, python)
		if err != nil {
			return absent(fmt.Sprintf("%s of %s, which does not work: %v", p.Module, python, err))
		}
		return finding{interpreter: python, facts: facts}
	}
	return absent(fmt.Sprintf("Python module %s in %s and of python3 on PATH", p.Module, p.env))
}

// mend is the command that installs the peer where it is looked for.
func (s *peerSpec) mend() string {
	flag := ""
	if s.root != "" {
		flag = " --peers " + shell.Word(s.root)
	}
	return replaced([]string{orElse(s.Mend, "trivium compare peers install "+s.Name+"{peers}")}, "{peers}", flag)[0]
}

// detect asks the program for its versions.
func (p *peer) detect(ctx context.Context, python string) (Facts, error) {
	dir, err := os.MkdirTemp("", "trivium-peer-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, p.dir); err != nil {
		return nil, err
	}
	words := p.command(p.Program, python)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], "--detect")...)
	cmd.Dir = filepath.Join(dir, p.folder)
	cmd.WaitDelay = time.Second // a process that it started may keep its output open
	var problems lastLines
	cmd.Stderr = &problems
	out, err := cmd.Output()
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		err = cause
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and has said all that it had to say
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, last(problems.lines()))
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	var facts map[string]any
	if err := json.Unmarshal(line, &facts); err != nil {
		return nil, fmt.Errorf("--detect prints %q: %w", printable(string(line)), err)
	}
	f := Facts{}
	for k, v := range facts {
		f[k] = fmt.Sprint(v)
	}
	return f, nil
}

// command is that of a program, with the interpreter in its place.
func (p *peer) command(program []string, python string) []string {
	return replaced(program, "{python}", python, "{env}", p.env)
}

// replaced returns the words with the values of {names} in their places.
func replaced(words []string, pairs ...string) []string {
	r := strings.NewReplacer(pairs...)
	words = slices.Clone(words)
	for i := range words {
		words[i] = r.Replace(words[i])
	}
	return words
}

// count is how many processes of a role there are.
func (p *peer) count(role Role, s *Spec) int {
	switch n := p.row.Roles[string(role)].(type) {
	case float64:
		return int(n)
	case string:
		if n == "workers" {
			return s.Workers
		}
		return max(1, s.Servers)
	}
	return 0
}

// A peerLine is the Spec as a peer's process gets it: see peers/README.md.
type peerLine struct {
	Version   int                 `json:"version"`
	Task      string              `json:"task"`
	Mode      string              `json:"mode"`
	Staleness int                 `json:"staleness"`
	Role      Role                `json:"role"`
	Rank      int                 `json:"rank"`
	Workers   int                 `json:"workers"`
	Servers   int                 `json:"servers"`
	Threads   int                 `json:"threads"`
	Addresses map[string][]string `json:"addresses"`
	Interface string              `json:"interface"`
	Model     peerModel           `json:"model"`
	TrainX    string              `json:"train_x"`
	TrainY    string              `json:"train_y"`
	Rows      int64               `json:"rows"`
	Batch     int                 `json:"batch"`
	Full      bool                `json:"full"`
	Rate      float64             `json:"rate"`
	Init      string              `json:"init"`
	Out       string              `json:"out"`
	Clocks    int                 `json:"clocks,omitempty"`
	Extra     map[string]any      `json:"extra,omitempty"`
}

type peerModel struct {
	Inputs       int   `json:"inputs"`
	Image        []int `json:"image,omitempty"`        // height, width and channels of a row: where there are convolutions
	Convolutions []int `json:"convolutions,omitempty"` // the filters of each
	Hidden       []int `json:"hidden"`
	Outputs      int   `json:"outputs"`
}

const peerProtocol = 1

// peerModelOf is the model of one of the tasks here, on rows such as in.
func peerModelOf(t *Task, in *trivium.InputSpec, classes int) (peerModel, error) {
	name, args, _ := strings.Cut(t.Job.Model, ":")
	m := peerModel{Inputs: in.Columns(), Hidden: []int{}, Outputs: classes}
	switch name {
	case "logistic":
		m.Outputs = 1
	case "softmax":
	case "mlp", "cnn":
		for word := range strings.SplitSeq(args, ",") {
			var n int
			if _, err := fmt.Sscan(word, &n); err != nil {
				return m, fmt.Errorf("compare: %s: sizes %q", t.Job.Model, args)
			}
			m.Hidden = append(m.Hidden, n)
		}
		if last := len(m.Hidden) - 1; name == "cnn" {
			m.Image, m.Convolutions, m.Hidden = in.Shape, m.Hidden[:last], m.Hidden[last:]
		}
	default:
		return m, fmt.Errorf("compare: peers train the models of the tasks here, and not %s", t.Job.Model)
	}
	return m, nil
}

// Start implements System.
func (p *peer) Start(ctx context.Context, s Spec) (Trial, error) {
	if s.Batch == trivium.FullBatch && !p.About().Full {
		return nil, fmt.Errorf("compare: %s takes no full batch", p.Name())
	}
	model, err := peerModelOf(&s.Task, &s.input, s.classes)
	if err != nil {
		return nil, err
	}
	t := newPeerTrial(ctx, s.limit)
	t.mode, t.lead, t.clocks = p.About().Mode, Role(orElse(string(p.Lead), string(WorkerRole))), p.row.Clocks
	if err := p.launch(t, &s, model); err != nil {
		return nil, errors.Join(err, t.Stop(ctx))
	}
	t.wait.Go(func() { t.drive(s) })
	return t, nil
}

// launch starts the row's processes, schedulers first, each with its Spec.
func (p *peer) launch(t *peerTrial, s *Spec, model peerModel) error {
	t.remove, t.out = filepath.Join(s.OutDir, "program"), s.OutDir
	if err := os.Mkdir(t.remove, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(t.remove, p.dir); err != nil {
		return err
	}
	program := filepath.Join(t.remove, p.folder)
	line := peerLine{
		Version: peerProtocol, Task: s.Task.Name, Mode: p.row.Mode, Staleness: p.row.Staleness, Workers: s.Workers, Servers: p.count(ServerRole, s),
		Threads: s.Threads, Interface: "lo", Model: model, TrainX: filepath.Join(s.DataDir, "train-x.npy"), TrainY: filepath.Join(s.DataDir, "train-y.npy"),
		Rows: s.rows, Batch: max(0, int(s.Batch)), Full: s.Batch == trivium.FullBatch, Rate: s.Task.Job.Optimizer.Rate, Init: s.InitPath, Extra: p.row.Extra, Clocks: p.row.Clocks,
		Addresses: map[string][]string{},
	}
	if s.spaces != nil {
		line.Interface = spaceInterface
	}
	type place struct {
		role Role
		rank int
	}
	var places []place
	for _, role := range []Role{SchedulerRole, ServerRole, WorkerRole} {
		for rank := range p.count(role, s) {
			places = append(places, place{role, rank})
		}
	}
	if s.spaces != nil && len(places) > len(s.spaces.list) {
		return fmt.Errorf("compare: %d processes, and %d network namespaces", len(places), len(s.spaces.list))
	}
	addresses, err := freeAddresses(s.spaces, len(places))
	if err != nil {
		return err
	}
	for i, x := range places {
		line.Addresses[string(x.role)] = append(line.Addresses[string(x.role)], addresses[i])
	}
	for i, x := range places {
		line.Role, line.Rank = x.role, x.rank
		line.Out = filepath.Join(s.OutDir, fmt.Sprintf("%s-%d", x.role, x.rank))
		if err := os.Mkdir(line.Out, 0o755); err != nil {
			return err
		}
		text, err := json.Marshal(&line)
		if err != nil {
			return err
		}
		space := ""
		if s.spaces != nil {
			space = s.spaces.list[i].path
		}
		if err := t.start(x.role, x.rank, p.command(p.row.Program, p.interpreter), program, space, s.Cores, text); err != nil {
			return fmt.Errorf("compare: %s does not start: %w", p.Name(), err)
		}
	}
	return nil
}
