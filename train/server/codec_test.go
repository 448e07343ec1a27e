package server_test

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/server"
)

// TestCodecThatFitsLittle: who asks for a codec by which nothing is sent to the servers, or little, is told so.
func TestCodecThatFitsLittle(t *testing.T) {
	wide, digits := trivium.Data{Source: "wide", Rows: 60, Train: "0:50", Test: "50:"}, job().Data
	for _, c := range []struct {
		codec, model string
		data         trivium.Data
		want         string // in what is said; empty: nothing is
	}{
		{"topk:0.01", "softmax", digits, ""},
		{"topk:10000000", "softmax", digits, "10000000 values are to be sent"},
		{"topk:0.01", "fm:8", wide, "rows of 8 cells are too short"},
		{"topk:0.01", "mlp:8,16", wide, "of the model's"}, // all but the first layer
		{"topk:0.01", "mlp:64", wide, ""},
	} {
		j := job()
		j.Model, j.Data, j.Batch, j.Epochs, j.Steps = c.model, c.data, 30, 0, 1
		var said []string
		w := &crew{workers: 3, servers: 1, o: server.Options{Mode: ps.BSP, Compress: c.codec}}
		w.env = train.Env{Watch: train.Watch{Notice: func(_ observe.Level, text string) { said = append(said, text) }}}
		if _, err := w.Train(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(said, "; "); (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s of %s: %q, want %q", c.codec, c.model, text, c.want)
		}
	}
}
