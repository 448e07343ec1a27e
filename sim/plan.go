package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Plan is what goes wrong in a run. As text it is a fault after the other, apart by ";" or line ends:
//
//	1.2s crash 0,3 for 300ms; 2s loss 1,4 for 1s arg 0.05; 3s partition 0,meta for 2s
type Plan []Fault

// String returns the plan as text.
func (p Plan) String() string {
	var b strings.Builder
	for i, f := range p {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// String returns the fault as text.
func (f Fault) String() string {
	s := f.At.String() + " " + f.Kind.String()
	for i, n := range f.Nodes {
		if i == 0 {
			s += " "
		} else {
			s += ","
		}
		if n == Meta {
			s += "meta"
		} else {
			s += strconv.Itoa(int(n))
		}
	}
	if f.For != 0 {
		s += " for " + f.For.String()
	}
	if f.Arg != 0 {
		s += " arg " + strconv.FormatFloat(f.Arg, 'g', -1, 64)
	}
	return s
}

// String returns the kind's name in a plan.
func (k Kind) String() string {
	if k < kinds {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Kinds returns all kinds of faults.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// ParsePlan reads what String wrote. Lines that begin with # are left out.
func ParsePlan(text string) (Plan, error) {
	var p Plan
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for part := range strings.SplitSeq(line, ";") {
			words := strings.Fields(part)
			if len(words) == 0 {
				continue
			}
			f, err := parseFault(words)
			if err != nil {
				return nil, fmt.Errorf("sim: plan: fault %q: %w", strings.TrimSpace(part), err)
			}
			p = append(p, f)
		}
	}
	return p, nil
}

func parseFault(words []string) (f Fault, err error) {
	if len(words) < 2 {
		return f, errors.New(`want a time and a kind, such as "1.2s crash 0 for 300ms"`)
	}
	if f.At, err = time.ParseDuration(words[0]); err != nil {
		return f, err
	}
	k := slices.Index(names[:], words[1])
	if k < 0 {
		return f, fmt.Errorf("unknown kind %q: want one of %s", words[1], strings.Join(names[:], ", "))
	}
	f.Kind = Kind(k)
	words = words[2:]
	if len(words) > 0 && words[0] != "for" && words[0] != "arg" {
		for name := range strings.SplitSeq(words[0], ",") {
			if name == "meta" {
				f.Nodes = append(f.Nodes, Meta)
				continue
			}
			i, err := strconv.ParseInt(name, 10, 32)
			if err != nil || i < 0 {
				return f, fmt.Errorf(`node %q: want numbers from 0 or "meta", joined by ","`, name)
			}
			f.Nodes = append(f.Nodes, Node(i))
		}
		words = words[1:]
	}
	for ; len(words) > 0; words = words[2:] {
		if len(words) == 1 {
			return f, fmt.Errorf("nothing follows %q", words[0])
		}
		switch words[0] {
		case "for":
			f.For, err = time.ParseDuration(words[1])
		case "arg":
			f.Arg, err = strconv.ParseFloat(words[1], 64)
		default:
			err = fmt.Errorf(`unexpected %q: want "for" or "arg"`, words[0])
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// check says everything that is wrong with a plan for a World of so many nodes.
func (p Plan) check(nodes int) error {
	var errs []error
	for _, f := range p {
		if err := f.check(nodes); err != nil {
			errs = append(errs, fmt.Errorf("sim: plan: fault %q: %w", f.String(), err))
		}
	}
	return errors.Join(errs...)
}

func (f Fault) check(nodes int) error {
	if f.Kind >= kinds {
		return errors.New("unknown kind")
	}
	if f.At < 0 || f.For < 0 {
		return errors.New("a time below 0")
	}
	for i, n := range f.Nodes {
		if n < Meta || int(n) >= nodes {
			return fmt.Errorf("node %d: the World has %d", n, nodes)
		}
		if slices.Contains(f.Nodes[:i], n) {
			return fmt.Errorf("node %d is there twice", n)
		}
	}
	alone := len(f.Nodes) == 0 || len(f.Nodes) == 1 && f.Nodes[0] == Meta
	switch f.Kind {
	case Crash, Wipe, Vanish, Pause, Slow, Skew, Jump, Partition, Mute, Deafen, TornDisk, ShortDisk, FailingDisk, FullDisk:
		if alone {
			return errors.New("want the nodes that it happens to")
		}
	case Bridge:
		if alone || f.Nodes[0] == Meta {
			return errors.New("want the bridge first, and the nodes of one side behind it")
		}
	}
	return f.checkArg()
}

func (f Fault) checkArg() error {
	least, most := 0.0, math.Inf(1)
	var what string
	switch f.Kind {
	case Slow:
		least, most, what = 1, 1e6, "a factor"
	case Skew:
		least, most, what = -0.99, 100, "seconds a second"
	case Jump, Delay, Jitter, MetaSlow:
		least, most, what = 0, 1e6, "seconds"
	case Bandwidth:
		least, what = 1, "bytes a second"
	case Slice:
		least, what = 1, "bytes"
	case Loss, Duplicate, Reorder, Corrupt:
		most, what = 1, "a probability"
	default:
		most, what = 0, "no argument"
	}
	if !(f.Arg >= least && f.Arg <= most) {
		return fmt.Errorf("argument %v: want %s, %v to %v", f.Arg, what, least, most)
	}
	return nil
}
