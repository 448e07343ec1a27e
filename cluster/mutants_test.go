package cluster_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var runMutants = flag.String("cluster.mutants", "", "run the mutants whose names match this expression: each is built and explored, half a minute each")

// A mutant is a mistake that somebody could make in the membership protocol. The explorer must catch each one within the seeds that ten
// seconds allow, a few thousand; one that survives is a hole in what TestSeeds asks for.
type mutant struct {
	name     string
	why      string // what is wrong with it
	file     string
	old, new string // a place in the file, which it has once, and what stands there instead
}

var mutants = []mutant{
	{
		"conflict-wins", "a proposer whose put met a conflict tells its view all the same: two views of one epoch", "succession.go",
		"\tif conflict {\n\t\tm.change.active = false",
		"\tif conflict && m.now < 0 {\n\t\tm.change.active = false",
	},
	{
		"told-before-put", "a proposer tells its view before the store has it", "succession.go",
		"\tm.change.put = next\n\tm.ask(putting",
		"\tm.change.put = next\n\tm.flood(&announcement{next, m.rev + 1}, -1)\n\tm.ask(putting",
	},
	{
		"silence-is-yes", "a put of which the store said nothing is taken for done", "store.go",
		"\tif c.what == putting && c.put == m.change.put {\n\t\tm.unknown()",
		"\tif c.what == putting && m.change.put != nil {\n\t\tm.learn(m.change.put, m.rev+1)\n\t\tm.unknown()",
	},
	{
		"any-answer", "the answer to an older put ends the one under way, and that to one of the same epoch is taken for its own", "succession.go",
		"\tnext := c.put\n\tif next != m.change.put {\n\t\treturn // the view went on meanwhile\n\t}\n\tm.change.put = nil\n",
		"\tnext := m.change.put\n\tm.change.put = nil\n\tif next == nil || next.Epoch != c.put.Epoch {\n\t\treturn\n\t}\n",
	},
	{
		"no-lease", "a minority goes on although nothing proves that the others are dead", "proof.go",
		"\t\tif !m.leaseEnded(p.Name) {\n\t\t\tall = false\n\t\t}\n",
		"",
	},
	{
		"asked-once", "a proposal that was lost is not sent again", "change.go",
		"\t\tif m.now-c.asked > 2*m.policy.Heartbeat {\n\t\t\tm.canvass()\n\t\t}\n",
		"",
	},
	{
		"never-knocks", "a newcomer knocks once: if nobody hears it then, it waits for ever", "machine.go",
		"\t} else if m.knocks() {\n\t\tm.knock()\n",
		"\t} else if m.tick.count == 2 {\n\t\tm.knock()\n",
	},
	{
		"leaver-stays", "the next view keeps who asked to leave", "change.go",
		"\t\tif m.peers[r].how == fine && !m.peers[r].leaving {\n\t\t\tnext.Stay",
		"\t\tif m.peers[r].how == fine {\n\t\t\tnext.Stay",
	},
}

// TestMutants builds each mutant and lets the explorer loose on it: go test -run TestMutants -v ./cluster -cluster.mutants=.
func TestMutants(t *testing.T) {
	only, err := regexp.Compile(*runMutants)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			whole, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(whole), m.old); n != 1 {
				t.Fatalf("%s has what the mutant replaces %d times, want once: bring it up to date", m.file, n)
			}
			if *runMutants == "" || !only.MatchString(m.name) {
				t.Skip("not run here: -cluster.mutants asks for it")
			}
			m.explore(t, string(whole))
		})
	}
}

// explore fails if the explorer finds nothing.
func (m mutant) explore(t *testing.T, whole string) {
	dir := t.TempDir()
	wrong, overlay, built := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	here, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {here: wrong}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{wrong: []byte(strings.Replace(whole, m.old, m.new, 1)), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", built, ".").CombinedOutput(); err != nil {
		t.Fatalf("the mutant is no program: %v\n%s", err, out)
	}
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), built, "-test.run=^TestSeeds$", "-cluster.seeds=10s").CombinedOutput()
	if err == nil {
		t.Fatalf("it survived %v: %s\n%s", time.Since(began).Round(time.Second), m.why, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "seed") {
			t.Logf("caught after %v: %s", time.Since(began).Round(time.Second/10), strings.TrimSpace(line))
			return
		}
	}
	t.Fatalf("it failed, but not by a seed:\n%s", out)
}
