package svg

import (
	"fmt"
	"math"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// A Chart is drawn into a frame, as one svg element. The error says what there is in it that cannot be drawn.
type Chart interface {
	Draw(f Frame) (string, error)
}

// A Frame is where a chart stands. The zero value works for a page with one chart.
type Frame struct {
	ID         string // unique in its page; empty: "chart". Anything but letters, digits, - and _ becomes -
	Width      int    // in CSS pixels, 240 to 4096; 0: 720. The height is the chart's own
	Standalone bool   // a file of its own: with namespace, styles and a visible title
}

// An Axis is how one dimension of a chart is shown. The zero value takes everything from the data.
type Axis struct {
	Label  string                 // in words, such as "Time to target"
	Unit   string                 // such as "s" or "samples/s"; shown with the label
	Log    bool                   // values ≤ 0 are gaps then
	Lo, Hi float64                // the least range to show; both 0: that of the data. Bars on a linear axis always show 0
	At     []float64              // where ticks stand; nil: at round numbers
	Binary bool                   // of bytes: on a linear axis, round numbers are multiples of a power of two
	Format func(v float64) string // of ticks and values; nil: three significant digits
	Value  func(v float64) string // of values alone, where ticks lie closer than its digits tell apart; nil: Format
}

// A Mark is a reference: a line across the chart at a value, with its name.
type Mark struct {
	At    float64
	Label string
}

// Hues is the number of colours of the palette. Hue 0 of a series or part stands for its place in the chart; 1 to Hues choose one, so
// that a row keeps its colour through all the charts of a page.
const Hues = 8

const (
	defaultWidth = 720
	minWidth     = 240
	maxWidth     = 4096
	narrowBelow  = 520 // then labels stand above what they name, and legends replace labels at line ends
	fontSize     = 12.0
	smallSize    = 11.0
	lineHeight   = 16.0
)

func (f Frame) width() float64 {
	if f.Width == 0 {
		return defaultWidth
	}
	return float64(min(max(f.Width, minWidth), maxWidth))
}

func (f Frame) id() string {
	if f.ID == "" {
		return "chart"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, f.ID)
}

func (a Axis) title() string {
	switch {
	case a.Label == "":
		return a.Unit
	case a.Unit == "":
		return a.Label
	}
	return a.Label + " (" + a.Unit + ")"
}

// text formats a value of the axis where it stands beside what it measures.
func (a Axis) text(v float64) string {
	switch {
	case a.Value != nil:
		return a.Value(v)
	case a.Format != nil:
		return a.Format(v)
	}
	return quantity.Short(v)
}

// Plottable tells whether v can be a place on a linear axis. The bounds keep differences and powers of ten finite.
func Plottable(v float64) bool {
	return !math.IsNaN(v) && math.Abs(v) <= largest
}

const (
	largest  = 1e300
	smallest = 1e-300
)

// has tells whether v can be a place on this axis.
func (a Axis) has(v float64) bool {
	return Plottable(v) && (!a.Log || v >= smallest)
}

// interval returns lo and hi where they are a whisker or a band around v on this axis; both 0 means none.
func (a Axis) interval(v, lo, hi float64) (float64, float64, bool) {
	if lo == 0 && hi == 0 || !Plottable(lo) || !Plottable(hi) || lo > hi {
		return 0, 0, false
	}
	if a.Log && lo < smallest {
		if hi < smallest {
			return 0, 0, false
		}
		lo = min(v, hi) // it reaches out of the chart
	}
	return lo, hi, true
}

func hue(given, place int) int {
	if given >= 1 && given <= Hues {
		return given
	}
	return place%Hues + 1
}

func nothing(kind, title string) error {
	return fmt.Errorf("svg: %s %q: no finite value to draw", kind, title)
}
