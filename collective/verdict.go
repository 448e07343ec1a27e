package collective

import "slices"

// verdict is the same at all ranks that have the same reports.
func (in *incident) verdict() *fault {
	var first *fault
	var ref *report
	refRank, named := 0, in.named()
	for r, m := range in.reports {
		if m == nil {
			continue
		}
		if f := m.fault; f.cause != 0 {
			if first == nil || f.before(first) {
				first = &f
			}
		}
		if in.whole || m.desc == nil {
			continue
		}
		if ref == nil {
			ref, refRank = m, r
			continue
		}
		if field, a, b := ref.desc.differs(m.desc, named); field != "" {
			return &fault{cause: Disagree, step: in.step, tag: in.tag, op: m.fault.op, field: field, rankA: refRank, rankB: r, a: a, b: b, witness: refRank}
		}
	}
	if first == nil { // a report that came with no cause: a peer of another mind
		first = &fault{cause: Lost, rank: max(0, slices.Index(in.lost, true)), evidence: "the rank that saw it is lost too"}
	}
	f := *first
	switch f.cause {
	case Disagree:
		for _, side := range []struct {
			rank int
			text *string
		}{{f.rankA, &f.a}, {f.rankB, &f.b}} {
			if m := in.reports[side.rank]; m != nil && m.desc != nil {
				if *side.text = m.desc.splits; f.field == stepOps {
					*side.text = m.fault.op
				}
			}
		}
	case Deadline:
		f.rank = in.culprit(&f)
		switch m := in.reports[f.rank]; {
		case m == nil:
			f.evidence = "it says nothing"
		case m.status == notStarted:
			f.evidence = "it has not called the operation"
		}
		for _, m := range in.reports { // who has not begun it cannot say what it is
			if f.op == "" && m != nil {
				f.op, f.phase = m.fault.op, m.fault.phase
			}
		}
	case Lost: // the operation that was hit first, at whoever saw one
		for _, m := range in.reports {
			if m != nil && m.fault.op != "" && (f.op == "" || m.step < f.step || m.step == f.step && m.tag < f.tag) {
				f.op, f.step, f.tag, f.phase = m.fault.op, m.step, m.tag, m.fault.phase
			}
		}
	}
	return &f
}

// culprit is the rank that everyone waits for: one that says nothing, or has not started; else the end of the chain of waits that
// begins where f is seen. Of a commit, that chain is of those who have voted, and ends at one who has not. Send and Receive concern two ranks.
func (in *incident) culprit(f *fault) int {
	other := func(int) bool { return false } // whom it does not concern
	for _, m := range in.reports {
		if !in.whole && m != nil && m.desc != nil && m.desc.kind == Send.String() {
			other = func(r int) bool { return r != m.desc.from && r != m.desc.to }
		}
	}
	for r, m := range in.reports {
		if m == nil && !other(r) {
			return r
		}
	}
	for r, m := range in.reports {
		if m != nil && m.status == notStarted && m.step <= f.step && !other(r) { // a later step: it has done its part
			return r
		}
	}
	rank := f.rank
	for range in.reports {
		m := in.reports[rank]
		if m == nil || m.waits < 0 || in.whole && m.status != complete {
			break
		}
		rank = m.waits
	}
	return rank
}

// named says whether the receiver of a transfer is among those that have spoken, and waits for one rank.
func (in *incident) named() bool {
	for r, m := range in.reports {
		if m != nil && m.desc != nil && m.desc.kind == Send.String() && m.desc.to == r {
			return m.desc.from != r
		}
	}
	return false
}
