package graph

import "slices"

// opTable is every operation, by group. Adding one means adding a row here, a gradient rule, a kernel and a numeric check; tests compare
// the lists.
var opTable = slices.Concat(elementOps, linearOps, reduceOps, shapeOps, indexOps, networkOps, controlOps, stateOps)
