package svg

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// checkSVG fails unless s is one well-formed svg element with a role, a title, ids that are unique and resolve, and coordinates that
// are finite numbers.
func checkSVG(t interface{ Fatalf(string, ...any) }, s string) {
	d := xml.NewDecoder(strings.NewReader(s))
	d.Strict = true
	ids := map[string]bool{}
	var refs []string
	depth, elements := 0, 0
	var title string
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, s)
		}
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			elements++
			attr := map[string]string{}
			for _, a := range e.Attr {
				attr[a.Name.Local] = a.Value
				checkAttribute(t, e.Name.Local, a.Name.Local, a.Value)
			}
			if id, ok := attr["id"]; ok {
				if ids[id] {
					t.Fatalf("id %q twice", id)
				}
				ids[id] = true
			}
			if f := attr["fill"]; strings.HasPrefix(f, "url(#") {
				refs = append(refs, strings.TrimSuffix(strings.TrimPrefix(f, "url(#"), ")"))
			}
			if depth == 1 {
				if e.Name.Local != "svg" || attr["role"] != "img" {
					t.Fatalf("the root is %v", e)
				}
				refs = append(refs, strings.Fields(attr["aria-labelledby"])...)
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
			if elements == 2 && title == "" {
				title = strings.TrimSpace(string(e))
			}
		}
	}
	if title == "" {
		t.Fatalf("no title:\n%s", s)
	}
	for _, r := range refs {
		if !ids[r] {
			t.Fatalf("nothing has the id %q", r)
		}
	}
}

// checkAttribute fails if a number is not finite, or far out of any chart.
func checkAttribute(t interface{ Fatalf(string, ...any) }, element, name, value string) {
	switch name {
	case "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height":
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.Abs(v) > 1e5 || math.IsNaN(v) {
			t.Fatalf("%s: %s=%q", element, name, value)
		}
		if (name == "width" || name == "height") && v < 0 {
			t.Fatalf("%s: %s=%q is negative", element, name, value)
		}
	case "d":
		if strings.Contains(value, "NaN") || strings.Contains(value, "Inf") {
			t.Fatalf("%s: d=%q", element, value)
		}
	}
}

// anyFloat draws values that charts meet, and those they should survive.
var anyFloat = rapid.OneOf(
	rapid.Float64Range(-10, 1000),
	rapid.Float64Range(0.001, 1e7),
	rapid.Float64(),
	rapid.SampledFrom([]float64{
		0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64,
		math.SmallestNonzeroFloat64, 1e300, -1e300, 1e-300, 1e15, 1e15 + 1,
	}),
)

func anyAxis(t *rapid.T) Axis {
	a := Axis{Log: rapid.Bool().Draw(t, "log"), Label: rapid.String().Draw(t, "axis label"), Unit: rapid.String().Draw(t, "unit")}
	if rapid.Bool().Draw(t, "bounded") {
		a.Lo, a.Hi = anyFloat.Draw(t, "axis lo"), anyFloat.Draw(t, "axis hi")
	}
	if rapid.Bool().Draw(t, "placed") {
		a.At = rapid.SliceOfN(anyFloat, 0, 5).Draw(t, "at")
	}
	switch rapid.IntRange(0, 3).Draw(t, "format") {
	case 0:
		a.Format = quantity.Seconds
	case 1:
		a.Format, a.Binary = quantity.Bytes[float64], true
	}
	return a
}

func anyChart(t *rapid.T) Chart {
	title := "A" + rapid.String().Draw(t, "title")
	name := func() string { return rapid.String().Draw(t, "name") }
	some := func(what string) []int { return make([]int, rapid.IntRange(0, 5).Draw(t, what)) }
	f := func() float64 { return anyFloat.Draw(t, "v") }
	var marks []Mark
	for range some("marks") {
		marks = append(marks, Mark{f(), name()})
	}
	series := func() (out []Series) {
		for range some("series") {
			s := Series{
				Name: name(), Hue: rapid.IntRange(-1, 9).Draw(t, "hue"), Dash: Dash(rapid.IntRange(0, 5).Draw(t, "dash")),
				Band: rapid.Bool().Draw(t, "band"), Thin: rapid.Bool().Draw(t, "thin"), Squares: rapid.Bool().Draw(t, "squares"),
			}
			for range rapid.IntRange(0, 30).Draw(t, "points") {
				s.Points = append(s.Points, Point{f(), f(), f(), f()})
			}
			out = append(out, s)
		}
		return out
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return Lines{Title: title, X: anyAxis(t), Y: anyAxis(t), Series: series(), XMarks: marks, YMarks: marks, Height: rapid.IntRange(-5, 5000).Draw(t, "h")}
	case 1:
		return Scaling{Title: title, X: anyAxis(t), Y: anyAxis(t), Series: series(), YMarks: marks, Flat: rapid.Bool().Draw(t, "flat")}
	case 2:
		b := Bars{Title: title, Value: anyAxis(t), Marks: marks, Series: rapid.SliceOfN(rapid.String(), 0, 4).Draw(t, "series")}
		for range some("groups") {
			g := Group{Label: name(), Note: name()}
			for range some("bars") {
				g.Bars = append(g.Bars, Bar{
					Series: rapid.IntRange(-1, 3).Draw(t, "series"), Value: f(), Lo: f(), Hi: f(),
					Outline: rapid.Bool().Draw(t, "outline"), Missing: rapid.SampledFrom([]string{"", "", "not <measured>"}).Draw(t, "missing"),
				})
			}
			b.Groups = append(b.Groups, g)
		}
		return b
	case 3:
		s := Stack{Title: title, Value: anyAxis(t), Share: rapid.Bool().Draw(t, "share")}
		for range rapid.IntRange(1, 9).Draw(t, "parts") {
			s.Parts = append(s.Parts, Part{Name: name()})
		}
		for range some("rows") {
			r := StackRow{Label: name(), Note: name()}
			for range rapid.IntRange(0, len(s.Parts)).Draw(t, "values") {
				r.Values = append(r.Values, math.Abs(f()))
			}
			s.Rows = append(s.Rows, r)
		}
		return s
	case 4:
		h := Histogram{Title: title, X: anyAxis(t), Whole: rapid.Bool().Draw(t, "whole")}
		for range some("panels") {
			p := Panel{Label: name(), Note: name(), Marks: marks}
			for range some("bins") {
				p.Bins = append(p.Bins, Bin{f(), f(), f()})
			}
			h.Panels = append(h.Panels, p)
		}
		return h
	default:
		w := Waterfall{Title: title, Value: anyAxis(t), HigherWorse: rapid.Bool().Draw(t, "worse")}
		for range some("levels") {
			w.Steps = append(w.Steps, Level{Label: name(), Note: name(), Value: f(), Lo: f(), Hi: f()})
		}
		return w
	}
}

// Whatever is in a chart, it comes out well-formed and finite, or as an error; the same bytes each time.
func TestAnyChart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyChart(t)
		f := Frame{ID: rapid.String().Draw(t, "id"), Width: rapid.IntRange(-10, 5000).Draw(t, "width"), Standalone: rapid.Bool().Draw(t, "alone")}
		s, err := c.Draw(f)
		if err != nil {
			if strings.Contains(err.Error(), "fault of the drawing") {
				t.Fatalf("%v", err)
			}
			return
		}
		checkSVG(t, s)
		if again, _ := c.Draw(f); again != s {
			t.Fatalf("drawn twice, the chart differs")
		}
	})
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "a<b>&\"'", "\x00\x1b[31m", "\xff\xfe", "]]>", "<!--", "\u202eevil", "\ufffe", "😀", "a\tb\r\nc"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s2, err := Bars{
			Title: "T" + s, Desc: s, Value: Axis{Label: s, Unit: s}, Series: []string{s, s}, Marks: []Mark{{1, s}},
			Groups: []Group{{Label: s, Note: s, Bars: []Bar{{Value: 1, Text: s}, {Series: 1, Missing: "M" + s}}}},
		}.Draw(Frame{ID: s, Standalone: len(s)%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		checkSVG(t, s2)
		var out strings.Builder
		d := xml.NewDecoder(strings.NewReader("<a b=\"" + Escape(s) + "\">" + Escape(s) + "</a>"))
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			switch e := token.(type) {
			case xml.CharData:
				out.Write(e)
			case xml.StartElement:
				if len(e.Attr) != 1 {
					t.Fatalf("%q became %d attributes", s, len(e.Attr))
				}
			}
		}
		if isPlain(s) && out.String() != s {
			t.Fatalf("%q came back as %q", s, out.String())
		}
	})
}

func isPlain(s string) bool {
	for _, r := range s {
		if r < ' ' || r > '~' {
			return false
		}
	}
	return true
}

func TestNothingToDraw(t *testing.T) {
	nan := math.NaN()
	for _, c := range []Chart{
		Lines{Title: "t"},
		Lines{Title: "t", Series: []Series{{Points: []Point{{X: nan, Y: 1}, {X: 1, Y: math.Inf(1)}}}}},
		Lines{Title: "t", Y: Axis{Log: true}, Series: []Series{{Points: []Point{{X: 1, Y: 0}, {X: 2, Y: -1}}}}},
		Scaling{Title: "t"},
		Bars{Title: "t", Groups: []Group{{Label: "a", Bars: []Bar{{Value: nan}}}}},
		Stack{Title: "t", Parts: []Part{{Name: "p"}}, Rows: []StackRow{{Label: "r", Values: []float64{0}}}},
		Stack{Title: "t", Parts: []Part{{Name: "p"}}, Rows: []StackRow{{Label: "r", Values: []float64{-1}}}},
		Stack{Title: "t", Rows: []StackRow{{Label: "r", Values: []float64{1}}}},
		Histogram{Title: "t", Panels: []Panel{{Label: "p", Bins: []Bin{{0, 1, 0}}}}},
		Waterfall{Title: "t", Steps: []Level{{Label: "l", Value: 1, Missing: "absent"}}},
		Bars{Groups: []Group{{Label: "no title", Bars: []Bar{{Value: 1}}}}},
	} {
		if s, err := c.Draw(Frame{}); err == nil || s != "" || !strings.HasPrefix(err.Error(), "svg: ") {
			t.Errorf("%+v: %v, %d bytes; want an error and nothing else", c, err, len(s))
		}
	}
}

// A gap in the data is a gap in the line, never a bridge.
func TestGap(t *testing.T) {
	points := []Point{{X: 0, Y: 1}, {X: 1, Y: 2}, {X: 2, Y: math.NaN()}, {X: 3, Y: 4}, {X: 4, Y: 5}}
	s, err := Lines{Title: "t", Series: []Series{{Name: "a", Points: points}}}.Draw(Frame{})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(s, `<path class="s1"`); n != 2 {
		t.Errorf("%d stretches; want 2", n)
	}
}

// A million points are drawn as few, and the highest and the lowest are among them.
func TestThin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30000).Draw(t, "n")
		seed := rapid.Uint64().Draw(t, "seed")
		points := make([]Point, n)
		low, high := 0, 0
		for i := range points {
			seed = seed*6364136223846793005 + 1442695040888963407
			points[i] = Point{X: float64(i), Y: float64(seed >> 40)}
			if points[i].Y < points[low].Y {
				low = i
			}
			if points[i].Y > points[high].Y {
				high = i
			}
		}
		sc := scale{lo: 0, hi: float64(n), from: 40, to: 740}
		out := thin(sc, points)
		if len(out) > 2*702+4 {
			t.Fatalf("%d points are left", len(out))
		}
		seenLow, seenHigh, last := false, false, math.Inf(-1)
		for _, p := range out {
			seenLow = seenLow || p == points[low]
			seenHigh = seenHigh || p == points[high]
			if p.X < last {
				t.Fatalf("out of order")
			}
			last = p.X
		}
		if !seenLow || !seenHigh || out[0] != points[0] || out[len(out)-1] != points[n-1] {
			t.Fatalf("an end or a peak is lost")
		}
	})
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wants := rapid.SliceOfN(rapid.Float64Range(0, 300), 1, 15).Draw(t, "wants")
		names := make([]name, len(wants))
		for i, w := range wants {
			names[i] = name{want: w, text: strconv.Itoa(i)}
		}
		sortNames(names)
		spread(names, 0, 300, 14)
		for i, n := range names {
			if n.y < -1e-9 || n.y > 300+1e-9 {
				t.Fatalf("%v: out of the plot", n.y)
			}
			if i > 0 && n.y-names[i-1].y < 14-1e-9 {
				t.Fatalf("%v and %v touch", names[i-1].y, n.y)
			}
		}
		if len(names) == 1 && names[0].y != names[0].want {
			t.Fatalf("a single name was moved")
		}
	})
}

func ExampleBars() {
	chart := Bars{
		Title:  "Speed",
		Value:  Axis{Unit: "samples/s"},
		Groups: []Group{{Label: "local", Bars: []Bar{{Value: 451e3, Lo: 440e3, Hi: 460e3}}}},
	}
	s, err := chart.Draw(Frame{ID: "speed"})
	fmt.Println(err, strings.HasPrefix(s, `<svg class="tv" role="img"`))
	_, err = Bars{Title: "Speed", Groups: []Group{{Label: "local", Bars: []Bar{{Value: math.NaN()}}}}}.Draw(Frame{})
	fmt.Println(err)
	// Output:
	// <nil> true
	// svg: bar chart "Speed": no finite value to draw
}

func TestLongNames(t *testing.T) {
	long := strings.Repeat("a very long name ", 5000)
	for _, width := range []int{240, 380, 720, 1200} {
		s, err := Lines{Title: long, Series: []Series{{Name: long, Points: []Point{{X: 1, Y: 1}, {X: 2, Y: 2}}}, {Name: "b", Points: []Point{{X: 1, Y: 1}}}}}.Draw(Frame{Width: width})
		if err != nil {
			t.Fatal(err)
		}
		checkSVG(t, s)
	}
}

// TestWidestLabel: the labels beside rows have the room that the widest of them takes, and none is shortened.
func TestWidestLabel(t *testing.T) {
	for n := range 24 {
		label := strings.Repeat("a", n+1)
		s, err := Bars{Title: "t", Groups: []Group{{Label: label, Bars: []Bar{{Value: 1}}}}}.Draw(Frame{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s, ">"+label+"</text>") {
			t.Errorf("%q is not there in full", label)
		}
	}
}

// TestContinuedLine: a line that goes on as another sort of line, as where cores no longer suffice, keeps its marker.
func TestContinuedLine(t *testing.T) {
	points := func(x ...float64) (list []Point) {
		for _, x := range x {
			list = append(list, Point{X: x, Y: 1})
		}
		return list
	}
	drawn, err := Lines{Title: "speed", Series: []Series{
		{Name: "a", Hue: 1, Points: points(1, 2)},
		{Name: "a", Hue: 1, Dash: Dashed, NoName: true, Points: points(3, 4)},
		{Name: "b", Hue: 2, Points: points(1, 4)},
	}}.Draw(Frame{})
	if err != nil {
		t.Fatal(err)
	}
	if circles := strings.Count(drawn, `<circle class="f1 p"`); circles != 4 || strings.Contains(drawn, `<path class="f1 p"`) {
		t.Errorf("%d circles of the first line, want 4 and nothing else: %s", circles, drawn)
	}
}

// TestNamesOfShortLines: where a line ends in the middle of the plot, names are in a legend, and nothing leads across the other lines to them.
func TestNamesOfShortLines(t *testing.T) {
	line := func(name string, last float64) Series {
		return Series{Name: name, Points: []Point{{X: 0, Y: 1}, {X: last, Y: 2}}}
	}
	for _, c := range []struct {
		last   float64
		legend bool
	}{{10, false}, {9.8, false}, {5, true}} {
		drawn, err := Lines{Title: "loss", Series: []Series{line("long", 10), line("short", c.last)}}.Draw(Frame{})
		if err != nil {
			t.Fatal(err)
		}
		if behind := strings.Contains(drawn, `<text class="f2 n"`); behind == c.legend {
			t.Errorf("ending at %v of 10, its name is behind the line's end: %v; %s", c.last, behind, drawn)
		}
		if c.legend && strings.Contains(drawn, `<line class="k"`) {
			t.Errorf("ending at %v of 10, something leads through the plot: %s", c.last, drawn)
		}
	}
}

// TestIdealOfEachLine: of what is measured each line has one ideal, from its first point to its last, be it solid, dashed, or begun as the one and
// gone on as the other; what is predicted has none.
func TestIdealOfEachLine(t *testing.T) {
	points := func(x ...float64) (list []Point) {
		for _, x := range x {
			list = append(list, Point{X: x, Y: 10})
		}
		return list
	}
	s := Scaling{Title: "speed", Series: []Series{
		{Name: "free", Points: points(1, 2, 4)},
		{Name: "both", Points: points(1, 2)},
		{Name: "both", Dash: Dashed, Measured: true, NoName: true, Points: points(3, 4)},
		{Name: "busy", Dash: Dashed, Measured: true, Points: points(2, 4)},
		{Name: "predicted", Dash: Dashed, Points: points(1, 4)},
	}}
	ends := map[string][]float64{}
	for _, x := range s.lines().Series[len(s.Series):] {
		ends[x.Name] = append(ends[x.Name], x.Points[0].X, x.Points[len(x.Points)-1].X, x.Points[len(x.Points)-1].Y)
	}
	if want := "map[both, ideal:[1 4 40] busy, ideal:[2 4 20] free, ideal:[1 4 40]]"; fmt.Sprint(ends) != want {
		t.Errorf("%v, want %s", ends, want)
	}
}
