package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/metric"
)

type evalVerb struct {
	trainedFlags
	dataFlags
	splitFlags
	Metrics []string `placeholder:"NAME" help:"What to measure beside the loss; else what the job measured."`
	JSON    bool     `name:"json" help:"Print one JSON object."`
}

func (evalVerb) Help() string {
	return "Without --data, the validation and test rows of the run's own data are measured. With it, all rows of that source, after the transform that was fitted in training."
}

func (v *evalVerb) Run(ctx context.Context, s *session) error {
	t, err := v.load(ctx, s)
	if err != nil {
		return err
	}
	defer t.close()
	sets, err := t.sets(ctx, s, &v.dataFlags, &v.splitFlags)
	if err != nil {
		return err
	}
	names := v.Metrics
	if len(names) == 0 {
		names = t.saved.Job.Metrics
	}
	all := map[string]float64{}
	for _, set := range sets {
		values, err := t.measure(ctx, set.rows, names)
		if err != nil {
			return err
		}
		for name, x := range values {
			all[set.name+"."+name] = x
		}
	}
	if v.JSON {
		out := map[string]any{"event": "evaluation", "checkpoint": t.name}
		for name, x := range all {
			out[name] = number(x)
		}
		return json.NewEncoder(s.out).Encode(out)
	}
	for _, set := range sets {
		fmt.Fprintf(s.out, "%s: %s rows\n", set.name, thousands(set.rows.Rows()))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(s.out, "%s %s\n", name, figure(all[name]))
	}
	return nil
}

// sets returns the data that the flags name: without --data the validation and test rows of the run, else all rows of the source.
func (t *trained) sets(ctx context.Context, s *session, df *dataFlags, sf *splitFlags) ([]namedSet, error) {
	d := t.saved.Job.Data
	g := given{}
	if df.Data != nil { // another source: what the job says of splits was about its own
		d.Train, d.Valid, d.Test, d.Format, d.Rows = "", "", "", "", 0
	}
	df.apply(&d, g)
	sf.apply(&d, g)
	splits, err := s.open(ctx, d, t.transform)
	if err != nil {
		return nil, err
	}
	sets := parts(splits)
	if df.Data == nil && len(sets) > 1 {
		sets = sets[1:] // not what it was trained on
	}
	if len(sets) == 1 && df.Data != nil {
		sets[0].name = "data"
	}
	return sets, nil
}

// measure returns the loss and the named metrics over ds.
func (t *trained) measure(ctx context.Context, ds data.Dataset, names []string) (map[string]float64, error) {
	outputs := t.predictor.Outputs()
	if len(names) == 0 {
		names = metric.Default(outputs)
	}
	var metrics []trivium.Metric
	for _, name := range names {
		m, err := metric.New(name, outputs)
		if err != nil {
			return nil, misused(err)
		}
		metrics = append(metrics, m)
	}
	var lossSum, weightSum float64
	err := t.score(ctx, ds, false, func(b *trivium.Batch, scores []float32) error {
		loss, weight, err := t.predictor.Loss(*b, scores)
		if err != nil {
			return misused(err)
		}
		lossSum, weightSum = lossSum+loss, weightSum+weight
		for _, m := range metrics {
			if err := m.Add(outputs, *b, scores); err != nil {
				return misused(err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	values := map[string]float64{"loss": lossSum / weightSum}
	for _, m := range metrics {
		values[m.Name()] = m.Value()
	}
	return values, nil
}
