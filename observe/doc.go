// Package observe says where the time of a run goes: it counts and times a training thread, and hands the numbers to exporters, none
// of which is ever on the training path.
//
// A [Split] partitions a thread's steps into nine phases whose sum is the wall time, exactly. A [Set] holds the counters, gauges and
// histograms of one [Source]. A [Recorder] is the front of both for one training thread; a [Hub] collects recorders once a second
// into frames and feeds the sinks: the run directory, TensorBoard.
//
//	hub := observe.NewHub(observe.Options{})
//	r := hub.Recorder(observe.Source{Run: "4f2a", Strategy: "local", Role: observe.Worker})
//	go func() { done <- hub.Run(ctx) }()
//	for step := range steps {
//		r.Begin(step)
//		r.Enter(observe.Load)
//		batch := next()
//		r.Leave()
//		r.Enter(observe.Compute)
//		...
//		r.Leave()
//		r.End(observe.Facts{Samples: 100, Loss: loss})
//	}
//
// What must hold. At any instant of a step exactly one phase is open. Background work is counted beside the partition, never in it.
// Counters are cumulative within an incarnation and never go backwards; readers subtract. A sink that fails costs metrics, never a
// step. A nil *Recorder is off: its methods do nothing.
//
// The package imports the standard library only, so that every carrier and strategy may import it.
package observe
