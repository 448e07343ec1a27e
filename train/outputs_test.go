package train_test

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/traintest"
)

// says is a model that says other things of its scores than it makes.
type says struct {
	trivium.Model
	trivium.Predictor
	outputs trivium.Outputs
}

func (m says) Outputs() trivium.Outputs { return m.outputs }

// TestEvaluatorRefusesOutputs: a model of a program's own that forgot the width of its scores, or has logits where one log-odds is read, is
// refused before anything is made of them.
func TestEvaluatorRefusesOutputs(t *testing.T) {
	splits, err := traintest.Sources()["toy"](t.Context(), trivium.Data{})
	if err != nil {
		t.Fatal(err)
	}
	env := traintest.Env(t, 1, false)
	m, err := env.Models.Build("toy", splits.Train.Schema(), env.CPU)
	if err != nil {
		t.Fatal(err)
	}
	for o, fits := range map[trivium.Outputs]bool{
		{Task: trivium.Regression}:            false,
		{Task: trivium.MultiClass, Width: -3}: false,
		{Task: trivium.Binary, Width: 2}:      false,
		{Task: trivium.Binary, Width: 1}:      true,
		{Task: trivium.MultiClass, Width: 3}:  true,
	} {
		_, err := train.NewEvaluator(says{m, m.(trivium.Predictor), o}, nil, nil, 0)
		if fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "scores a row") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
