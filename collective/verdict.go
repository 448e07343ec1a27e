package collective

import (
	"fmt"
	"slices"
)

// verdict is the same at all ranks that have the same reports.
func (in *incident) verdict() *fault {
	if f := in.difference(); f != nil {
		return f
	}
	first := in.first()
	if first == nil { // a report that came with no cause: a peer of another mind
		first = &fault{cause: Lost, rank: max(0, slices.Index(in.lost, true)), evidence: "the rank that saw it is lost too"}
	}
	f := *first
	switch f.cause {
	case Disagree:
		in.sides(&f)
	case Deadline:
		if in.whole && f.op == "" {
			break // it takes nothing, which is no operation's: see stuck
		}
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

// first is the first fault of those that were reported; nil: there is none.
func (in *incident) first() *fault {
	var first *fault
	for _, m := range in.reports {
		if m != nil && m.fault.cause != 0 && (first == nil || m.fault.before(first)) {
			first = &m.fault
		}
	}
	return first
}

// difference is what the first two ranks, of those that differ, have asked for; nil: none differ.
func (in *incident) difference() *fault {
	if in.whole {
		return nil
	}
	named := in.named()
	for a, x := range in.reports {
		if x == nil || x.desc == nil {
			continue
		}
		for b, y := range in.reports[a+1:] {
			if y == nil || y.desc == nil || x.desc.apart(y.desc) {
				continue
			}
			if field, inA, inB := x.desc.differs(y.desc, named); field != "" {
				return &fault{cause: Disagree, step: in.step, tag: in.tag, op: y.fault.op, field: field, rankA: a, rankB: a + 1 + b, a: inA, b: inB, witness: a}
			}
		}
	}
	return nil
}

// sides fills in what two ranks have that disagree.
func (in *incident) sides(f *fault) {
	sent := in.reports[f.rank]
	if sent != nil && sent.desc != nil && f.field == stepOps && sent.desc.kind == Send.String() && sent.desc.to == f.witness {
		f.field = messages
		f.a, f.b = fmt.Sprintf("one to rank %d", f.witness), fmt.Sprintf("none from rank %d", f.rank)
		if f.rankA != f.rank {
			f.a, f.b = f.b, f.a
		}
		return
	}
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
