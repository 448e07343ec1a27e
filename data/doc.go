// Package data reads, generates, shards, shuffles and batches examples: files of IDX, CSV, libsvm, JSON lines, NPY and Parquet, or sets
// that are made of a formula.
//
// [Open] turns a description, [trivium.Data], into [Splits] of training, validation and test rows. Each is a [Dataset], which can be
// read in any order. The rows of a table go through a [Transform] that is fitted to the training rows and saved with the model.
// [Batches] walks one epoch of a data set, in index order or shuffled, whole or one part of several:
//
//	splits, err := data.Open(ctx, job.Data, data.Options{})
//	…
//	defer splits.Close()
//	for b, err := range data.Batches(ctx, splits.Train, data.BatchOptions{Batch: 100, Shuffle: true, Seed: job.Seed, Epoch: epoch}) {
//		…
//	}
//
// # Memory
//
// Rows that fit into [Options.Budget] (of trivium: half of the machine's memory, at most 4 GiB) are held once, as float32, images of bytes as
// bytes. Larger files are streamed: an index of the place of every 512th row is kept, blocks of rows are decoded as they are needed, and two
// windows of 16,384 rows are resident while an epoch is walked. What cannot be entered in the middle (gzip, Parquet) is unpacked once, in
// memory up to 16 MiB and then into a temporary file. The order of an epoch is a function of seed, epoch and number of rows
// alone, so both ways give the same batches. Rows of a generator that are too many for 4 GiB are generated as they are read.
//
// # Missing values
//
// In text, an empty field, NA, N/A, ?, null and None are missing. They are an error unless the job says what to do with them: the
// training rows' mean, zero (both before scaling), or dropping the row, whose label alone then makes no class. A missing category sets no
// column. NaN, among names too, is an error unless missing values are dealt with, then it is one; infinity is always an error, but where it is
// a name.
//
// # Mistakes
//
// What is wrong with the data is an [*Error] with file, line or offset, and field; [Describe] collects several.
//
// To read on: generated.go and the generators, batches.go and order.go (how an epoch is walked), open.go, then table.go and transform.go.
package data
