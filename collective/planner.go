package collective

import "fmt"

// A planKey is all that a plan depends on, besides rank, size and hosts.
type planKey struct {
	kind      Kind
	algorithm Algorithm
	n         int
	element   int // bytes
	segment   int // bytes
	root      int
	shards    int
	unit      int
	plain     int
	in        [2]bool // source and destination lie in the arena
	counts    string
	recv      string
}

// planOf returns the plan of j by algorithm a, with frames of at most segment elements. It panics for no job that was checked.
func planOf(j *job, a Algorithm, rank, size, segment, frame int, hosts [][]int, in [2]bool) *Plan {
	b := newBuilder(rank, size, segment)
	b.plan.Algorithm = a
	from, out := Span{Src, 0, j.n}, Span{Dst, 0, j.n}
	ranks := everyone(size)
	switch j.Kind {
	case AllReduce:
		switch {
		case j.n == 0: // that it is complete still says that all ranks have begun it
			b.barrier()
		case a == Shared && whole(j.n*j.dtype.Size(), size):
			b.sharedWhole(j.n, max(1, segment), in[0])
		case a == Shared:
			b.shared(j.n, max(1, segment), in[0], in[1])
		case j.Codec != nil:
			unit := j.unit(frame)
			if a == Hierarchy {
				b.hierarchy(hosts, from, out, func(across []int, host int, s Span) { b.coded(across, host, s, s, unit, j.Plain, false) })
			} else {
				b.coded(ranks, rank, from, out, unit, j.Plain, a == GatherCast)
			}
		case j.Shards > 0:
			b.exact(j.Shards, j.n, a == Doubling)
		default:
			b.allReduce(a, ranks, from, out, hosts)
		}
	case ReduceTo:
		list := rotate(size, j.Root)
		me := mod(rank-j.Root, size)
		work := out
		if rank != j.Root {
			work = b.scratch(j.n)
		}
		b.treeReduce(list, me, from, work)
		if rank == j.Root {
			b.finish(out)
		}
	case ReduceScatter:
		if a == Hierarchy {
			b.reduceScatterByHosts(hosts, j.Counts)
		} else {
			b.reduceScatter(j.Counts)
		}
	case AllGather:
		b.phase = PhaseMove
		if a == Hierarchy {
			b.allGatherByHosts(hosts, j.Counts)
		} else {
			b.allGather(j.Counts, a == Doubling)
		}
	case Gather:
		b.phase = PhaseMove
		b.toRoot(j.Root, j.Counts)
	case Scatter:
		b.phase = PhaseMove
		b.fromRoot(j.Root, j.Counts)
	case Broadcast:
		b.phase = PhaseMove
		if rank == j.Root {
			b.copy(out, from)
		}
		b.treeCast(rotate(size, j.Root), mod(rank-j.Root, size), out)
	case AllToAll:
		b.phase = PhaseMove
		b.allToAll(j.Counts, j.Recv)
	case Barrier:
		b.phase = PhaseMove
		b.barrier()
	case Send:
		b.phase = PhaseMove
		b.p2p(b.send, b.sendOne, j.Root, from)
	case Receive:
		b.phase = PhaseMove
		if j.Root != AnyRank { // else it has none before a rank has sent
			b.p2p(b.recv, b.recvOne, j.Root, out)
		}
	}
	return &b.plan
}

func (b *builder) p2p(many, one func(int, Span), peer int, s Span) {
	if s.Len() == 0 {
		one(peer, s)
		return
	}
	many(peer, s)
}

func (b *builder) allReduce(a Algorithm, ranks []int, in, out Span, hosts [][]int) {
	switch a {
	case GatherCast:
		b.gatherCast(in.Len(), in, out)
	case Halving:
		b.halving(ranks, b.rank, in, out, false)
	case Doubling:
		b.doubling(ranks, b.rank, in, out, false)
	case Tree:
		b.treeReduce(ranks, b.rank, in, out)
		if b.rank == 0 {
			b.finish(out)
		}
		b.phase = PhaseGather
		b.treeCast(ranks, b.rank, out)
	case Pairwise:
		b.pairwiseReduceScatter(ranks, b.rank, in, out)
		mine := out.share(b.rank, b.size)
		b.finish(mine)
		b.phase = PhaseGather
		b.directAllGather(mine, shares(out, b.size))
	case Hierarchy:
		b.hierarchy(hosts, in, out, func(across []int, host int, s Span) {
			b.ringReduceScatter(across, host, s, s)
			b.finish(s.share(host, len(across)))
			b.phase = PhaseGather
			b.ringAllGather(across, host, shares(s, len(across)))
		})
	default:
		b.ringReduceScatter(ranks, b.rank, in, out)
		b.finish(out.share(b.rank, b.size))
		b.phase = PhaseGather
		b.ringAllGather(ranks, b.rank, shares(out, b.size))
	}
}

// key is what j's plan is kept by.
func (j *job) key(a Algorithm, segment, frame int, in [2]bool) planKey {
	k := planKey{kind: j.Kind, in: in, algorithm: a, n: j.n, element: j.dtype.Size(), segment: segment, root: j.Root, shards: j.Shards}
	if j.Codec != nil {
		k.unit, k.plain = j.unit(frame), j.Plain
	}
	switch j.Kind {
	case AllToAll, ReduceScatter, AllGather, Gather, Scatter:
		k.counts, k.recv = fmt.Sprint(j.Counts), fmt.Sprint(j.Recv)
	}
	return k
}
