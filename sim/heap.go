package sim

// entry is an event's place in the order of things.
type entry struct {
	at   int64  // ns since the World began
	seq  uint64 // in which it was scheduled: decides among events of one instant
	slot int32
}

func (a entry) before(b entry) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// heap is a 4-ary heap of entries: half as deep as a binary one, and its four children lie side by side.
type heap []entry

func (h *heap) push(e entry) {
	q := append(*h, e)
	i := len(q) - 1
	for i > 0 {
		p := (i - 1) / 4
		if !e.before(q[p]) {
			break
		}
		q[i] = q[p]
		i = p
	}
	q[i] = e
	*h = q
}

func (h *heap) pop() entry {
	q := *h
	top := q[0]
	n := len(q) - 1
	e := q[n]
	q = q[:n]
	*h = q
	if n == 0 {
		return top
	}
	i := 0
	for {
		c := 4*i + 1
		if c >= n {
			break
		}
		least := c
		for j := c + 1; j < min(c+4, n); j++ {
			if q[j].before(q[least]) {
				least = j
			}
		}
		if !q[least].before(e) {
			break
		}
		q[i] = q[least]
		i = least
	}
	q[i] = e
	return top
}
