package autodiff

import (
	"maps"
	"slices"

	"github.com/trivium-ml/trivium/graph"
	"github.com/trivium-ml/trivium/tensor"
)

// Checked is the nodes that CheckNumeric looks at.
func Checked(g *graph.Graph, y graph.Value) []*graph.Node { return checked(g, y) }

// RuleOf tells whether an operation has a rule, or why it has none.
func RuleOf(op string) (vjp bool, none string, ok bool) {
	r, ok := ruleOf(op)
	return r.vjp != nil, r.none, ok
}

// RuleNames lists the operations of the rule table.
func RuleNames() []string { return slices.Collect(maps.Keys(rules)) }

// CompareNumeric compares a gradient through a whole graph with central differences.
func CompareNumeric(g *graph.Graph, y, x graph.Value, grad *tensor.Tensor, o CheckOptions) error {
	return (&probe{g: g, o: o, feeds: o.Feeds, total: y}).compare(x, grad)
}
