package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/metric"
	"github.com/trivium-ml/trivium/train"
)

type evalVerb struct {
	trainedFlags
	dataFlags
	splitFlags
	Metrics []string `placeholder:"NAME" help:"What to measure beside the loss; else what the job measured."`
	JSON    bool     `name:"json" help:"Print one JSON object."`
}

func (evalVerb) Help() string {
	return "Without --data, the validation and test rows of the run's own data are measured. With it, all rows of that source, after the transform that was fitted in training: those of a file together, as data, and of a source with splits of its own those of each. Where --train, --valid or --test names rows, those alone."
}

func (v *evalVerb) Run(ctx context.Context, s *session) error {
	t, err := v.load(ctx, s)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.predicts(); err != nil {
		return err
	}
	sets, err := t.sets(ctx, s, &v.dataFlags, &v.splitFlags, false)
	if err != nil {
		return err
	}
	names := v.Metrics
	if len(names) == 0 {
		names = t.saved.Job.Metrics
	}
	shards := 0
	if t.saved.Job.Exact {
		shards = t.saved.Job.VirtualShards()
	}
	evaluator, err := train.NewEvaluator(t.model, s.metrics, names, shards)
	if err != nil {
		if len(v.Metrics) == 0 {
			err = fmt.Errorf("%s: %w; the program that trained it measures it, and --metrics names others", t.name, err)
		}
		return misused(err)
	}
	all, matrices := map[string]float64{}, map[string]*metric.Confusion{}
	for _, set := range sets {
		if set.rows.Schema().Labels.Kind == trivium.NoLabel {
			return misusedf("eval: %s has no labels to measure against; apply writes predictions without", v.source())
		}
		if set.rows.Rows() == 0 { // such as those that --missing drop has left none of
			return misusedf("eval: there are no rows in %s: nothing can be measured; --data names others", set.name)
		}
		evaluation, err := evaluator.Evaluate(ctx, t.saved.Params, set.rows)
		if err != nil {
			return asInput(err)
		}
		evaluation.Values(set.name, all)
		for _, m := range evaluation.Metrics {
			if c, ok := m.(*metric.Confusion); ok {
				matrices[set.name+"."+m.Name()] = c
			}
		}
	}
	if v.JSON {
		out := map[string]any{"event": "evaluation", "checkpoint": t.name}
		for name, x := range all {
			out[name] = finite.OrNil(x)
		}
		for name, c := range matrices {
			out[name+".matrix"], out["classes"] = cells(c), classNames(t.saved.Schema.Labels, c.Classes())
		}
		return json.NewEncoder(s.out).Encode(out)
	}
	for _, set := range sets {
		fmt.Fprintf(s.out, "%s: %s rows\n", set.name, thousands(set.rows.Rows()))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if matrices[name] == nil {
			fmt.Fprintf(s.out, "%s %s\n", name, figure(all[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(matrices)) {
		fmt.Fprintf(s.out, "%s, of accuracy %s: a row a label, a column a prediction\n%v%s\n", name, figure(all[name]), matrices[name],
			legend(t.saved.Schema.Labels))
	}
	return nil
}

// cells are a matrix as JSON has it: a list for each label, of the weight of the rows by prediction.
func cells(c *metric.Confusion) [][]float64 {
	out := make([][]float64, c.Classes())
	for label := range out {
		for prediction := range c.Classes() {
			out[label] = append(out[label], c.Count(label, prediction))
		}
	}
	return out
}

// classNames are the names of n classes.
func classNames(spec trivium.LabelSpec, n int) []string {
	names := make([]string, n)
	for c := range names {
		names[c] = className(spec, c)
	}
	return names
}

// saidAlready refuses a flag about how rows are read.
const saidAlready = "--%s: the transform that was fitted in training says that already"

// sets returns the data that the flags name: the splits that they do, else without --data the validation and test rows of the run, and with it all
// rows of that source.
func (t *trained) sets(ctx context.Context, s *session, df *dataFlags, sf *splitFlags, unlabelled bool) ([]namedSet, error) {
	d, g := t.saved.Job.Data, given{}
	if df.Data != nil { // another source: what the job says of splits was about its own, and how columns are read, the transform says
		own := d
		d = trivium.Data{}
		if t.transform == nil || t.transform.Kind == data.KindReady { // but not to a source that makes as many as it is asked for
			d.Columns, d.Classes = own.Columns, own.Classes
		}
	}
	named := sf.named()
	if len(named) > 0 { // what the job says of its others is no matter, but for the file that rows are of
		d.Valid, d.Test = "", ""
		if isRows(d.Train) {
			d.Train = ""
		}
	}
	df.apply(&d, g)
	sf.apply(&d, g)
	if t.transform != nil {
		for _, name := range []string{"classes", "label", "drop", "categorical", "hash", "missing", "scale", "weight", "class_weight"} {
			if g["data."+name] {
				return nil, misusedf(saidAlready, strings.ReplaceAll(name, "_", "-"))
			}
		}
	}
	splits, err := s.open(ctx, d, data.Options{Transform: t.transform, Unlabelled: unlabelled, Whole: df.Data != nil || len(named) > 0})
	if err != nil {
		return nil, err
	}
	t.splits = splits
	if g["data.columns"] && t.transform != nil && t.transform.Kind != data.KindReady { // a generator makes as many as it is asked for
		return nil, misusedf(saidAlready, "columns")
	}
	for _, n := range splits.Cautions {
		fmt.Fprintf(s.err, "%s: note: %s\n", s.name, n)
	}
	if len(g) == 0 && t.saved.Data != "" && splits.Checksum != t.saved.Data {
		fmt.Fprintf(s.err, "%s: %s has changed since training, from checksum %s to %s: what is taken for new may have been trained on\n",
			s.name, cmp.Or(d.Source, "the data"), t.saved.Data, splits.Checksum)
	}
	sets := parts(splits)
	switch {
	case len(named) > 0:
		sets = slices.DeleteFunc(sets, func(set namedSet) bool { return !slices.Contains(named, set.name) })
	case df.Data == nil && len(sets) > 1 && sets[0].name == "train":
		sets = sets[1:] // not what it was trained on
	}
	if len(sets) == 1 && df.Data != nil {
		sets[0].name = "data"
	}
	return sets, nil
}

// named lists the splits that are given.
func (f *splitFlags) named() (names []string) {
	for _, x := range []struct {
		name string
		flag *string
	}{{"train", f.Train}, {"valid", f.Valid}, {"test", f.Test}} {
		if x.flag != nil && *x.flag != "" {
			names = append(names, x.name)
		}
	}
	return names
}

// isRows reports whether what a split is told is a range of rows, such as 5:10, or a fraction: no file.
func isRows(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil || strings.Contains(text, ":") && strings.Trim(text, ":0123456789") == ""
}

// legend says what the classes' numbers mean, where their names are others.
func legend(spec trivium.LabelSpec) string {
	words, numbered := make([]string, len(spec.Names)), true
	for c, name := range spec.Names {
		words[c] = fmt.Sprintf("%d %s", c, plain(name))
		numbered = numbered && name == strconv.Itoa(c)
	}
	if numbered {
		return ""
	}
	return "classes: " + strings.Join(words, ", ") + "\n"
}

// source names the data in a message.
func (f *dataFlags) source() string {
	if f.Data == nil {
		return "the data"
	}
	return *f.Data
}
