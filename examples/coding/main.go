// Command coding is trivium with sparse coding, and rows that are each one atom of a dictionary.
//
//	coding train coding:20 --data atoms --train 0: --order index --topology server --workers 3 --processes --consistency ssp:3 --batch 10 --epochs 200
package main

import (
	"cmp"
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/coding"
	"github.com/trivium-ml/trivium/nn"
)

func main() {
	models := nn.Standard()
	models["coding"] = coding.Sparse
	app.Main(app.Options{Models: models, Sources: data.Sources{"atoms": atoms}})
}

func atoms(_ context.Context, d trivium.Data) (*data.Splits, error) {
	if err := data.RefuseSettings(d, "rows"); err != nil {
		return nil, err
	}
	return &data.Splits{Train: coding.Atoms(int(cmp.Or(d.Rows, 400)), 20, 1), Notes: []string{"data is generated: rows that are each one of 20 atoms"}}, nil
}
