// Command kmeans is trivium with k-means, and points in four groups.
//
//	kmeans train kmeans:4 --data groups --train 0: --topology server --workers 3 --processes --consistency ssp:3 --batch 30 --epochs 10
package main

import (
	"cmp"
	"context"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/app"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/examples/pmls/kmeans"
	"github.com/trivium-ml/trivium/nn"
)

func main() {
	models := nn.Standard()
	models["kmeans"] = kmeans.New
	app.Main(app.Options{Models: models, Sources: data.Sources{"groups": groups}})
}

func groups(_ context.Context, d trivium.Data) (*data.Splits, error) {
	if err := data.RefuseSettings(d, "rows"); err != nil {
		return nil, err
	}
	return &data.Splits{Train: kmeans.Groups(int(cmp.Or(d.Rows, 1000)), 1), Notes: []string{"data is generated: points in four groups"}}, nil
}
