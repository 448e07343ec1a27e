package app

import (
	"slices"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/data"
	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/graph/exec"
	"github.com/trivium-ml/trivium/tensor"
)

// TestPrefixOfCategories: a value that is none of the categories, and a missing one of a hashed column, add nothing, as in a file.
func TestPrefixOfCategories(t *testing.T) {
	b := graph.NewBuilder()
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{5}}}}
	p, err := newPrefix(b, schema, &data.Transform{Kind: data.KindTable, Schema: schema, Columns: []data.Column{
		{Name: "city", Kind: data.OneHot, Categories: []string{"Bonn", "Köln"}},
		{Name: "street", Kind: data.Hashed, From: 2, Buckets: 3},
		{Name: "shop", Kind: data.Hashed, From: 2, Buckets: 3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var feeds []graph.Value
	var rows []*tensor.Tensor
	for name, list := range map[string][]int64{"city": {1, 2, 0}, "street": {2, 3, 1}, "shop": {2, 0, 3}} {
		in, _ := g.Input(name)
		x, err := tensor.Of(list, 3)
		if err != nil {
			t.Fatal(err)
		}
		feeds, rows = append(feeds, in), append(rows, x)
	}
	program, err := exec.Compile(g, feeds, []graph.Value{p.inputs["x"]}, nil, exec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.Run(t.Context(), nil, rows...)
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{0, 1, 0, 0, 2, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0}
	if got := tensor.Flat[float32](out[0]); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestPrefixOfColumnsNamedAsOperations: a column may be called as the nodes of the transform are.
func TestPrefixOfColumnsNamedAsOperations(t *testing.T) {
	b := graph.NewBuilder()
	schema := trivium.Schema{Inputs: []trivium.InputSpec{{Name: "x", Shape: []int{4}}}}
	_, err := newPrefix(b, schema, &data.Transform{Kind: data.KindTable, Schema: schema, Missing: "mean", Columns: []data.Column{
		{Name: "age", Kind: data.Number, Mean: 2, Scale: 3},
		{Name: "Sub", Kind: data.Number, From: 1, Mean: 2, Scale: 3},
		{Name: "Mul", Kind: data.OneHot, From: 2, Categories: []string{"Bonn", "Köln"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"age", "Sub", "Mul"} {
		if _, ok := g.Input(name); !ok {
			t.Errorf("no input is called %q", name)
		}
	}
}
