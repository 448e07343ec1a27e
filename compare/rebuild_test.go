package compare

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
)

// TestRebuild: the recorded trials give the report again, of a finished comparison and of one that is not.
func TestRebuild(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local", "allreduce")
	whole := run(t, p)
	again, err := Rebuild(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range whole.Tables[0].Rows {
		y := again.Tables[0].Rows[i]
		if x.System != y.System || x.Rate.Median != y.Rate.Median || x.Proof != y.Proof || x.Why != y.Why || !reflect.DeepEqual(x.Use, y.Use) {
			t.Errorf("row %s: %+v, rebuilt %+v", x.System, x, y)
		}
	}
	if again.Tables[0].Reference != whole.Tables[0].Reference || again.Tables[0].title() != whole.Tables[0].title() {
		t.Errorf("table %+v, rebuilt %+v", whole.Tables[0], again.Tables[0])
	}
	page := filepath.Join(p.Dir, "report.html")
	if err := errors.Join(os.Remove(page), again.WritePage(p.Dir)); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "Equality proof") || strings.Contains(string(text), "not finished") {
		t.Errorf("the page was not written anew: %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Join(p.Dir, reportFile)), os.RemoveAll(filepath.Join(p.Dir, trialsDir, Cell{Task: "softmax", Batch: 20, Workers: 3, System: "allreduce"}.ID()+"-r1"))); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadReport(p.Dir); !errors.Is(err, ErrUnfinished) {
		t.Errorf("a comparison without its report is read: %v", err)
	}
	part, err := Rebuild(p.Dir)
	if err == nil && (part.Tables[0].Reference != whole.Tables[0].Reference || part.Tables[0].Checksum != whole.Tables[0].Checksum || part.Tables[0].Checksum == "") {
		t.Errorf("of an unfinished comparison: table %+v, want the look-ups of %+v", part.Tables[0], whole.Tables[0])
	}
	if err != nil || part.Tables[0].Rows[0].Good != 1 || part.Tables[0].Rows[1].Good != 0 || part.Check.Why == "" {
		t.Errorf("of an unfinished comparison: %+v, %v", part, err)
	}
	if err := part.WritePage(p.Dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	lead, rest, _ := strings.Cut(string(text), "</header>")
	if err != nil || !strings.Contains(lead, "This comparison is not finished") || !strings.Contains(rest, ">not yet measured<") {
		t.Errorf("the page of an unfinished comparison does not say so at its head, or of the row that is still to come: %v", err)
	}
	if _, err := Rebuild(t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no comparison") {
		t.Errorf("of an empty folder: %v", err)
	}
}

// TestForesee: a forecast measures nothing and leaves nothing behind; of finished trials it knows what they took.
func TestForesee(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local", "allreduce", "server-asp")
	p.Repeats = 4
	f, err := Foresee(t.Context(), p)
	if err != nil || f.Trials != 12 || f.Time <= 0 {
		t.Errorf("%v: %v", f, err)
	}
	if _, err := os.Stat(p.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it leaves %s: %v", p.Dir, err)
	}
	hit := p
	hit.Faults = true
	if g, err := Foresee(t.Context(), hit); err != nil || g.Trials != 12 || g.Faults != 6 || g.Time < f.Time+6*faultStop || !strings.HasPrefix(g.String(), "12 trials and 6 faults, about ") {
		t.Errorf("with a worker and a server killed and stopped: %d faults, %v, without them %v: %v", g.Faults, g, f, err)
	}
	var notes []string
	p.Repeats = 1
	p.Watch.Note = func(s string) { notes = append(notes, s) }
	run(t, p)
	if len(notes) == 0 || !strings.HasPrefix(notes[len(notes)-1], "3 trials, about ") {
		t.Errorf("it says %q", notes)
	}
	if f, err = Foresee(t.Context(), p); err != nil || f.Trials != 0 || f.Time != 0 {
		t.Errorf("of a finished plan: %v, %v", f, err)
	}
	dealt := []Fault{{System: "allreduce", Signal: "kill", Role: WorkerRole}, {System: "server-asp", Signal: "stop", Role: ServerRole, Error: "it ended before"}}
	if err := writeJSON(filepath.Join(p.Dir, faultFile), dealt); err != nil {
		t.Fatal(err)
	}
	hit.Repeats = 1
	if f, err = Foresee(t.Context(), hit); err != nil || f.Trials != 0 || f.Faults != 5 || !strings.HasPrefix(f.String(), "5 faults, about ") {
		t.Errorf("where one fault of six is measured and one could not be: %v, %v", f, err)
	}
}

// TestRepeatsSettled: a new comparison whose repeats are left open has as many as are foreseen to take as long as it may, three to seven, and one that
// is begun goes on with its own.
func TestRepeatsSettled(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local", "allreduce")
	p.Repeats = 0
	trials := func(within time.Duration) Forecast {
		t.Helper()
		p.Within = within
		f, err := Foresee(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	all := trials(time.Hour)
	if all.Trials != 14 {
		t.Errorf("%d trials where there is time for all", all.Trials)
	}
	if f := trials(all.Time * 11 / 14); f.Trials < 8 || f.Trials > 12 {
		t.Errorf("%d trials where there is time for five of seven repeats", f.Trials)
	}
	killed := p // before its first trial
	killed.defaults()
	rec := killed.record()
	if err := errors.Join(os.MkdirAll(p.Dir, 0o755), writeJSON(filepath.Join(p.Dir, planFile), &rec)); err != nil {
		t.Fatal(err)
	}
	if f := trials(time.Hour); f.Trials != 14 {
		t.Errorf("%d trials of one that was begun by a process which made none", f.Trials)
	}
	if err := os.RemoveAll(p.Dir); err != nil {
		t.Fatal(err)
	}
	for _, within := range []time.Duration{0, 1} {
		if f := trials(within); f.Trials != 6 {
			t.Errorf("%d trials within %v", f.Trials, within)
		}
	}
	p.Within = 1
	begun := run(t, p)
	if begun.Repeats != 3 || begun.Tables[0].Rows[0].Good != 3 {
		t.Errorf("%d repeats, of which local has %d", begun.Repeats, begun.Tables[0].Rows[0].Good)
	}
	for _, name := range []string{reportFile, filepath.Join(trialsDir, Cell{Task: "softmax", Batch: 20, Workers: 1, System: "local"}.ID()+"-r3")} {
		if err := os.RemoveAll(filepath.Join(p.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if f := trials(time.Hour); f.Trials != 1 {
		t.Errorf("%d trials of one that is begun and lacks one", f.Trials)
	}
	if dir := FindUnfinished(filepath.Dir(p.Dir), p); dir != p.Dir {
		t.Errorf("found %q, want %s", dir, p.Dir)
	}
	if p.Repeats = 7; FindUnfinished(filepath.Dir(p.Dir), p) != "" {
		t.Error("seven repeats were asked for, and three are gone on with")
	}
}

// TestForeseeOneOfMany: of a trial whose folder was removed, so that it is run again, the later repeats are still done.
func TestForeseeOneOfMany(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local")
	p.Repeats = 3
	run(t, p)
	if err := os.RemoveAll(filepath.Join(p.Dir, trialsDir, Cell{Task: "softmax", Batch: 20, Workers: 1, System: "local"}.ID()+"-r1")); err != nil {
		t.Fatal(err)
	}
	if f, err := Foresee(t.Context(), p); err != nil || f.Trials != 1 || f.Time <= 0 {
		t.Errorf("%v: %v; want one trial, as long as the others", f, err)
	}
	if again := run(t, p); again.Tables[0].Rows[0].Good != 3 {
		t.Errorf("%d good trials", again.Tables[0].Rows[0].Good)
	}
}

// TestForeseeAbsent: a forecast says which rows it leaves out, and why.
func TestForeseeAbsent(t *testing.T) {
	p := small(t, inMemory(), digits(), "local", "allreduce")
	p.Systems[0] = missing{p.Systems[0]}
	f, err := Foresee(t.Context(), p)
	if want := "not counted, since it is not here: local: not installed: looked for its program (install it)"; err != nil || f.Trials != 1 || !strings.HasSuffix(f.String(), "\n"+want) {
		t.Errorf("%v: %v; want at its end %s", err, f, want)
	}
	p.Systems = p.Systems[:1]
	if f, err = Foresee(t.Context(), p); err != nil || !strings.HasPrefix(f.String(), "there is no trial to do\n") {
		t.Errorf("%v: %v", err, f)
	}
}

// TestDrawnDigits: digits that are read from files are those that are generated, bit for bit; a part of them is not written.
func TestDrawnDigits(t *testing.T) {
	if testing.Short() {
		t.Skip("draws 70,000 digits: left out of -short")
	}
	dir := t.TempDir()
	d := trivium.Data{Source: "digits", Order: "index"}
	got, err := drawn(t.Context(), d, dir)
	if err != nil || got.Source == d.Source {
		t.Fatalf("%+v: %v", got, err)
	}
	task := digits()
	task.Job.Data = got
	e, err := openEvaluator(t.Context(), task, inMemory())
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	for _, x := range []struct {
		ds         data.Dataset
		rows, from int64 // of the generator: its test images begin at a million
	}{{e.splits.Train, 60_000, 0}, {e.splits.Test, 10_000, 1_000_000}} {
		if x.ds.Rows() != x.rows {
			t.Errorf("%d rows, want %d", x.ds.Rows(), x.rows)
		}
		compareDigits(t, x.ds, x.from)
	}
	part := d
	part.Rows = 100
	if got, err := drawn(t.Context(), part, dir); err != nil || got.Source != part.Source {
		t.Errorf("a part is written: %+v, %v", got, err)
	}
}

// compareDigits compares rows of ds, some of every batch and the last, with the images that the generator draws from number from on.
func compareDigits(t *testing.T, ds data.Dataset, from int64) {
	t.Helper()
	var b trivium.Batch
	pixels := make([]byte, 784)
	for r := range ds.Rows() {
		if r%17 != 0 && r != ds.Rows()-1 {
			continue
		}
		if err := ds.Read(t.Context(), &b, r, r+1); err != nil {
			t.Fatal(err)
		}
		label := data.Digit(pixels, from+r)
		if b.Labels.Class[0] != label {
			t.Fatalf("row %d is a %d, drawn as %d", r, b.Labels.Class[0], label)
		}
		for i, v := range pixels {
			if b.Inputs[0].Values[i] != float32(v)/255 {
				t.Fatalf("row %d: cell %d is %v, drawn as %d of 255", r, i, b.Inputs[0].Values[i], v)
			}
		}
	}
}

// TestPages: every section is there once its facts are.
func TestPages(t *testing.T) {
	row := func(name string, mode Mode, peer bool, workers int, rate float64) *Row {
		seconds := []float64{1, 1.1, 1.2}
		if peer {
			seconds = []float64{5, 5.1, 5.2}
		}
		x := &Row{System: name, Title: name, Mode: mode, Peer: peer, Workers: workers, Servers: 1, Threads: 1, Good: 3, Reached: 3, Ranked: true, Proof: proven, Target: spread(seconds), Rate: spread([]float64{rate, rate, rate})}
		x.Use = map[Role]PerUse{WorkerRole: {Processes: workers, MeanBytes: 1e6, BytesSample: 3}, ServerRole: {Processes: 1, NotCounted: "no namespaces"}}
		for i := range 3 {
			x.Trials = append(x.Trials, Repeat{Repeat: i + 1, Result: Result{SamplesPerSec: rate, Seconds: 1, SamplesToTarget: 1000, Reached: true, Phases: map[string]float64{"compute": 1, "wait-stale": 1}, Staleness: map[string]float64{"0": 1, "2": 3}}})
		}
		return x
	}
	r := &Report{Cores: 8, Repeats: 3, Frequency: "governor performance on 8 processors"}
	for _, w := range []int{1, 3} {
		t1 := &Table{Task: "softmax", Data: "digits", Batch: 500, Workers: w, Target: Target{"test", "accuracy", 0.9, true}}
		t1.Rows = []*Row{
			row("local", Sync, false, 1, 100), row("server-bsp", Sync, false, w, 200), row("server-ssp3", Stale(3), false, w, 300),
			row("server-asp", Async, false, w, 350), row("mxnet-sync", Sync, true, w, 50), row("mxnet-sync-default", Sync, true, w, 40),
		}
		t1.rank()
		r.Tables = append(r.Tables, t1)
	}
	r.Faults = []Fault{{System: "server-bsp", Signal: "kill", Role: WorkerRole, Outcome: "the others end", Ended: true, Seconds: 0.1}, {System: "mxnet-sync", Signal: "stop", Role: ServerRole, Error: "not measured: why"}}
	r.Efforts = []Effort{{System: "mxnet-sync", Lines: 120, Processes: "1 scheduler, 1 server, N workers"}}
	r.conclude(&Plan{})
	dir := t.TempDir()
	if err := r.writeGap(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "gap.svg")); (err == nil) != (r.Tables[0].Rows[4].Target.Median > r.Tables[0].Rows[0].Target.Median) {
		t.Errorf("gap.svg: %v", err)
	}
	f, err := os.Create(filepath.Join(dir, "page"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := r.html(f); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{
		"Where the published gap goes", "as shipped", "our twin", "A verdict per claim", "Setup", "governor performance", "Equality proof", "Table 3 of the paper", "424,600", "generated digits stand in for MNIST",
		"Time to target", "The sweep of staleness", "How many clocks reads were behind", "Processor, memory and network by role", "Scaling", "weak scaling", "Where a step", "The best single thread",
		"Faults and effort", "the others end", "lines of code", "Threats to validity",
	} {
		i := strings.Index(string(page[at:]), want)
		if i < 0 {
			t.Errorf("the page has no %q after byte %d, in this order", want, at)
			continue
		}
		if want[0] >= 'A' && want[0] <= 'Z' && !strings.Contains(want, "How many") { // sections come in order
			at += i
		}
	}
}

// TestFrequencyPolicy: what Linux says of the processors' frequency is read from its files.
func TestFrequencyPolicy(t *testing.T) {
	dir := t.TempDir()
	if got := frequencyPolicy(dir); !strings.HasPrefix(got, "not said") {
		t.Errorf("without files: %q", got)
	}
	for name, text := range map[string]string{"cpu0/cpufreq/scaling_governor": "powersave\n", "cpu1/cpufreq/scaling_governor": "performance\n", "intel_pstate/no_turbo": "0\n", "cpu0/thermal_throttle/core_throttle_count": "4\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := frequencyPolicy(dir), "governor performance on 1 processors, powersave on 1 processors; turbo allowed"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if n := throttledEvents(dir); n != 4 {
		t.Errorf("%d events of throttling, want 4", n)
	}
}

// TestCodeLines: blank lines, comments and texts that stand alone are not code.
func TestCodeLines(t *testing.T) {
	program := "\"\"\"What it is,\nand why.\"\"\"\n\n# a comment\nimport os\n\ndef f():\n    '''One line.'''\n    return os  # here\n"
	if n := codeLines([]byte(program)); n != 3 {
		t.Errorf("%d lines of code, want 3", n)
	}
}

// The page says where our connections are not what the system's are, and only there.
func TestCongestionControl(t *testing.T) {
	dir := t.TempDir()
	if got := congestionControl(dir); got != "" {
		t.Errorf("%q, and the system says nothing", got)
	}
	for name, want := range map[string]bool{"bbr": true, "cubic": false} {
		if err := os.WriteFile(filepath.Join(dir, "tcp_congestion_control"), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := Report{Control: congestionControl(dir)}
		r.threats()
		if got := strings.Contains(strings.Join(r.Threats, "\n"), "congestion control of TCP is "+name); got != want {
			t.Errorf("%s: the page says so: %v, want %v: %q", name, got, want, r.Threats)
		}
	}
}

// TestReadAbsent: a system that was not here says so too when the finished report is read again.
func TestReadAbsent(t *testing.T) {
	dir := t.TempDir()
	const why = "not installed: looked for Python module mxnet (trivium compare peers install mxnet)"
	r := &Report{Format: formatVersion, Tables: []*Table{{Task: "mlp1", Workers: 3, Batch: 100, Rows: []*Row{{System: "mxnet-sync", Mode: Sync, Error: why}}}}}
	if err := writeJSON(filepath.Join(dir, reportFile), r); err != nil {
		t.Fatal(err)
	}
	again, err := ReadReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := again.Text(&text); err != nil || !strings.Contains(text.String(), why) || strings.Contains(text.String(), "not yet") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestRebuildOfMore: what is rebuilt says what the last command's report said: whether it is a quick look, and what the user's file is called.
func TestRebuildOfMore(t *testing.T) {
	bookkeeping(t)
	task := digits()
	task.Own, task.Job.Batch, task.File = true, 20, "job.yaml"
	p := small(t, inMemory(), task, "local")
	p.Repeats = good
	run(t, p)
	task.File = "jobs/job.yaml"
	p.Tasks, p.Quick = []Task{task}, false
	r := run(t, p)
	again, err := Rebuild(p.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if again.Quick != r.Quick || !strings.Contains(r.Best.Text, "-f jobs/job.yaml") || again.Best.Text != r.Best.Text {
		t.Errorf("quick %v, %q; rebuilt: quick %v, %q", r.Quick, r.Best.Text, again.Quick, again.Best.Text)
	}
}
