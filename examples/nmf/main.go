// Command nmf is trivium with non-negative matrix factorisation, and a matrix of three blocks.
//
//	nmf train nmf:3 --data blocks --train 0: --order index --topology server --workers 3 --processes --consistency ssp:3 --batch 3 --epochs 500 --seed 2
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
	models["nmf"] = coding.NMF
	app.Main(app.Options{Models: models, Sources: data.Sources{"blocks": blocks}})
}

func blocks(_ context.Context, d trivium.Data) (*data.Splits, error) {
	if err := data.RefuseSettings(d, "rows"); err != nil {
		return nil, err
	}
	return &data.Splits{Train: coding.Blocks(int(cmp.Or(d.Rows, 9))), Notes: []string{"data is generated: rows of a matrix of three blocks"}}, nil
}
