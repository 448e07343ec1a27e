// Package ps is a parameter server: distributed tables of parameter rows, which workers read with Get, add to with Inc, and share at the
// end of each round, which Clock marks. A table bounds how stale a read may be.
//
// A [Spec] describes a table, a [Placement] who holds what. A process opens a [Client], its threads each a [Worker] of it, with a [Table]
// for each table that they use:
//
//	c, err := ps.Open(ctx, stream, placement, []ps.Spec{{Name: "weights", Rows: 1, Cols: 784, Mode: ps.SSP, Staleness: 3}}, ps.Options{})
//	w, err := c.Worker(ctx)
//	weights, err := ps.TableOf[float32](w, "weights")
//	for _, batch := range batches {
//		_, err = weights.Get(ctx, 0, local)         // waits, if others are too far behind
//		err = weights.DenseInc(0, 0, gradient(batch, local))
//		_, err = w.Clock(ctx, weights.Rows(0))      // sends the round, and asks for what the next one reads
//	}
//	err = w.Finish(ctx)
//
// Servers run [Serve], and one process of the job runs the [Directory], which [Direct] begins: it lets clients in, defines tables, and
// cuts snapshots. A process that is several of these shares its stream through a [Host].
//
// # What a read holds
//
// A worker's clock c is the number of rounds that it has finished; what it adds in round c has the stamp c. M is the number of rounds
// that every client has completed at a server. A read has value clock v if every update with a smaller stamp is in it.
//
//	mode     Get at clock c waits for  a round is applied                   the value holds
//	BSP      M ≥ c                     when all have it, in client order    exactly the stamps below c, the same bits for everyone
//	SSP(s)   M ≥ c - s                 as it comes                          at least the stamps below c - s (Ho et al. 2013)
//	ESSP(s)  M ≥ c - s                 as it comes; servers send changes    the same, usually more (Dai et al. 2015)
//	ASP      nothing                   as it comes                          what has come
//
// Without a server optimizer a read also holds all that its own worker has added. Value clocks of a row never fall. Clock waits so that
// nobody is more than s + 1 rounds ahead of the slowest, s being the largest of all tables (with an ASP table nobody waits so), and while
// too many bytes are under way, or kept by servers for a BSP table until the others' rounds are there. A round is applied whole, once, in
// the order of its client, through lost and doubled messages and reconnects. [Worker.Waited] tells whom a worker has waited for, and how long.
//
// # Who is gone
//
// Nobody is judged here: a link that is lost may come back. Whoever waits for a process that is gone does so until its context ends, a read
// or the end of a round for at most Options.RoundTimeout after the last progress, and gets an error that names what it waited for and who
// held it back. Who knows better, such as package cluster or the parent of the processes, ends their contexts, or calls [Directory.Lost]
// where the others are to go on without a client.
//
// A server that is lost is lost with what it held: there are no replicas. Should a process of its name come back without it, or with what a
// snapshot had, servers and directory find that out, and every client's calls return a [RolledBackError], which says how many rounds that were
// acknowledged are gone: nobody goes on as though they were there.
//
// Frames that nobody can read cost the others nothing: they are counted, and the link, which is the port's, stays. Of a peer that has sent 256 of
// them none is read any more until its link comes back: it is told, and so is who waits for it.
//
// # How
//
// The three protocols are pure machines: [ClientState], [ServerState] (one lane of a server, one core) and [DirectoryState]. The loops of
// Open, Serve and Direct (loop.go, part.go, outbox.go) drive them over a network, a simulator drives the same. The directory decides who
// takes part, and which tables there are (directory.go, admit.go). Who has lost what it had said is found by comparing it (rollback.go).
//
// A client keeps what its workers add in buffers (inc.go, buffer.go), and sends a round to every lane as one batch in pieces (pack.go),
// numbered by the clock; an empty one too, since it carries the clock (round.go). A lane takes pieces in order, holds the rest back, and
// acknowledges a round once it has it whole; the client sends again what is not acknowledged, the same bytes (server.go, advance.go). Reads
// go to the cache (cache.go), then to the lanes that have the row's segments; a lane parks a read that comes too early (get.go,
// answer.go, land.go). A lane's questions follow its last piece, so that it answers while pieces for other lanes of its server are still on
// their way. An answer says how many of the asker's own rounds are in it: later ones are laid over. A large row of one lane is read from
// the connection straight to its place, beside what readers have meanwhile (apart.go). Short rows that a worker reads once a round, of several
// tables, it pulls past the cache in one question, and their cells come without their keys (past.go).
//
// Tables are cut into shards when they are made (placement.go). A shard's rows lie in one run of memory or are found by key (row.go,
// keyindex.go); apply.go adds a round to them, or step.go steps an optimizer whose state lies beside the cells: of short rows, many at a time
// (gather.go). A process may look at what optimizers keep in its own lanes (slots.go).
//
// Updates are sent when their round ends, and not before, though pieces of a large round could leave while it is being computed. They would
// leave in vain: a shard applies a round whole; a row that is added to again after a piece of it left would travel twice, or be closed to
// Inc until Clock; and who adds, adds when its gradient is finished: what the wire could overlap with is the computing of later layers'
// gradients, which needs tables by layer, not a number of bytes. A round of many megabytes overlaps with itself: its pieces of up to 1 MiB
// are added by the server while later ones travel.
//
// What is not here yet: replicas of shards and their live moves, and a successor of a directory. A server that is lost takes its shards
// with it, and a job goes on from its last snapshot. Where the directory is lost, training goes on, and nothing is decided any more. A lane
// writes each shard as an object, and then an index of them (snapshot.go, object.go); the directory writes the manifest, which names the
// indexes, last (manifest.go). What is told of a snapshot, and of one that a job goes on from, is the name and checksum of one file,
// however many shards there are: lanes read the rest from the store (load.go).
//
// Next in the life of a gradient: wire and transport, the bytes.
package ps
