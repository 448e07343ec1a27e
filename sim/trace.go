package sim

import (
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A Line is an event of a trace.
type Line struct {
	At   time.Duration
	Name protocol.Name // of the machine that it happened to; zero: the World itself
	Text string
}

func (l Line) String() string { return fmt.Sprintf("%-14v %-16v %s", l.At, l.Name, l.Text) }

// Trace walks what happened. It is empty unless Options.Trace was set.
func (w *World) Trace() iter.Seq[Line] { return slices.Values(w.lines) }

// Hash is that of all events so far, in their order: of their times, kinds, places and sizes. It is kept in any case, and the same for
// the same seed and plan on every machine.
func (w *World) Hash() uint64 { return w.hash }

func (w *World) line(node int32, text string) {
	l := Line{At: time.Duration(w.now), Text: text}
	if node >= 0 {
		l.Name = w.nodes[node].name
	}
	w.lines = append(w.lines, l)
}

// trace keeps what n is about to handle.
func (w *World) trace(n *node, ev protocol.Event) {
	var text string
	switch ev := ev.(type) {
	case protocol.Message:
		text = fmt.Sprintf("message from %v: %s", ev.From, show(ev.Body))
	case protocol.Timer:
		text = fmt.Sprintf("timer %d", ev.ID)
	case protocol.Call:
		text = fmt.Sprintf("call %d: %s", ev.ID, show(ev.Arg))
	case protocol.LinkLost:
		text = fmt.Sprintf("link to %v lost: %v", ev.Peer, ev.Err)
	case protocol.LinkBack:
		text = fmt.Sprintf("link to %v back", ev.Peer)
	case protocol.Stored:
		text = fmt.Sprintf("stored %d: %v", ev.ID, ev.Err)
	case protocol.MetaReply:
		text = fmt.Sprintf("meta %d: %q rev %d lease %d value %x: %v", ev.ID, ev.KV.Key, ev.KV.Rev, ev.KV.Lease, ev.KV.Value, ev.Err)
	case protocol.Computed:
		text = fmt.Sprintf("computed %d", ev.ID)
	default:
		text = strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", ev), "protocol."))
	}
	w.line(n.index, text)
}

// show prints a value with its type, so that a trace tells messages of equal fields apart. A pointer inside prints as an address, which
// no two runs share: such a type has a String method.
func show(v any) string { return fmt.Sprintf("%T%+v", v, v) }

// A Violation is what went wrong in a run, and how to see it again.
type Violation struct {
	Seed      uint64
	At        time.Duration
	Invariant string
	Err       error
	Plan      Plan
	Facts     []Fact // the last ones before it
}

// Error is one line that reproduces the run, and lines of what came before.
func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sim: seed %d, commit %s, plan %q: at %v: %s: %v", v.Seed, Commit(), v.Plan, v.At, v.Invariant, v.Err)
	for _, f := range v.Facts {
		fmt.Fprintf(&b, "\n\t%v %v: %s", f.At, f.Name, show(f.Value))
	}
	return b.String()
}

func (v *Violation) Unwrap() error { return v.Err }

func (w *World) violate(invariant string, err error) {
	if w.bad != nil {
		return
	}
	v := &Violation{Seed: w.seed, At: time.Duration(w.now), Invariant: invariant, Err: err, Plan: slices.Clone(w.plan)}
	for i := max(0, w.nfacts-12); i < w.nfacts; i++ {
		v.Facts = append(v.Facts, w.facts[i%len(w.facts)])
	}
	w.bad = v
}

// Commit is the revision that this program was built from, or "unknown".
func Commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
