package collective

// The plans of operations that give each rank its part of a sum, or everyone the parts of all.

// offsets are the spans of parts that lie one after the other.
func offsets(buf Buf, counts []int) []Span {
	parts := make([]Span, len(counts))
	at := 0
	for i, c := range counts {
		parts[i] = Span{buf, at, at + c}
		at += c
	}
	return parts
}

// reduceScatter sends every rank its part of all others, which it adds in the order of the ranks.
func (b *builder) reduceScatter(counts []int) {
	parts := offsets(Src, counts)
	for t := 1; t < b.size; t++ {
		to := (b.rank + t) % b.size
		b.send(to, parts[to])
	}
	operands := make([]Span, b.size)
	operands[b.rank] = parts[b.rank]
	for t := 1; t < b.size; t++ {
		from := mod(b.rank-t, b.size)
		operands[from] = b.scratch(counts[b.rank])
		b.recv(from, operands[from])
	}
	mine := Span{Dst, 0, counts[b.rank]}
	b.sum(mine, operands)
	b.finish(mine)
}

// sum adds operands, which are as long as out, segment by segment.
func (b *builder) sum(out Span, operands []Span) {
	if len(operands) == 1 {
		b.copy(out, operands[0])
		return
	}
	b.segments(out, func(s Span) {
		from := make([]Span, len(operands))
		for i, o := range operands {
			from[i] = s.in(o.Buf, o.From-out.From)
		}
		b.combine(s, from...)
	})
}

// allGather sends parts round a ring, or, small ones, to everyone at once: one step instead of P−1.
func (b *builder) allGather(counts []int, small bool) {
	parts := offsets(Dst, counts)
	own := Span{Src, 0, counts[b.rank]}
	b.copy(parts[b.rank], own)
	if !small {
		b.ringAllGather(everyone(b.size), b.rank, parts)
		return
	}
	b.directAllGather(own, parts)
}

// Between hosts the parts of a rank go to and from one rank of each other host, its relay there, which stands at the same place in its host's
// list, or, where that is shorter, at that modulo its length.

// relayed are the ranks whose relay on its host a rank is, in their order.
func relayed(hosts [][]int, rank int) (list []int) {
	host, me, _ := place(hosts, rank)
	for r := range rankCount(hosts) {
		if h, at, _ := place(hosts, r); h != host && at%len(hosts[host]) == me {
			list = append(list, r)
		}
	}
	return list
}

func rankCount(hosts [][]int) (n int) {
	for _, ranks := range hosts {
		n += len(ranks)
	}
	return n
}

// relays are a rank's, on each host but its own.
func relays(hosts [][]int, rank int) (list []int) {
	host, me, _ := place(hosts, rank)
	for h, ranks := range hosts {
		if h != host {
			list = append(list, ranks[me%len(ranks)])
		}
	}
	return list
}

// mates are the other ranks of a rank's host, the next one first.
func mates(hosts [][]int, rank int) (list []int) {
	host, me, _ := place(hosts, rank)
	for t := 1; t < len(hosts[host]); t++ {
		list = append(list, hosts[host][(me+t)%len(hosts[host])])
	}
	return list
}

// reduceScatterByHosts is reduceScatter where what a host's ranks have of another's part is summed there before it travels.
func (b *builder) reduceScatterByHosts(hosts [][]int, counts []int) {
	parts := offsets(Src, counts)
	near := mates(hosts, b.rank)
	for _, to := range near {
		for _, r := range append(relayed(hosts, to), to) {
			b.send(to, parts[r])
		}
	}
	mine := append(relayed(hosts, b.rank), b.rank)
	operands := make([][]Span, len(mine))
	for i, r := range mine {
		operands[i] = []Span{parts[r]}
	}
	for k := len(near) - 1; k >= 0; k-- { // who has this rank for the next one sends to it first
		for i, r := range mine {
			s := b.scratch(counts[r])
			b.recv(near[k], s)
			operands[i] = append(operands[i], s)
		}
	}
	for i, r := range mine[:len(mine)-1] {
		s := operands[i][0]
		if len(near) > 0 {
			s = b.scratch(counts[r])
			b.sum(s, operands[i])
		}
		b.send(r, s)
	}
	own := operands[len(mine)-1]
	for _, from := range relays(hosts, b.rank) {
		s := b.scratch(counts[b.rank])
		b.recv(from, s)
		own = append(own, s)
	}
	out := Span{Dst, 0, counts[b.rank]}
	b.sum(out, own)
	b.finish(out)
}

// allGatherByHosts sends a part to its relays, which hand it to the other ranks of their hosts.
func (b *builder) allGatherByHosts(hosts [][]int, counts []int) {
	parts := offsets(Dst, counts)
	own := Span{Src, 0, counts[b.rank]}
	b.copy(parts[b.rank], own)
	near := mates(hosts, b.rank)
	for _, to := range relays(hosts, b.rank) {
		b.send(to, own)
	}
	for _, to := range near {
		b.send(to, own)
	}
	for _, r := range relayed(hosts, b.rank) {
		b.recv(r, parts[r])
		for _, to := range near {
			b.send(to, parts[r])
		}
	}
	for k := len(near) - 1; k >= 0; k-- {
		from := near[k]
		for _, r := range append([]int{from}, relayed(hosts, from)...) {
			b.recv(from, parts[r])
		}
	}
}
