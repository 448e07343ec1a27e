package compare

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

// images is the task of a convolutional net, on a few images.
func images(t *testing.T) Task {
	t.Helper()
	list, err := PickTasks(Sources{}, []string{"cnn"})
	if err != nil {
		t.Fatal(err)
	}
	list[0].Job.Data.Rows = 240
	return list[0]
}

// TestConvolutionalTask: a comparison has it where it is named, with its rows and those of the systems that have a program for it; who has none is
// named, and is no row of it.
func TestConvolutionalTask(t *testing.T) {
	for _, c := range []struct {
		sources Sources
		want    string
	}{
		{Sources{}, "cnn on digits, 8000 rows"},
		{Sources{Tenth: "tenth"}, "cnn on digits, 8000 rows; cnn-10k on tenth, 0:8000 and 8000:"},
		{Sources{MNIST: "all", Tenth: "tenth"}, "cnn on all, 0:8000 and 8000:10000; cnn-10k on tenth, 0:8000 and 8000:"},
	} {
		var got []string
		for _, x := range Tasks(c.sources) {
			switch d := x.Job.Data; {
			case x.Job.Model != "cnn:20,50,500":
			case d.Rows > 0:
				got = append(got, fmt.Sprintf("%s on %s, %d rows", x.Name, d.Source, d.Rows))
			default:
				got = append(got, fmt.Sprintf("%s on %s, %s and %s", x.Name, d.Source, d.Train, d.Test))
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%+v: %s, want %s", c.sources, text, c.want)
		}
	}
	p := paperPlan(t, Sources{})
	p.Tasks = []Task{images(t)}
	tables := p.groups()
	if len(tables) != 1 || tables[0].title() != "cnn 100 3" {
		t.Fatalf("the full run has %d tables of it", len(tables))
	}
	var others []string
	for _, c := range tables[0].cells {
		if s := p.Systems[c.index]; s.About().Peer {
			others = append(others, c.System)
		} else if s.About().Clocks > 0 {
			t.Errorf("%s is a row of it", c.System)
		}
	}
	if got := listed(others); got != "horovod, horovod-default, pytorch-ddp, pytorch-ddp-default" {
		t.Errorf("the other systems' rows are %s", got)
	}
	const lacking = "no program for cnn (mxnet, pmls, spark, tensorflow)"
	if got := p.unprogrammed(); got != lacking {
		t.Errorf("it says %q, want %q", got, lacking)
	}
	p.Full, p.Dir = false, t.TempDir()
	p.Systems = slices.DeleteFunc(p.Systems, func(s System) bool { return !strings.HasPrefix(s.Name(), "mxnet") })
	if err := p.validate(); err == nil || !strings.Contains(err.Error(), "none of those systems trains any of those tasks at such a batch: no program for cnn (mxnet)") {
		t.Errorf("of MXNet alone: %v", err)
	}
}

// TestWithoutProgram: a system that has no program for a task is not started for it, and the terminal and the page say so.
func TestWithoutProgram(t *testing.T) {
	bookkeeping(t)
	p := small(t, inMemory(), digits(), "local")
	for _, s := range fakePeers(t, "crashes", "good") {
		s.(*peer).row.Models = map[string][]string{"crashes": {"logistic"}, "good": {"softmax"}}[s.Name()]
		p.Systems = append(p.Systems, s)
	}
	var notes []string
	p.Watch.Note = func(text string) { notes = append(notes, text) }
	r := run(t, p)
	var rows []string
	for _, x := range r.Tables[0].Rows {
		rows = append(rows, x.System)
	}
	if got := listed(rows); got != "local, good" {
		t.Errorf("its rows are %s", got)
	}
	const want = "no program for softmax (crashes)"
	if !slices.Contains(notes, want) {
		t.Errorf("the terminal says %q", notes)
	}
	if page := fmt.Sprint(r.missing()); !strings.Contains(page, want) {
		t.Errorf("the page says %s", page)
	}
}

// TestPeerModels: other systems are told each task's model as compare/peers/README.md says.
func TestPeerModels(t *testing.T) {
	image := trivium.InputSpec{Form: trivium.Dense, Shape: []int{28, 28, 1}}
	row := trivium.InputSpec{Form: trivium.Dense, Shape: []int{10000}}
	want := map[string]string{
		"logistic": `{"inputs":10000,"hidden":[],"outputs":1}`,
		"softmax":  `{"inputs":784,"hidden":[],"outputs":10}`,
		"mlp1":     `{"inputs":784,"hidden":[100],"outputs":10}`,
		"mlp2":     `{"inputs":784,"hidden":[128,32],"outputs":10}`,
		"cnn":      `{"inputs":784,"image":[28,28,1],"convolutions":[20,50],"hidden":[500],"outputs":10}`,
	}
	for _, task := range Tasks(Sources{}) {
		in, classes := &image, 10
		if task.Name == "logistic" {
			in, classes = &row, 2
		}
		m, err := peerModelOf(&task, in, classes)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(&m); err != nil || string(got) != want[task.Name] {
			t.Errorf("%s: %s, %v; want %s", task.Name, got, err, want[task.Name])
		}
		delete(want, task.Name)
	}
	if len(want) > 0 {
		t.Errorf("no task is %v", want)
	}
	lstm := Task{Job: trivium.Job{Model: "lstm"}}
	if m, err := peerModelOf(&lstm, &image, 10); err == nil {
		t.Errorf("an LSTM is %+v", m)
	}
}

// TestCheckConvolves: check.py finds the loss of a convolutional net that our evaluator finds, of parameters of which none is zero.
func TestCheckConvolves(t *testing.T) {
	python, err := findNumPy(t.Context(), "")
	if err != nil {
		t.Logf("not run here: %v", err)
		return
	}
	e, err := openEvaluator(t.Context(), images(t), inMemory())
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	dir := t.TempDir()
	if err := prepare(t.Context(), e, dir); err != nil {
		t.Fatal(err)
	}
	p := trivium.NewParams(e.model.Layout())
	e.model.Init(e.task.Job.Seed, p)
	for i, v := range p.Flat {
		p.Flat[i] = v + float32(i%7-3)/100 // biases are zero else
	}
	path := filepath.Join(dir, "p.safetensors")
	if err := writeParams(path, p); err != nil {
		t.Fatal(err)
	}
	want, err := e.loss(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(map[string]string{"path": path, "x": filepath.Join(dir, "train-x.npy"), "y": filepath.Join(dir, "train-y.npy")})
	if err != nil {
		t.Fatal(err)
	}
	out, err := recompute(t.Context(), python, strings.NewReader(string(line)+"\n"), checkPause)
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Loss float64 `json:"loss"`
	}
	if err := json.Unmarshal(out, &found); err != nil || !(math.Abs(found.Loss-want) <= checkTolerance) || want < 1 {
		t.Errorf("check.py answers %s (%v), our evaluator finds %v", out, err, want)
	}
}

var runOthers = flag.Bool("others", false, "run TestOthersConvolve, on the systems that compare peers install has installed")

// TestOthersConvolve: PyTorch and Horovod compute the convolutional net that local does, from the same weights.
func TestOthersConvolve(t *testing.T) {
	if !*runOthers {
		t.Skip("not run here: -others starts other systems, which takes a minute")
	}
	peers, err := Peers("")
	if err != nil {
		t.Fatal(err)
	}
	list, err := PickSystems(peers, []string{"pytorch-ddp", "horovod"})
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(s System) bool {
		_, err := s.Detect(t.Context())
		if err != nil {
			t.Logf("without %s: %v", s.Name(), err)
		}
		return err != nil
	})
	if len(list) == 0 {
		t.Fatal("none of them is installed")
	}
	p := small(t, inMemory(), images(t))
	p.Systems, p.Workers, p.Tasks[0].Cap = list, []int{2}, 2
	for _, x := range run(t, p).Tables[0].Rows {
		if x.Error != "" || x.Proof != proven || x.Largest > 1e-4 {
			t.Errorf("%s: error %q, proof %q, largest deviation %g", x.System, x.Error, x.Proof, x.Largest)
		}
	}
}
