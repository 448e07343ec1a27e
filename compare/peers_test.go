package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/trivium-ml/trivium"
)

// TestPeerFiles: every peer that travels in the program has a program, an account of its tuning, and rows that can be started.
func TestPeerFiles(t *testing.T) {
	files, err := fs.Sub(peerFiles, "peers")
	if err != nil {
		t.Fatal(err)
	}
	specs, err := knownPeers(files)
	if err != nil || len(specs) == 0 {
		t.Fatalf("%d peers, %v", len(specs), err)
	}
	seen := map[string]bool{}
	for _, s := range specs {
		if _, err := fs.Stat(files, s.folder+"/TUNING.md"); err != nil {
			t.Errorf("%s has no TUNING.md", s.Name)
		}
		if s.folder != s.Name || s.SizeMB == 0 || len(s.Install) == 0 {
			t.Errorf("%s: folder %s, %d MB, install %q", s.Name, s.folder, s.SizeMB, s.Install)
		}
		for i := range s.Rows {
			p := s.peer(&s.Rows[i], t.TempDir())
			if seen[p.Name()] {
				t.Errorf("two rows are called %s", p.Name())
			}
			seen[p.Name()] = true
			if _, err := fs.Stat(files, s.folder+"/"+p.row.Program[1]); err != nil {
				t.Errorf("%s: %v", p.Name(), err)
			}
			lead := Role(orElse(string(p.Lead), string(WorkerRole)))
			if n := p.count(lead, &Spec{Workers: 3}); n == 0 {
				t.Errorf("%s: no process is told what to do", p.Name())
			}
		}
	}
}

// TestPeerRows: a row has the programs, roles and models of its own, and where it has none those of its peer.
func TestPeerRows(t *testing.T) {
	s := &peerSpec{Name: "x", Program: []string{"{python}", "a.py", "{env}"}, Roles: map[string]any{"server": "servers", "worker": "workers"}}
	plain := s.peer(&peerRow{Name: "plain", Mode: "sync"}, "ENV")
	own := s.peer(&peerRow{Name: "own", Mode: "sync", Program: []string{"{python}", "b.py"}, Roles: map[string]any{"worker": "workers"}, Full: "only", Models: []string{"mlp"}}, "ENV")
	if got := strings.Join(plain.command(plain.row.Program, "PY"), " "); got != "PY a.py ENV" {
		t.Errorf("command %q", got)
	}
	if a := plain.About(); a.Server != 1 || a.Full || a.Whole {
		t.Errorf("plain is %+v", a)
	}
	if a := own.About(); a.Server != 0 || !a.Full || !a.Whole {
		t.Errorf("own is %+v", a)
	}
	if !own.trains("mlp:100") || own.trains("softmax") || !plain.trains("softmax") {
		t.Error("models are not those that the row names")
	}
	if n := own.count(ServerRole, &Spec{Workers: 3, Servers: 1}); n != 0 {
		t.Errorf("%d servers of a row that has none", n)
	}
	// What takes nothing but all rows is in no table of a smaller batch.
	task := digits()
	task.Job.Model = "mlp:100"
	p := Plan{Tasks: []Task{task}, Systems: []System{plain, own}, Batches: []Batch{100, trivium.FullBatch}}
	p.defaults()
	for _, g := range p.groups() {
		for _, c := range g.cells {
			if (c.System == "own") != (c.Batch == trivium.FullBatch) {
				t.Errorf("%s at batch %s", c.System, c.Batch)
			}
		}
	}
}

// TestPeerBuilt: what must be built is looked for before any program is started, and its absence says how to mend it.
func TestPeerBuilt(t *testing.T) {
	env := t.TempDir()
	p := (&peerSpec{Name: "x", Built: "bin/x", Mend: "build it"}).peer(&peerRow{Name: "x", Mode: "ssp"}, env)
	_, err := p.Detect(t.Context())
	var absent *AbsentError
	if !errors.As(err, &absent) || absent.Looked != filepath.Join(env, "bin/x") || absent.Mend != "build it" {
		t.Errorf("%v", err)
	}
}

// TestPeerMend: the command that mends a system's absence installs it where it was looked for: in the folder that the user named, else in his own.
func TestPeerMend(t *testing.T) {
	root := filepath.Join(t.TempDir(), "other systems")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for folder, flag := range map[string]string{root: " --peers '" + root + "'", "": ""} {
		rows, err := Peers(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range rows {
			p := s.(*peer)
			want := "trivium compare peers install " + p.peerSpec.Name + flag
			if p.peerSpec.Name == "pmls" {
				want = "trivium compare peers install pmls --peer-source pmls=DIR" + flag + ", with Bösen's source"
			}
			if got := p.mend(); got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
			p.Built = "no such file"
			if f := p.look(t.Context()); f.err == nil || !strings.HasSuffix(f.err.Error(), "("+want+")") {
				t.Errorf("%s: %v", p.Name(), f.err)
			}
		}
	}
}

// TestDetectOnce: the rows of a system ask it once, since that may take it seconds: by its own program, also those that have another.
func TestDetectOnce(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	s := &peerSpec{Name: "x", Program: []string{"/bin/sh", "-c", "echo asked >>" + asked + `; echo '{"x":"1"}'`}, dir: fstest.MapFS{}}
	var systems []System
	for _, row := range []*peerRow{{Name: "a"}, {Name: "b"}, {Name: "c", Program: []string{"/bin/false"}}} {
		systems = append(systems, s.peer(row, ""))
	}
	systems = append(systems, fakePeers(t, "good")...)
	r := &runner{plan: &Plan{Systems: systems}}
	r.plan.defaults()
	facts, errs := r.ask(t.Context())
	for i, want := range []Facts{{"x": "1"}, {"x": "1"}, {"x": "1"}, {"fake": "1.0"}} {
		if p := systems[i].(*peer); errs[i] != nil || !maps.Equal(facts[i], want) || p.interpreter != p.Program[0] {
			t.Errorf("%s: %v of %q, %v", p.Name(), facts[i], p.interpreter, errs[i])
		}
	}
	if got, err := os.ReadFile(asked); err != nil || string(got) != "asked\n" {
		t.Errorf("asked %q, %v", got, err)
	}
}

// TestInstallMistakes: nothing is made before every mistake is said.
func TestInstallMistakes(t *testing.T) {
	root := filepath.Join(t.TempDir(), "peers")
	var out bytes.Buffer
	err := InstallPeers(t.Context(), root, []string{"nobody"}, map[string]string{"pytorch": "/"}, &out)
	for _, want := range []string{`no peer is called "nobody"; there are horovod, mxnet`, "--peer-source pytorch=/: no peer of that name is built"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) || out.Len() > 0 {
		t.Errorf("something was made: %v %q", err, out.String())
	}
}

// TestPeersFolder: programs are started in folders of their own, so a relative folder of environments is one of the caller's.
func TestPeersFolder(t *testing.T) {
	list, err := Peers("environments")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if p := s.(*peer); !filepath.IsAbs(p.env) {
			t.Errorf("the environment of %s is looked for in %s", p.Name(), p.env)
		}
	}
}

// TestOwnRows: a peer's worker holds the rows of its part of each update, in that order, and of all rows its share; of an update past the
// epoch's end it takes those of the next one.
func TestOwnRows(t *testing.T) {
	python, err := findNumPy(t.Context(), "")
	if err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	const rows, workers, batch = 23, 2, 3 // three updates of six rows, and five that are left over
	dir := t.TempDir()
	var x []float32
	var y []int32
	for i := range rows {
		x, y = append(x, float32(i), -float32(i)), append(y, int32(i))
	}
	err = errors.Join(
		writeFile(filepath.Join(dir, "x.npy"), func(f *os.File) error {
			_, err := f.Write(npyHeader("<f4", rows, 2))
			return errors.Join(err, writeFloats(f, x))
		}),
		writeFile(filepath.Join(dir, "y.npy"), func(f *os.File) error {
			_, err := f.Write(npyHeader("<i4", rows))
			return errors.Join(err, writeInts(f, y))
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	program, err := peerFiles.ReadFile("peers/driven.py")
	if err != nil {
		t.Fatal(err)
	}
	const asks = `
for spec in json.loads(sys.argv[1]):
    x, y = own(spec)
    assert x.flags.owndata or x.base.flags.owndata, "pages of the file"
    assert (x[:, 0] == y).all() and (x[:, 1] == -y).all()
    for t in range(4):
        at, to = rows(spec, t, len(y))
        print(*y[at:to])
    print("of", len(y))
`
	var specs []peerLine
	for _, full := range []bool{false, true} {
		for rank := range workers {
			specs = append(specs, peerLine{
				Rank: rank, Workers: workers, Batch: batch, Full: full, Rows: rows, TrainX: filepath.Join(dir, "x.npy"), TrainY: filepath.Join(dir, "y.npy"),
			})
		}
	}
	words, err := json.Marshal(specs)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", string(program)+asks, string(words)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	low, high := "0 1 2 3 4 5 6 7 8 9 10", "11 12 13 14 15 16 17 18 19 20 21 22"
	want := []string{
		"0 1 2", "6 7 8", "12 13 14", "0 1 2", "of 9", "3 4 5", "9 10 11", "15 16 17", "3 4 5", "of 9",
		low, low, low, low, "of 11", high, high, high, high, "of 12",
	}
	if got := strings.Split(strings.TrimSpace(string(out)), "\n"); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestEffortOfImported: what a program takes of another is among its lines, and one that only drives the system's own is not counted.
func TestEffortOfImported(t *testing.T) {
	list, err := Peers(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]Effort{}
	for _, e := range efforts(list) {
		of[e.System] = e
		if (e.Lines > 0) != (e.NoCount == "") {
			t.Errorf("%+v", e)
		}
	}
	if of["horovod"].Lines <= of["pytorch-ddp"].Lines || of["spark-mllib"].Lines <= of["spark"].Lines || of["pmls-ssp0"].NoCount == "" {
		t.Errorf("horovod %+v, pytorch-ddp %+v, spark-mllib %+v, spark %+v, pmls-ssp0 %+v", of["horovod"], of["pytorch-ddp"], of["spark-mllib"], of["spark"], of["pmls-ssp0"])
	}
	r := &Report{Efforts: []Effort{of["pmls-ssp0"], of["horovod"]}}
	if text := fmt.Sprint(r.effort()); !strings.Contains(text, "its own example, not counted") || !strings.Contains(text, fmt.Sprint(of["horovod"].Lines)) {
		t.Error(text)
	}
}
