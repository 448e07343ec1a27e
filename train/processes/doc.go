// Package processes trains a job in many processes: a [Driver] starts the workers, watches them and hears what they say; [Work] is the
// life of a worker, from its [Assignment] to its result.
//
// The driver lives in the command that a user typed, or in the coordinator of a cluster; the difference is its launcher, its network
// and its port. A worker opens its data (or gets its rows shipped), says so, joins the group of the job once all are ready, and runs
// the strategy of the job's topology. Checkpoints go to the driver's store and what is observed to its hub, over the transport: a
// worker needs no disk.
//
// Whatever ends a worker ends the job with an error that names it, until strategies can go on without it.
package processes
