package collective

// The plans of operations that only move elements.

// toRoot sends every rank's part to root, and fromRoot back.
func (b *builder) toRoot(root int, counts []int) {
	parts := offsets(Dst, counts)
	own := Span{Src, 0, counts[b.rank]}
	if b.rank != root {
		b.send(root, own)
		return
	}
	b.copy(parts[root], own)
	for t := 1; t < b.size; t++ {
		from := (root + t) % b.size
		b.recv(from, parts[from])
	}
}

func (b *builder) fromRoot(root int, counts []int) {
	parts := offsets(Src, counts)
	own := Span{Dst, 0, counts[b.rank]}
	if b.rank != root {
		b.recv(root, own)
		return
	}
	b.copy(own, parts[root])
	for t := 1; t < b.size; t++ {
		to := (root + t) % b.size
		b.send(to, parts[to])
	}
}

// allToAll sends at least one frame to everyone, also of nothing, so that splits that disagree are found.
func (b *builder) allToAll(send, recv []int) {
	out, in := offsets(Src, send), offsets(Dst, recv)
	b.copy(in[b.rank], out[b.rank])
	for t := 1; t < b.size; t++ {
		to := (b.rank + t) % b.size
		if out[to].Len() == 0 {
			b.sendOne(to, out[to])
		}
		b.send(to, out[to])
	}
	for t := 1; t < b.size; t++ {
		from := mod(b.rank-t, b.size)
		if in[from].Len() == 0 {
			b.recvOne(from, in[from])
		}
		b.recv(from, in[from])
	}
}

// barrier sends nothing, in ever wider circles (Hensgen, Finkel and Manber 1988).
func (b *builder) barrier() {
	got := b.scratch(b.size) // an element for each round, so that rounds wait for one another
	for i, d := 0, 1; d < b.size; i, d = i+1, d<<1 {
		before := Span{Scratch, got.From, got.From + i}
		b.add(Task{Do: DoSend, Peer: (b.rank + d) % b.size, Chunk: b.sent[(b.rank+d)%b.size], To: Span{Scratch, 0, 0}}, false, before)
		b.sent[(b.rank+d)%b.size]++
		from := mod(b.rank-d, b.size)
		b.add(Task{Do: DoRecv, Peer: from, Chunk: b.got[from], To: Span{Scratch, 0, 0}}, false)
		b.got[from]++
		id := int32(len(b.plan.Tasks) - 1)
		b.near(Span{Scratch, got.From + i, got.From + i + 1}, func(list []access, _, _ int) []access {
			return append(list, access{id, true, got.From + i, got.From + i + 1})
		})
	}
}

// rotate lists the ranks from root on: trees have their root at index 0.
func rotate(size, root int) []int {
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = (root + i) % size
	}
	return ranks
}
