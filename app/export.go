package app

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/internal/nearest"
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

func (t *trained) writeONNX(io.Writer) error { return fmt.Errorf("onnx: not yet") }
