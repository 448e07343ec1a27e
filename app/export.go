package app

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/onnx"
	"github.com/trivium-ml/trivium/internal/nearest"
	"github.com/trivium-ml/trivium/nn"
	"github.com/trivium-ml/trivium/tensor"
)

// exportVerb writes a model for other programs.
type exportVerb struct {
	trainedFlags
	Format string `short:"f" placeholder:"NAME" help:"onnx or safetensors; else by the file's name."`
	To     string `short:"t" required:"" placeholder:"FILE" help:"Where to write; - is standard output."`
}

func (v *exportVerb) Run(ctx context.Context, s *session) error {
	format := v.Format
	if format == "" {
		format = strings.TrimPrefix(filepath.Ext(v.To), ".")
	}
	write := map[string]func(*trained, io.Writer) error{"onnx": (*trained).writeONNX, "safetensors": (*trained).writeSafetensors}[format]
	if format == "" {
		return misusedf("export: %s does not say the format: give --format onnx or safetensors", v.To)
	}
	if write == nil {
		return misusedf("export: no format is called %q; %s", format, nearest.Sentence(format, []string{"onnx", "safetensors"}))
	}
	t, err := v.load(ctx, s)
	if err != nil {
		return err
	}
	defer t.close()
	if err := writeTo(s.out, v.To, func(w io.Writer) error { return write(t, w) }); err != nil {
		return err
	}
	if v.To != "-" {
		fmt.Fprintf(s.err, "%s: wrote %s from %s\n", s.name, v.To, t.name)
	}
	return nil
}

// writeSafetensors writes the parameters by name.
func (t *trained) writeSafetensors(w io.Writer) error {
	p := t.saved.Params
	var tensors []checkpoint.Tensor
	for i := range p.Layout.Tensors() {
		spec := p.Layout.Spec(i)
		tensors = append(tensors, checkpoint.Tensor{Name: spec.Name, DType: "F32", Shape: spec.Shape, Float32: p.Tensor(i)})
	}
	return checkpoint.WriteSafetensors(w, tensors, map[string]string{"format": "trivium", "model": t.saved.Job.Model})
}

// writeONNX writes the way from what a file holds to scores and classes: the fitted transform, then the model.
func (t *trained) writeONNX(w io.Writer) error {
	model, ok := t.model.(nn.Graphed)
	if !ok {
		return misusedf("export: model %q draws no graph of its inference (it is no nn.Graphed): write it as safetensors", t.saved.Job.Model)
	}
	if err := t.predicts(); err != nil {
		return err
	}
	b := graph.NewBuilder()
	p, err := newPrefix(b, t.saved.Schema, t.transform)
	if err != nil {
		return misused(err)
	}
	scores, err := model.Scores(b, p.inputs)
	if err != nil {
		return misusedf("export: %w; its parameters alone leave as safetensors", err)
	}
	o := onnx.Options{Outputs: []graph.Value{scores}, Names: []string{"scores"}, Metadata: p.legend, Producer: thisVersion()}
	o.Metadata["trivium.model"] = t.saved.Job.Model
	switch outputs := t.predictor.Outputs(); outputs.Task {
	case trivium.MultiClass:
		o.Outputs, o.Names = append(o.Outputs, graph.ArgMax(scores, 1, false)), append(o.Names, "class")
	case trivium.Binary:
		above := graph.Less(b.Scalar(graph.F32, 0), graph.Reshape(scores, graph.Axis("batch")))
		o.Outputs, o.Names = append(o.Outputs, graph.Cast(above, graph.I64)), append(o.Names, "class")
	}
	if names := t.saved.Schema.Labels.Names; len(names) > 0 {
		o.Metadata["trivium.classes"] = fmt.Sprintf("%q", names)
	}
	g, err := b.Build()
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if o.Variables, err = t.variables(); err != nil {
		return err
	}
	return onnx.Write(w, g, o)
}

// variables are the parameters by the names that the graph knows them by.
func (t *trained) variables() (map[string]*tensor.Tensor, error) {
	p := t.saved.Params
	out := map[string]*tensor.Tensor{}
	for i := range p.Layout.Tensors() {
		spec := p.Layout.Spec(i)
		x, err := tensor.Of(p.Tensor(i), spec.Shape...)
		if err != nil {
			return nil, fmt.Errorf("export: tensor %q: %w", spec.Name, err)
		}
		out[spec.Name] = x
	}
	return out, nil
}
