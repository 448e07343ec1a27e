// Command lda is trivium with topics by collapsed Gibbs sampling, and documents whose topics are known.
//
//	lda train lda:10 --data bars --train 0: --order index --topology server --workers 4 --processes --consistency ssp:3 --batch 25 --epochs 200
package main

import (
	"cmp"
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/lda"
	"github.com/trivium-ml/trivium/nn"
)

func main() {
	models := nn.Standard()
	models["lda"] = lda.New
	app.Main(app.Options{Models: models, Sources: data.Sources{"bars": bars}})
}

func bars(_ context.Context, d trivium.Data) (*data.Splits, error) {
	if err := data.RefuseSettings(d, "rows"); err != nil {
		return nil, err
	}
	return &data.Splits{Train: lda.Bars(int(cmp.Or(d.Rows, 1000)), 100, 1), Notes: []string{"data is generated: documents of 100 words, of topics that are bars of a 5×5 square"}}, nil
}
