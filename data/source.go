package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trivium-ml/trivium"
)

// A Source makes the data sets of a job: a generator, or a program's own reader. Rows that it returns as Train are cut further if the
// job asks for that, and, where it returns no others and the job says nothing, the last fifth of them is for testing. All splits are of one schema.
// Settings of d that it has no use for are its to refuse: see RefuseSettings.
type Source func(ctx context.Context, d trivium.Data) (*Splits, error)

// Sources are the sources that a job may name.
type Sources map[string]Source

// checked is a program's own source whose splits are looked at before anything walks them: their schemas, and the rows of those in memory.
func checked(source Source) Source {
	return func(ctx context.Context, d trivium.Data) (*Splits, error) {
		s, err := source(ctx, d)
		if err != nil || s == nil {
			return s, err
		}
		first := ""
		for _, p := range []struct {
			name string
			rows Dataset
		}{{"train", s.Train}, {"test", s.Test}, {"valid", s.Valid}} { // as Schema has them
			if p.rows == nil {
				continue
			}
			first = cmp.Or(first, p.name)
			err := unlike(p.rows.Schema(), s.Schema(), "the "+first+" rows have")
			if m, ok := p.rows.(*memory); ok {
				err = cmp.Or(m.validate(), err)
			}
			if err != nil {
				return nil, errors.Join(fault("", "the source %q: its %s rows: %v", d.Source, p.name, err), s.Close())
			}
		}
		return s, nil
	}
}

// unlike says how rows of one schema are no rows of another, which who wants. A schema may leave open what labels there are, and how wide.
func unlike(got, want trivium.Schema, who string) error {
	if g, w := inputList(got.Inputs), inputList(want.Inputs); g != w {
		return fmt.Errorf("the inputs are %s; %s %s", g, who, w)
	}
	g, w := got.Labels, want.Labels
	if g.Kind == trivium.NoLabel || w.Kind == trivium.NoLabel || g.Kind == w.Kind && (g.Width == w.Width || min(g.Width, w.Width) < 1) {
		return nil
	}
	return fmt.Errorf("the labels are %v of width %d; %s %v of width %d", g.Kind, g.Width, who, w.Kind, w.Width)
}

// inputList writes inputs for a message.
func inputList(inputs []trivium.InputSpec) string {
	list := make([]string, len(inputs))
	for i, in := range inputs {
		list[i] = fmt.Sprintf("%q, %v of shape %v", in.Name, in.Form, in.Shape)
	}
	return strings.Join(list, ", and ")
}
