package ps

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/optim"
	"github.com/trivium-ml/trivium/tensor/kernel"
	"github.com/trivium-ml/trivium/wire"
)

// A Spec describes one table. Every member must give the same one.
type Spec struct {
	Name      string
	Rows      int64      // 0: any int64 is a row id, and rows appear on first touch
	Cols      int64      // cells per row, at most 1<<40
	Cell      Cell       // Float32, Float64, Int32, Int64
	Sparse    bool       // rows hold only touched cells
	Mode      Mode       // SSP (pull), ESSP (push), BSP, ASP
	Staleness int        // rounds; for SSP and ESSP
	Init      Init       // value of an untouched cell, a pure function of (seed, row, column)
	Optimizer string     // a rule with its parameters, such as "adam rate=0.001", or a name in ServerOptions.Updaters; empty: cells are added to
	Keep      Constraint // none, NonNegative, RowNorm(c): restored at the server after each apply
	Partition Partition  // Auto, Range, Hash

	// Tensors are what the cells of a row are to the optimizer, with their decay and rate multipliers; their lengths sum to Cols. Nil:
	// one tensor without decay.
	Tensors []trivium.Spec
}

// A Mode is a consistency model: what a Get at clock c waits for, and what it finds.
type Mode uint8

// The modes. Clocks count rounds; M is the number of rounds that every client has completed; s is the table's staleness.
const (
	SSP  Mode = iota // waits for M ≥ c - s; updates are applied as they arrive
	ESSP             // the same, and the server sends what has changed when M advances
	BSP              // waits for M ≥ c; a round is applied whole, in client order: the value is exactly the rounds before c
	ASP              // waits for nothing
)

func (m Mode) String() string { return name(m, "ssp", "essp", "bsp", "asp") }

// ParseMode reads "bsp", "asp", "ssp:3", "essp:3"; without a number the staleness is 3.
func ParseMode(s string) (Mode, int, error) {
	word, number, found := strings.Cut(s, ":")
	for m := SSP; m <= ASP; m++ {
		if m.String() != word {
			continue
		}
		if m == BSP || m == ASP {
			if found {
				break
			}
			return m, 0, nil
		}
		if !found {
			return m, DefaultStaleness, nil
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > maxStaleness {
			return 0, 0, fmt.Errorf("ps: consistency %q: the staleness is a number of rounds from 0 to %d", s, maxStaleness)
		}
		return m, n, nil
	}
	return 0, 0, fmt.Errorf("ps: consistency %q: want bsp, asp, ssp:N or essp:N", s)
}

// DefaultStaleness is that of the published comparison of PMLS.
const DefaultStaleness = 3

const (
	maxStaleness = 1 << 20
	maxCols      = 1 << 40
	maxWhole     = 1 << 34 // cells of a row that is read whole: a dense one, and a sparse one other than cell by cell
	maxName      = 256
	maxTensors   = 1 << 12
	maxAxes      = 16
	maxText      = 1 << 12 // bytes of an optimizer, and of a tensor's name
)

// A Partition says how a table is cut into shards.
type Partition uint8

// The partitions. Auto is Range where the number of rows is known and rows are dense, else Hash.
const (
	Auto  Partition = iota
	Range           // equal runs of cells, so that a large row is split
	Hash            // by row and block of columns
)

func (p Partition) String() string { return name(p, "auto", "range", "hash") }

// A Keep is the kind of a Constraint.
type Keep uint8

// The kinds.
const (
	KeepNone Keep = iota
	KeepNonNegative
	KeepRowNorm
)

// A Constraint holds for the cells of a table from the start, and after each round.
type Constraint struct {
	Kind Keep
	Norm float64 // of KeepRowNorm: longer rows are scaled down to it
}

// NonNegative makes negative cells 0. An Init that may give any is refused.
func NonNegative() Constraint { return Constraint{Kind: KeepNonNegative} }

// RowNorm scales rows that are longer than c, by the Euclidean norm, down to it. Rows are not split then.
func RowNorm(c float64) Constraint { return Constraint{Kind: KeepRowNorm, Norm: c} }

func (c Constraint) String() string {
	switch c.Kind {
	case KeepNonNegative:
		return "non-negative"
	case KeepRowNorm:
		return fmt.Sprintf("row norm %g", c.Norm)
	}
	return "none"
}

// staleness is s in what a Get waits for.
func (s *Spec) staleness() Clock {
	if s.Mode == SSP || s.Mode == ESSP {
		return Clock(s.Staleness)
	}
	return 0
}

// partition resolves Auto.
func (s *Spec) partition() Partition {
	switch {
	case s.Partition != Auto:
		return s.Partition
	case s.Rows > 0 && !s.Sparse:
		return Range
	}
	return Hash
}

func (s *Spec) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("ps: table %q: "+format, append([]any{s.Name}, args...)...))
	}
	if s.Name == "" || len(s.Name) > maxName {
		bad("name: want 1 to %d bytes, found %d", maxName, len(s.Name))
	}
	if s.Rows < 0 {
		bad("rows: want 0 or more, found %d", s.Rows)
	}
	if s.Cols < 1 || s.Cols > maxCols {
		bad("cols: want 1 to %d, found %d", int64(maxCols), s.Cols)
	} else if !s.Sparse && s.Cols > maxWhole {
		bad("cols: a dense row has at most %d cells, found %d: set Sparse", int64(maxWhole), s.Cols)
	}
	if s.Cell > Int64 {
		bad("cell: unknown type %d", s.Cell)
	}
	if s.Mode > ASP {
		bad("mode: unknown mode %d", s.Mode)
	}
	if s.Staleness < 0 || s.Staleness > maxStaleness {
		bad("staleness: want 0 to %d rounds, found %d", maxStaleness, s.Staleness)
	} else if s.Staleness > 0 && (s.Mode == BSP || s.Mode == ASP) {
		bad("staleness: %s takes none, found %d", s.Mode, s.Staleness)
	}
	if s.Init.Kind > Kaiming || !finite.Is(s.Init.A) || !finite.Is(s.Init.B) {
		bad("init: want a known kind with finite numbers, found %+v", s.Init)
	} else if s.Init.Kind == Xavier && !(s.Init.A+s.Init.B > 0) || s.Init.Kind == Kaiming && !(s.Init.A > 0) || s.Init.Kind == Normal && s.Init.B < 0 {
		bad("init: %s of %g and %g", s.Init.Kind, s.Init.A, s.Init.B)
	} else if s.Cell >= Int32 && s.Init.Kind > Constant {
		bad("init: %s gives fractions, and cells are %s", s.Init.Kind, s.Cell)
	} else if s.Init.Kind == Constant && s.Cell <= Int64 && !s.Cell.holds(s.Init.A) {
		bad("init: no %s is %g", s.Cell, s.Init.A)
	} else if least, most := s.Init.ends(); s.Cell <= Float64 && s.Init.Kind > Constant && !(s.Cell.holds(least) && s.Cell.holds(most)) {
		bad("init: %s of %g and %g reaches from %g to %g, and cells are %s", s.Init.Kind, s.Init.A, s.Init.B, least, most, s.Cell)
	}
	switch least, most := s.Init.ends(); {
	case s.Keep.Kind > KeepRowNorm:
		bad("keep: unknown constraint %d", s.Keep.Kind)
	case s.Keep.Kind < KeepRowNorm && s.Keep.Norm != 0: // NaN would differ from itself, too
		bad("keep: %s takes no norm, found %g", s.Keep, s.Keep.Norm)
	case s.Keep.Kind == KeepNonNegative && least < 0:
		bad("keep: init: %s of %g and %g reaches from %g to %g, and cells are %s", s.Init.Kind, s.Init.A, s.Init.B, least, most, s.Keep)
	case s.Keep.Kind == KeepRowNorm && (s.Sparse || s.Cell >= Int32 || !(s.Keep.Norm > 0) || !finite.Is(s.Keep.Norm)):
		bad("keep: a row norm above 0 of dense rows of floating-point cells, found %g", s.Keep.Norm)
	case s.Keep.Kind == KeepRowNorm && s.Cols > 1<<24:
		bad("keep: a row norm wants whole rows in one shard, of at most %d cells, found %d", 1<<24, s.Cols)
	}
	if s.Optimizer != "" && s.Cell != Float32 {
		bad("optimizer: %q updates float32 cells, found %s", s.Optimizer, s.Cell)
	}
	switch {
	case s.Partition > Hash:
		bad("partition: unknown partition %d", s.Partition)
	case s.Partition == Range && (s.Rows == 0 || s.Sparse):
		bad("partition: range wants a number of rows, and dense ones")
	}
	if s.Rows > 0 && s.Cols > 0 && s.partition() == Range && s.Rows > math.MaxInt64/16/s.Cols {
		bad("rows: %d × %d cells do not fit", s.Rows, s.Cols)
	}
	if n := len(s.Optimizer); n > maxText {
		bad("optimizer: want at most %d bytes, found %d", maxText, n)
	}
	if n := len(s.Tensors); n > maxTensors {
		bad("tensors: want at most %d, found %d", maxTensors, n)
	}
	for _, t := range s.Tensors {
		if len(t.Name) > maxText || len(t.Shape) > maxAxes {
			bad("tensors: want names of at most %d bytes and at most %d axes, found %d and %d", maxText, maxAxes, len(t.Name), len(t.Shape))
			break
		}
	}
	if s.Tensors != nil {
		if l, err := trivium.NewLayout(s.Tensors...); err != nil {
			bad("tensors: %w", err)
		} else if int64(l.Len()) != s.Cols {
			bad("tensors: they have %d cells, a row has %d", l.Len(), s.Cols)
		} else if s.Sparse {
			bad("tensors: a sparse row has none")
		}
	}
	return errors.Join(errs...)
}

// differ names the first field in which two definitions of a table differ, with both values; "" where they are equal.
func (s *Spec) differ(o *Spec) (field string, mine, other string) {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"rows", s.Rows, o.Rows},
		{"cols", s.Cols, o.Cols},
		{"cell", s.Cell, o.Cell},
		{"sparse", s.Sparse, o.Sparse},
		{"mode", s.Mode, o.Mode},
		{"staleness", s.Staleness, o.Staleness},
		{"init", s.Init, o.Init},
		{"optimizer", s.Optimizer, o.Optimizer},
		{"keep", s.Keep, o.Keep},
		{"partition", s.Partition, o.Partition},
		{"tensors", tensorsOf(s.Tensors), tensorsOf(o.Tensors)},
	} {
		if f.a != f.b {
			return f.name, fmt.Sprint(f.a), fmt.Sprint(f.b)
		}
	}
	return "", "", ""
}

func tensorsOf(t []trivium.Spec) string {
	if t == nil {
		return "none"
	}
	l, err := trivium.NewLayout(t...)
	if err != nil {
		return err.Error()
	}
	return l.Hash()
}

func (s *Spec) append(p []byte) []byte {
	p = wire.AppendString(p, s.Name)
	p = wire.AppendUvarint(p, uint64(s.Rows))
	p = wire.AppendUvarint(p, uint64(s.Cols))
	p = wire.AppendBools(append(p, byte(s.Cell)), s.Sparse)
	p = append(p, byte(s.Mode), byte(s.Init.Kind), byte(s.Keep.Kind), byte(s.Partition))
	p = wire.AppendUvarint(p, uint64(s.Staleness))
	p = wire.AppendFloat64(p, s.Init.A)
	p = wire.AppendFloat64(p, s.Init.B)
	p = wire.AppendUint64(p, s.Init.Seed)
	p = wire.AppendFloat64(p, s.Keep.Norm)
	p = wire.AppendString(p, s.Optimizer)
	p = wire.AppendUvarint(p, uint64(len(s.Tensors)))
	for _, t := range s.Tensors {
		p = wire.AppendString(p, t.Name)
		p = wire.AppendUvarint(p, uint64(len(t.Shape)))
		for _, d := range t.Shape {
			p = wire.AppendUvarint(p, uint64(d))
		}
		p = wire.AppendBools(p, t.Buffer, t.RowSparse)
		p = wire.AppendUint32(p, math.Float32bits(t.Decay))
		p = wire.AppendUint32(p, math.Float32bits(t.Rate))
		p = wire.AppendString(p, t.Tie)
	}
	return p
}

func readSpec(r *wire.Reader) (s Spec) {
	s.Name = r.String("table name", maxName)
	s.Rows = int64(r.Uvarint("rows", math.MaxInt64))
	s.Cols = int64(r.Uvarint("cols", maxCols))
	s.Cell = Cell(r.Uvarint("cell", uint64(Int64)))
	r.Bools("sparse", &s.Sparse)
	s.Mode = Mode(r.Uvarint("mode", uint64(ASP)))
	s.Init.Kind = InitKind(r.Uvarint("init", uint64(Kaiming)))
	s.Keep.Kind = Keep(r.Uvarint("keep", uint64(KeepRowNorm)))
	s.Partition = Partition(r.Uvarint("partition", uint64(Hash)))
	s.Staleness = int(r.Uvarint("staleness", maxStaleness))
	s.Init.A, s.Init.B, s.Init.Seed = r.Float64("init a"), r.Float64("init b"), r.Uint64("init seed")
	s.Keep.Norm = r.Float64("norm")
	s.Optimizer = r.String("optimizer", maxText)
	for n := r.Uvarint("tensors", maxTensors); n > 0 && r.Err() == nil; n-- {
		t := trivium.Spec{Name: r.String("tensor name", maxText)}
		for d := r.Uvarint("axes", maxAxes); d > 0 && r.Err() == nil; d-- {
			t.Shape = append(t.Shape, int(r.Uvarint("length", 1<<40)))
		}
		r.Bools("flags", &t.Buffer, &t.RowSparse)
		t.Decay, t.Rate = math.Float32frombits(r.Uint32("decay")), math.Float32frombits(r.Uint32("rate"))
		t.Tie = r.String("tie", maxText)
		s.Tensors = append(s.Tensors, t)
	}
	return s
}

// parseRule reads an optimizer as a Spec names it: "adam rate=0.001 beta1=0.8".
func parseRule(s string) (o trivium.OptimizerSpec, err error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return o, errors.New("ps: optimizer: want a name, perhaps with parameters, such as \"adam rate=0.001\"")
	}
	o.Name = words[0]
	for _, w := range words[1:] {
		k, text, ok := strings.Cut(w, "=")
		if ok && k == "schedule" {
			o.Schedule = text
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return o, fmt.Errorf("ps: optimizer %q: want parameters such as rate=0.1, found %q", s, w)
		}
		switch k {
		case "rate":
			o.Rate = v
		case "l1":
			o.L1 = v
		case "l2":
			o.L2 = v
		case "decay":
			o.Decay = v
		case "clip_value":
			o.ClipValue = v
		case "clip_norm":
			o.ClipNorm = v
		default:
			if o.Params == nil {
				o.Params = map[string]float64{}
			}
			o.Params[k] = v
		}
	}
	return o, nil
}

// optimizerOf returns the optimizer of a table, nil if it has none.
func optimizerOf(s *Spec, updaters map[string]trivium.Optimizer, isa kernel.ISA) (trivium.Optimizer, error) {
	if s.Optimizer == "" {
		return nil, nil
	}
	o, ok := updaters[s.Optimizer]
	if ok && o == nil {
		return nil, fmt.Errorf("ps: table %q: optimizer: %q of Updaters is nil", s.Name, s.Optimizer)
	}
	if !ok {
		spec, err := parseRule(s.Optimizer)
		if err != nil {
			return nil, err
		}
		if o, err = optim.New(spec, isa); err != nil {
			return nil, fmt.Errorf("ps: table %q: optimizer: %w", s.Name, err)
		}
	}
	if !o.Elementwise() {
		return nil, fmt.Errorf("ps: table %q: optimizer %q looks at all cells at once, as under clipping by global norm, and the server holds shards", s.Name, s.Optimizer)
	}
	if o.Slots() > 8 {
		return nil, fmt.Errorf("ps: table %q: optimizer %q: want at most 8 state vectors, found %d", s.Name, s.Optimizer, o.Slots())
	}
	return o, nil
}
