package collective

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire"
)

// A Blame says who made an operation fail. It is the same at every rank that survived.
type Blame struct {
	Rank     int // who
	Name     transport.Name
	Step     uint64
	Tag      uint32
	Op       string // operation and label of the first operation that was hit; empty: none was under way
	Phase    string // of it, at the rank that saw the cause
	Cause    Cause
	Evidence string // what that rank saw
	Witness  int    // that rank

	err error // at the rank whose context ended: its error
}

// A Mismatch says that two ranks asked for different things at one tag. It is the same at every rank; the group is usable after it.
type Mismatch struct {
	Step         uint64
	Tag          uint32
	Field        string // operation, dtype, reduction, root, codec, scale, shape, count, splits, plan, ends, messages, operations of the step
	RankA, RankB int
	A, B         string
}

// stepOps is the Field where ranks have begun other operations, and messages where one has sent what the other does not receive.
const (
	stepOps  = "operations of the step"
	messages = "messages"
)

// A Cause is why an operation failed.
type Cause uint8

// The causes.
const (
	Lost      Cause = iota + 1 // the link to the rank broke, its process is gone, or it has left the group
	Canceled                   // its context ended
	Refused                    // its arguments were refused
	NotFinite                  // its contribution holds a NaN or an infinity, and Options.NotFinite is Refuse or Skip
	Deadline                   // it did not do its part before Options.Deadline, or committed without the operation
	Disagree                   // a Mismatch
)

var causeNames = [...]string{"", "lost", "canceled", "refused", "not finite", "deadline", "mismatch"}

func (c Cause) String() string {
	if int(c) >= len(causeNames) {
		return fmt.Sprintf("cause(%d)", uint8(c))
	}
	return causeNames[c]
}

func (b *Blame) Error() string {
	op := "between operations"
	if b.Op != "" {
		op = fmt.Sprintf("%s (tag %d)", b.Op, b.Tag)
		if b.Phase != "" {
			op += ", " + b.Phase
		}
	}
	return fmt.Sprintf("collective: step %d, %s: rank %d (%v) is to blame, %v: %s (seen by rank %d)", b.Step, op, b.Rank, b.Name, b.Cause, b.Evidence, b.Witness)
}

// Unwrap returns the context's error at the rank whose context ended, else nil.
func (b *Blame) Unwrap() error { return b.err }

// Skip says that the step is to be skipped everywhere: a contribution was not finite, and Options.NotFinite is Skip.
func (b *Blame) Skip() bool { return b.Cause == NotFinite }

func (m *Mismatch) Error() string {
	return fmt.Sprintf("collective: step %d, tag %d: the ranks disagree on the %s: rank %d has %s, rank %d has %s", m.Step, m.Tag, m.Field, m.RankA, text(m.A), m.RankB, text(m.B))
}

func text(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// ErrClosed: the group was closed.
var ErrClosed = errors.New("collective: the group is closed")

// An UnsentError says that the step counts, here and everywhere, but that the context of Commit ended before the stream was through with the
// step's memory, which stays the group's until a later Commit or Close has returned.
type UnsentError struct {
	Step uint64
	To   transport.Name // what it still reads goes there
	err  error
}

func (e *UnsentError) Error() string {
	return fmt.Sprintf("collective: step %d counts, but frames to %v are still on their way: %v", e.Step, e.To, e.err)
}

// Unwrap returns the context's error.
func (e *UnsentError) Unwrap() error { return e.err }

// A fault is a Blame or a Mismatch as it travels.
type fault struct {
	cause        Cause // 0: none
	rank         int   // culprit
	step         uint64
	tag          uint32
	op, phase    string
	evidence     string
	witness      int
	field        string
	rankA, rankB int
	a, b         string
	err          error // stays here
}

func (f *fault) toError(names []transport.Name) error {
	if f.cause == Disagree {
		return &Mismatch{Step: f.step, Tag: f.tag, Field: f.field, RankA: f.rankA, RankB: f.rankB, A: f.a, B: f.b}
	}
	return &Blame{Rank: f.rank, Name: names[f.rank], Step: f.step, Tag: f.tag, Op: f.op, Phase: f.phase, Cause: f.cause, Evidence: f.evidence, Witness: f.witness, err: f.err}
}

// before orders faults: all ranks that know the same ones choose the same.
func (f *fault) before(g *fault) bool {
	switch {
	case f.cause != g.cause:
		return f.cause < g.cause
	case f.rank != g.rank:
		return f.rank < g.rank
	case (f.op == "") != (g.op == ""):
		return f.op != ""
	case f.step != g.step:
		return f.step < g.step
	case f.tag != g.tag:
		return f.tag < g.tag
	}
	return f.witness < g.witness
}

func (f *fault) append(p []byte) []byte {
	p = append(p, byte(f.cause))
	for _, n := range []uint64{uint64(f.rank), f.step, uint64(f.tag), uint64(f.witness), uint64(f.rankA), uint64(f.rankB)} {
		p = wire.AppendUvarint(p, n)
	}
	for _, s := range f.texts() {
		p = wire.AppendString(p, *s)
	}
	return p
}

// A report has up to 16 texts, and a few numbers beside them.
const (
	reportTexts   = 16
	reportNumbers = 256
	maxFaultText  = (wire.MaxHead - reportNumbers) / reportTexts
)

// textRoom is the length of a text in reports that fit frames of so many bytes: a frame that is refused would pass for a lost link.
func textRoom(maxFrame int) int { return (min(maxFrame, wire.MaxHead) - reportNumbers) / reportTexts }

// cut shortens texts to what fits, between two letters.
func cut(most int, texts ...*string) {
	for _, s := range texts {
		n := min(len(*s), most)
		for 0 < n && n < len(*s) && !utf8.RuneStart((*s)[n]) {
			n--
		}
		*s = (*s)[:n]
	}
}

func (f *fault) texts() []*string {
	return []*string{&f.op, &f.phase, &f.evidence, &f.field, &f.a, &f.b}
}

func (f *fault) read(r *wire.Reader, size int) {
	f.cause = Cause(r.Uvarint("cause", uint64(Disagree)))
	last := uint64(size - 1)
	f.rank = int(r.Uvarint("rank", last))
	f.step = r.Uvarint("step", 1<<44-1)
	f.tag = uint32(r.Uvarint("tag", maxTag))
	f.witness = int(r.Uvarint("witness", last))
	f.rankA = int(r.Uvarint("rank", last))
	f.rankB = int(r.Uvarint("rank", last))
	for _, s := range f.texts() {
		*s = r.String("text", maxFaultText)
	}
}

// maxTag is the largest tag: the lower bits of a wire.Op.
const maxTag = 1<<20 - 1

// A report is what a rank says of an operation, or of itself, when something failed. Every rank sends one to every other, and all choose
// the same verdict from the same reports.
type report struct {
	whole  bool   // the group failed, not one operation
	counts bool   // the sender has committed the step before
	step   uint64 // the operation
	tag    uint32
	status status
	waits  int   // for whom, or -1
	lost   []int // ranks that the sender takes for lost
	fault  fault
	desc   *descriptor
}

type status uint8

const (
	notStarted status = iota
	running
	complete
)

// cut shortens the texts of m, and not those of the operation that it describes. Who makes a report keeps it so too: all conclude from the same words.
func (m *report) cut(most int) {
	cut(most, m.fault.texts()...)
	if m.desc != nil {
		d := *m.desc
		cut(most, d.texts()...)
		m.desc = &d
	}
}

func (m *report) append(p []byte) []byte {
	p = wire.AppendBools(p, m.whole, m.desc != nil, m.counts)
	p = append(p, byte(m.status))
	p = wire.AppendUvarint(p, m.step)
	p = wire.AppendUvarint(p, uint64(m.tag))
	p = wire.AppendUvarint(p, uint64(m.waits+1))
	p = wire.AppendUvarint(p, uint64(len(m.lost)))
	for _, r := range m.lost {
		p = wire.AppendUvarint(p, uint64(r))
	}
	p = m.fault.append(p)
	if m.desc != nil {
		p = m.desc.append(p, true)
	}
	return p
}

func readReport(p []byte, size int) (*report, error) {
	r := wire.NewReader("collective report", p)
	m, described := new(report), false
	r.Bools("flags", &m.whole, &described, &m.counts)
	m.status = status(r.Uvarint("status", uint64(complete)))
	m.step = r.Uvarint("step", 1<<44-1)
	m.tag = uint32(r.Uvarint("tag", maxTag))
	m.waits = int(r.Uvarint("waits", uint64(size))) - 1
	for range r.Uvarint("lost ranks", uint64(size)) {
		m.lost = append(m.lost, int(r.Uvarint("rank", uint64(size-1))))
	}
	m.fault.read(r, size)
	if described {
		m.desc = &descriptor{}
		m.desc.read(r)
	}
	return m, r.Done()
}

// An outcome is what its sender has concluded: that an operation is void, why a step that is over does not count, or why the group has failed.
type outcome struct {
	of    outcomeOf
	fault fault
}

type outcomeOf uint8

const (
	ofOperation outcomeOf = iota
	ofStep                // the one before that of the frame
	ofGroup               // the step before that of the frame counts, unless that is 0
)

func (o *outcome) append(p []byte) []byte { return o.fault.append(append(p, byte(o.of))) }

func readOutcome(p []byte, size int) (outcome, error) {
	var o outcome
	r := wire.NewReader("collective outcome", p)
	o.of = outcomeOf(r.Uvarint("of", uint64(ofGroup)))
	o.fault.read(r, size)
	if r.Done() == nil && o.fault.cause == 0 {
		return o, errors.New("collective outcome: it has no cause")
	}
	return o, r.Done()
}

// A vote says that its sender, and all whom it has heard, have completed every operation of the step; or what failed.
type vote struct {
	round int
	seen  opsSeen
	fault fault // none: yes
}

func (v *vote) append(p []byte) []byte {
	p = append(p, byte(v.round))
	p = wire.AppendUint32(p, v.seen.lo)
	p = wire.AppendUint32(p, v.seen.hi)
	p = wire.AppendUvarint(p, uint64(v.seen.loRank))
	p = wire.AppendUvarint(p, uint64(v.seen.hiRank))
	return v.fault.append(p)
}

func readVote(p []byte, size int) (vote, error) {
	var v vote
	r := wire.NewReader("collective vote", p)
	v.round = int(r.Uvarint("round", 31))
	v.seen = opsSeen{lo: r.Uint32("operations"), hi: r.Uint32("operations")}
	v.seen.loRank = int(r.Uvarint("rank", uint64(size-1)))
	v.seen.hiRank = int(r.Uvarint("rank", uint64(size-1)))
	v.fault.read(r, size)
	return v, r.Done()
}
