// Package rundir keeps what a run measured in a folder that can be read while it runs, after it ended, and after a crash.
//
// A [Writer] is an observe.Sink; [Open] returns a [Run] with everything that reached the disk, and names the bytes that it had to drop.
//
//	w, err := rundir.Create(dir, head)
//	hub.Attach("run directory", w)
//	... // train
//	err = w.Finish(rundir.Result{Reason: "finished", Metrics: metrics})
//
// The folder holds
//
//	run.json              what was asked for: configuration, seeds, versions, host; written first
//	events.jsonl          one event a line; locked (flock) as long as the run is under way
//	series/ROLE-RANK.bin  frames: cumulative counters, gauges, histograms
//	steps/ROLE-RANK.bin   steps, one by one, at most 256 MiB: then every second one goes
//	result.json           what came of it; written last, by rename: a run without it has not finished
//
// and, beside them, what others write: tb/ and checkpoints/. The binary files are append-only blocks: an 8-byte marker, the
// payload's length (4 bytes), the CRC-32C of length and payload (4 bytes), and the payload, whose numbers are varints of differences.
// After a block that does not hold, reading resumes at the next marker.
//
// JSON has no NaN and no infinities: such metrics are written as the strings "NaN", "+Inf" and "-Inf".
package rundir
