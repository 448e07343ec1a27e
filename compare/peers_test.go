package compare

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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
	if got := strings.Join(plain.command("PY"), " "); got != "PY a.py ENV" {
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

// TestDetectOnce: rows of one program ask it once, since that may take it seconds; a row with another program asks that.
func TestDetectOnce(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	says := func(version string) []string {
		return []string{"/bin/sh", "-c", "echo " + version + " >>" + asked + `; echo '{"x":"` + version + `"}'`}
	}
	s := &peerSpec{Name: "x", Program: says("1"), dir: fstest.MapFS{}}
	for i, row := range []*peerRow{{Name: "a"}, {Name: "b"}, {Name: "c", Program: says("2")}, {Name: "d"}} {
		want := Facts{"x": "1"}
		if row.Name == "c" {
			want["x"] = "2"
		}
		p := s.peer(row, "")
		if f, err := p.Detect(t.Context()); err != nil || !maps.Equal(f, want) || p.interpreter != "/bin/sh" {
			t.Errorf("row %d: %v of %q, %v", i, f, p.interpreter, err)
		}
	}
	if got, err := os.ReadFile(asked); err != nil || string(got) != "1\n2\n" {
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
