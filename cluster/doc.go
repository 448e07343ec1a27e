// Package cluster knows who is here, in what role, and alive.
//
// A process joins a group with [Join], and walks its views: the [View] is an ordered list of members with a number, the epoch. A rank
// is an index into it. Each carrier fences its stream by the view, so that nothing of an older one is applied:
//
//	stream, err := port.Stream("cluster", transport.StreamOptions{})
//	member, err := cluster.Join(ctx, meta, stream, cluster.Member{Name: port.Name(), Addr: port.Addr()}, cluster.Policy{MinWorkers: 4})
//	for view, err := range member.Views() {
//		if err != nil {
//			return err
//		}
//		data.Fence(view.Epoch, view.Names())
//		... // train, until the next view
//	}
//
// [Meta] is the small consistent store behind it; packages cluster/meta and cluster/meta/etcd have it. The protocol itself is
// [Machine], which is pure and runs in the simulator too.
//
// # What holds
//
//   - One chain. View E+1 is made only by Meta.PutIf on the record of view E, so that two views of one epoch cannot exist. The store's
//     answer to a put counts for the record of that put alone: one may come when the next is under way.
//   - Who may propose. Members that hold more than half of view E, or half with its lowest rank; or fewer, once everyone else is proven
//     dead: its launcher or its host says so, or its lease ended and no proposer hears it. Never fewer than MinWorkers go on.
//   - Meta is needed only to change the view. While it is away, members go on in the view that they have, for as long as nobody is lost.
//     A lease that ends while its holder is heard is told, and not acted upon.
//   - Slow is not dead. Who was convicted and lives learns that it is out, and joins again as a new incarnation. Until then what it
//     sends carries an old epoch, and is dropped.
//
// # How a loss is found
//
// Each member sends a beat every 20 ms to its three ring successors in the view, its watchers. A loss has three sources.
//
// A closed connection makes a watcher ask at once, and the transport connect again. If the own host refuses, the process is gone: that
// is proof, and it floods. Another host's refusal may be a firewall's: it counts as silence, at once. A reset alone changes nothing.
//
// A launcher that sees its child exit says so: [Membership.Died].
//
// Silence is judged by the budget, by phi, and by others. The budget is 250 ms, or four times the 99.9th percentile of the gaps between
// signs of life in the last minute, up to 5 s. Phi (Hayashibara et al. 2004) must be 8: a chance of 10⁻⁸ that a peer which was as
// irregular as this one lives. At half the budget the watcher asks three others whether they hear the peer (SWIM, Das et al. 2002); who
// does vouches for it, and then it is not convicted. Any byte from a peer, on any stream, is a sign of its life. A watcher whose own
// timer is late puts its peers' last signs off by as much: what it did not hear, it may have slept through.
//
// Where two members do not hear one another and others hear both, the higher rank gives way after four budgets. A member that takes
// most of the others for silent, falsely, is itself deaf, and goes.
//
// # How a view changes
//
// While a change is due, everyone watches everyone, so that whoever is silent is found, also among those who should propose. The lowest
// rank that is left proposes: who stays, in the order of ranks, then the newcomers in the order in which they came. Everyone within
// reach votes, leavers too, after its carrier has stopped (Policy.Prepare). A vote promises nothing; it proves that its sender is within
// reach of the proposer, and says whom it hears. Then the proposer puts the record, and announces it. That two may propose at once does
// no harm: the store takes one.
//
// A newcomer puts its presence under a lease, and knocks at the doors of the members and of the four oldest newcomers, which knock at all
// others' (at more, where of these some are silent). Where there is no view, or nobody of it is left, the newcomer whose presence is oldest
// founds the next one; its ranks follow the names of its members. It waits two heartbeats for others that come together with it, unless
// there is no room for more. A process that was lost is let in again after a back-off, of 1, 2, 4, ... 60 s if it is lost again and again.
//
// # Messages
//
//	beat          I live, in this epoch; it may ask for an answer
//	probe, vouch  do you hear this rank? I do
//	accusation    I take this rank for lost, and why
//	wish, bye     I want to leave; I am gone
//	proposal      will you be in this view?
//	vote          I am within your reach, and hear these ranks
//	announcement  this is the view in force
//	knock         I want to come in
//	refusal       you may not, and why
//
// # Keys in Meta
//
//	group/NAME/view                              the record of the view in force
//	group/NAME/present/ROLE/ID/INCARNATION       a process is there, under its lease
package cluster
