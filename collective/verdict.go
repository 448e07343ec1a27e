package collective

// verdict is the same at all ranks that have the same reports.
func (in *incident) verdict() *fault {
	var first *fault
	var ref *report
	refRank := 0
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
		if field, a, b := ref.desc.differs(m.desc); field != "" {
			return &fault{cause: Disagree, step: in.step, tag: in.tag, op: m.fault.op, field: field, rankA: refRank, rankB: r, a: a, b: b, witness: refRank}
		}
	}
	if first == nil { // a report that came with no cause: a peer of another mind
		first = &fault{cause: Lost, rank: 0, evidence: "no rank says why"}
	}
	f := *first
	switch f.cause {
	case Disagree:
		for _, side := range []struct {
			rank int
			text *string
		}{{f.rankA, &f.a}, {f.rankB, &f.b}} {
			if m := in.reports[side.rank]; m != nil && m.desc != nil {
				*side.text = m.desc.splits
			}
		}
	case Deadline:
		f.rank = in.culprit(f.rank)
		switch m := in.reports[f.rank]; {
		case m == nil:
			f.evidence = "it says nothing"
		case m.status == notStarted:
			f.evidence = "it has not called the operation"
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
// begins at rank.
func (in *incident) culprit(rank int) int {
	for r, m := range in.reports {
		if m == nil {
			return r
		}
	}
	for r, m := range in.reports {
		if m.status == notStarted {
			return r
		}
	}
	for range in.reports {
		next := in.reports[rank].waits
		if next < 0 {
			break
		}
		rank = next
	}
	return rank
}
