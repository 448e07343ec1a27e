// Package sim runs protocols in a simulated world: seeded, with virtual time, with networks, disks and a metadata store that fail.
//
// A [World] holds nodes, each with one [protocol.Machine], and passes events between them in the order of (time, sequence), on one
// thread. The same seed and the same [Plan] of faults give the same run, event by event, on every machine: each random draw is a hash of
// (seed, purpose, link or node, frame number), never the next value of a shared stream, so that to leave one fault out changes no other
// draw.
//
//	w := sim.New(seed, sim.Options{})
//	for i := range 5 {
//		w.Add(protocol.Name{Role: "worker", ID: strconv.Itoa(i)}, sim.Host{}, func(d sim.Disk) protocol.Machine { return newWorker(d) })
//	}
//	w.Invariant("one leader", func(f sim.Fact) error { ... })
//	err := w.Run(sim.RandomPlan(seed, w, sim.Mix{}), 10*time.Second) // any fault: only safety is demanded
//	w.Heal(nil)
//	err = w.Converges(5*time.Second, func() bool { return committed > before }) // no fault: progress is demanded
//
// [Explore] does this for many seeds, and shrinks the plan of one that fails.
//
// The same plans find faults in real code, on three more layers. [World.Network] has the ports and goroutines of real programs talk over
// simulated connections, inside testing/synctest, with [Network.Meta] and [Network.Blob] before their stores. [NewProxy] stands between
// real sockets. [RunProcesses] kills and freezes real processes.
//
// # What a link does
//
// Links have one of two modes. The default keeps the contract of package transport: frames arrive in order and at most once, or the link
// is lost. A frame that is drawn as lost or corrupted breaks the link: frames under way are dropped both ways, both ends get a LinkLost,
// and after Options.Reconnect a LinkBack. (A corrupted frame is never delivered: real frames carry checksums.) Duplicates and reordering
// do not happen in this mode. What is sent between LinkLost and LinkBack is dropped; then another LinkLost comes before the LinkBack.
// A partition is a black hole, which tells nobody: if it swallowed a frame, both ends get LinkLost when it ends.
//
// With Link.Datagram, frames are lost, doubled and reordered as drawn, and nobody is told, not even when a node crashes: for protocols
// that have sequence numbers of their own.
//
// # What a node does
//
// A machine's clock starts at 0 when it boots. A crash closes the node's links: peers read what is under way, then get LinkLost with
// io.EOF, and once more with protocol.ErrRefused when they could not reconnect. Where a node's Name has an Incarnation, it rises with each
// restart, and the old name is refused from then on; a name with Incarnation 0 stays as it is, and its peers get a LinkBack.
package sim
