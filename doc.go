// Package trivium is the vocabulary that every topology shares.
//
// A [Strategy] gives each worker a [Batch] and the current [Params]; the [Model] answers with a [Gradient]; the [Optimizer] turns the
// gradient into an update. Topologies differ only in where the parameters live, what travels, and who runs the optimizer. A [Job]
// says what to train; it names no topology, so that the same job can be run under all of them and compared.
//
// Three decisions hold everywhere:
//
//   - Sums, never means. A model returns the sum over rows of weight × loss and of weight × gradient, with the sum of weights beside
//     it. Sums of sums are sums, whoever adds them. There is one division, at the optimizer.
//   - One flat vector. Parameters, gradients and updates are named tensors over one []float32 described by one [Layout], so that a
//     row range, a ring's chunk and a tree's aggregate are all slices of the same thing.
//   - Exact mode. [Job.Shards] virtual shards cut every update's rows, and their sums are added along one fixed tree, so that the bits
//     do not depend on who computed which shard.
//
// The package imports the standard library only. To read on: strategy.go, then package train/local, the whole algorithm in a dozen
// lines; docs/reading.md has the rest of the way.
package trivium
