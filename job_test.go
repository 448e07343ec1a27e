package trivium_test

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
)

func exampleJob() *trivium.Job {
	return &trivium.Job{
		Version: trivium.JobVersion, Model: "mlp:128,32", Data: trivium.Data{Source: "digits", Train: "0:8000"}, Batch: 100, Epochs: 5, Seed: 42,
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1, Params: map[string]float64{"momentum": 0.9, "a": 1}},
	}
}

func TestJobEncodingIsCanonical(t *testing.T) {
	j := exampleJob()
	p, err := j.Encode()
	if err != nil {
		t.Fatal(err)
	}
	// The bytes are fixed: a change here renames every run that was ever made.
	const want = `{"version":1,"model":"mlp:128,32","data":{"source":"digits","train":"0:8000"},"batch":100,"epochs":5,` +
		`"optimizer":{"name":"sgd","rate":0.1,"params":{"a":1,"momentum":0.9}},"seed":42}`
	if string(p) != want {
		t.Errorf("encoding\n%s\nwant\n%s", p, want)
	}
	back, err := trivium.DecodeJob(p)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, j) {
		t.Errorf("decoded %+v, want %+v", back, j)
	}
	if again, _ := back.Encode(); !bytes.Equal(again, p) {
		t.Errorf("encoding of the decoded job is\n%s", again)
	}
	h, _ := j.Hash()
	j.Optimizer.Rate = 0.2
	if other, _ := j.Hash(); len(h) != 32 || other == h {
		t.Errorf("hashes %q and, at another rate, %q: want 32 different hexadecimal digits", h, other)
	}
}

func TestDecodeJobIsStrict(t *testing.T) {
	for in, want := range map[string]string{
		`{"version":1,"modle":"softmax"}`:   `unknown field "modle"`,
		`{"version":2,"model":"softmax"}`:   "this program reads version 1, found 2",
		`{"version":1,"model":"softmax"} x`: "something follows the job",
		`{"version":1`:                      "unexpected EOF",
		``:                                  "EOF",
	} {
		if _, err := trivium.DecodeJob([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", in, err, want)
		}
	}
}

func TestJobValidateNamesEveryMistake(t *testing.T) {
	if err := exampleJob().Validate(); err != nil {
		t.Fatal(err)
	}
	full := exampleJob()
	full.Batch = trivium.FullBatch
	if err := full.Validate(); err != nil {
		t.Errorf("the full batch: %v", err)
	}
	j := &trivium.Job{
		Version: 3, Batch: 0, Last: "maybe", Epochs: -1, Steps: -1, EvalEvery: -1, Shards: -1,
		Stop:      trivium.EarlyStop{Patience: -1, MinDelta: math.NaN()},
		Data:      trivium.Data{Format: "xls", Missing: "guess", Scale: "big", Order: "up", Rows: -1, Hash: -2},
		Optimizer: trivium.OptimizerSpec{Rate: -1, L1: math.Inf(1), Params: map[string]float64{"momentum": math.NaN()}},
	}
	err := j.Validate()
	for _, want := range []string{
		"version", "model: none is named", "batch: want at least 1 row, or full; found 0", "last", "epochs", "steps", "eval_every", "shards",
		"stop.patience", "stop.metric: none is named", "stop.min_delta", "data.format", "data.missing", "data.scale", "data.order", "data.rows",
		"data.hash", "optimizer.rate", "optimizer.l1", "optimizer.params.momentum",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

// The virtual shards of an update cover its rows once, in order, for every number of rows.
func TestShardsCoverAnUpdate(t *testing.T) {
	for _, shards := range []int{0, 1, 3, 16} {
		j := trivium.Job{Shards: shards}
		for rows := range 70 {
			at := 0
			for v := range j.VirtualShards() {
				from, to := j.Shard(v, rows)
				if from != at || to < from {
					t.Fatalf("%d shards, %d rows: shard %d is [%d, %d), want it to begin at %d", shards, rows, v, from, to, at)
				}
				at = to
			}
			if at != rows {
				t.Fatalf("%d shards cover %d of %d rows", shards, at, rows)
			}
		}
	}
}

func TestDivergedErrorNamesStepAndTensor(t *testing.T) {
	e := &trivium.DivergedError{Step: 17, Loss: math.Inf(1), Tensor: "w1"}
	for _, want := range []string{"update 17", "+Inf", `"w1"`} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q lacks %q", e, want)
		}
	}
	if e.Tensor = ""; strings.Contains(e.Error(), "tensor") {
		t.Errorf("%q names a tensor", e)
	}
}

func FuzzDecodeJob(f *testing.F) {
	p, _ := exampleJob().Encode()
	f.Add(p)
	f.Add([]byte(`{"version":1,"optimizer":{"params":{"a":1e308}}}`))
	f.Add([]byte(`{"version":1,"optimizer":{"params":{}},"metrics":[],"data":{"drop":[],"categorical":[]}}`))
	f.Fuzz(func(t *testing.T, p []byte) {
		j, err := trivium.DecodeJob(p)
		if err != nil {
			return
		}
		q, err := j.Encode()
		if err != nil {
			t.Fatalf("a decoded job has no encoding: %v", err)
		}
		back, err := trivium.DecodeJob(q)
		if err != nil || !reflect.DeepEqual(back, j) {
			t.Fatalf("%s decodes to %+v, %v; want %+v", q, back, err, j)
		}
	})
}

func ExampleJob_Shard() {
	j := trivium.Job{Shards: 4}
	for v := range 4 {
		fmt.Println(j.Shard(v, 10))
	}
	// Output:
	// 0 2
	// 2 5
	// 5 7
	// 7 10
}
