package svg

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivium-ml/trivium/internal/quantity"
)

var update = flag.Bool("update", false, "write the golden files")

// Ticks are multiples of 1, 2 or 5 times a power of ten, ascending, no more than asked for and two, each with a label of its own.
func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.OneOf(rapid.Float64Range(-1e6, 1e6), rapid.Float64Range(-1, 1), rapid.Float64Range(-1e-6, 1e-6)).Draw(t, "lo")
		hi := lo + rapid.OneOf(rapid.Float64Range(0, 1e-6), rapid.Float64Range(0.001, 10), rapid.Float64Range(1, 1e9)).Draw(t, "width")
		count := rapid.IntRange(2, 20).Draw(t, "count")
		around := rapid.Bool().Draw(t, "around")
		lo, hi = widen(lo, hi)
		places, step := linearTicks(lo, hi, count, around, niceStep)
		mantissa := step / math.Pow(10, math.Floor(math.Log10(step)+1e-9))
		if d := slices.ContainsFunc([]float64{1, 2, 5}, func(m float64) bool { return math.Abs(mantissa-m) < 1e-6 }); !d {
			t.Fatalf("a step of %g", step)
		}
		if len(places) < 2 || len(places) > count+3 {
			t.Fatalf("%d ticks; wanted about %d", len(places), count)
		}
		largestPlace := 0.0
		for _, v := range places {
			largestPlace = max(largestPlace, math.Abs(v))
		}
		seen := map[string]bool{}
		for i, v := range places {
			if q := v / step; !(math.Abs(q-math.Round(q)) <= 1e-6*max(1, math.Abs(q))) {
				t.Fatalf("%g is no multiple of %g", v, step)
			}
			if i > 0 && v <= places[i-1] {
				t.Fatalf("not ascending: %v", places)
			}
			label := quantity.Tick(v, step, largestPlace)
			if seen[label] {
				t.Fatalf("%q twice, of %v", label, places)
			}
			seen[label] = true
		}
		inside := places[0] >= lo-step*1e-6 && places[len(places)-1] <= hi+step*1e-6
		outside := places[0] <= lo+step*1e-6 && places[len(places)-1] >= hi-step*1e-6
		if around && !outside || !around && !inside {
			t.Fatalf("%v for %g to %g, around %v", places, lo, hi, around)
		}
	})
}

func TestLogTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		count  int
		want   []float64
	}{
		{1, 1000, 4, []float64{1, 10, 100, 1000}},
		{1, 100, 10, []float64{1, 2, 5, 10, 20, 50, 100}},
		{0.3, 4, 8, []float64{0.5, 1, 2}},
		{30, 40, 5, []float64{30, 32, 34, 36, 38, 40}},
		{0.32, 0.72, 3, []float64{0.4, 0.5, 0.6, 0.7}},
		{0.05, 5, 4, []float64{0.1, 0.3, 1, 3}},
		{0.01, 0.5, 3, []float64{0.01, 0.03, 0.1, 0.3}},
		{1, 1e12, 4, []float64{1, 1e3, 1e6, 1e9, 1e12}},
	} {
		got, _ := logTicks(c.lo, c.hi, c.count)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*b }) {
			t.Errorf("%g to %g, about %d: %v; want %v", c.lo, c.hi, c.count, got, c.want)
		}
	}
	for count := range 20 { // the narrowest range that an axis has
		if got, _ := logTicks(1, 1.01, count); len(got) < 2 || len(got) > 2*count+4 {
			t.Errorf("%d ticks, of about %d", len(got), count)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		lo := math.Pow(10, rapid.Float64Range(-290, 290).Draw(t, "lo"))
		hi := min(lo*math.Pow(10, rapid.Float64Range(0.01, 300).Draw(t, "decades")), largest)
		lo, hi = widenLog(lo, hi)
		a, b := roundLog(lo, hi)
		if a > lo*(1+1e-9) || b < hi*(1-1e-9) {
			t.Fatalf("%g to %g was rounded to %g to %g", lo, hi, a, b)
		}
		count := rapid.IntRange(2, 12).Draw(t, "count")
		places, _ := logTicks(a, b, count)
		if len(places) < 1 || len(places) > 2*count+4 {
			t.Fatalf("%d ticks of %g to %g; wanted about %d", len(places), a, b, count)
		}
	})
}

// A scale keeps the order of values, and what the axis was made for lies between its pixels.
func TestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Axis{Log: rapid.Bool().Draw(t, "log")}
		var s span
		var values []float64
		for _, v := range rapid.SliceOfN(anyFloat, 1, 20).Draw(t, "values") {
			if a.has(v) {
				s.add(v)
				values = append(values, v)
			}
		}
		if !s.any {
			return
		}
		sc, ticks := a.resolve(s, 40, 700, 76, rapid.Bool().Draw(t, "snap"))
		slices.Sort(values)
		last := math.Inf(-1)
		for _, v := range values {
			x := sc.at(v)
			if math.IsNaN(x) || x < 40-1e-3 || x > 700+1e-3 || x < last-1e-6 {
				t.Fatalf("%g is at %g, behind %g", v, x, last)
			}
			last = x
		}
		for _, tick := range ticks {
			if x := sc.at(tick.at); x < 40-1e-3 || x > 700+1e-3 {
				t.Fatalf("tick %q is at %g", tick.label, x)
			}
		}
	})
}

func TestRoundPercent(t *testing.T) {
	for share, want := range map[float64]string{0: "0 %", 0.001: "<1 %", 0.276: "28 %"} {
		if got := roundPercent(share); got != want {
			t.Errorf("%v: %q; want %q", share, got, want)
		}
	}
}

// TestBinaryTicks: of bytes, ticks are numbers that people know.
func TestBinaryTicks(t *testing.T) {
	a := Axis{Binary: true, Format: quantity.Bytes[float64]}
	for _, c := range []struct {
		hi   float64
		want string
	}{
		{3 << 30, "0 B, 512 MiB, 1 GiB, 1.5 GiB, 2 GiB, 2.5 GiB, 3 GiB"},
		{700e6, "0 B, 128 MiB, 256 MiB, 384 MiB, 512 MiB, 640 MiB, 768 MiB"},
		{1 << 20, "0 B, 256 KiB, 512 KiB, 768 KiB, 1 MiB"},
		{6, "0 B, 1 B, 2 B, 3 B, 4 B, 5 B, 6 B"},
	} {
		_, ticks := a.resolve(span{0, c.hi, true}, 0, 700, 100, true)
		labels := make([]string, len(ticks))
		for i, tick := range ticks {
			labels[i] = tick.label
		}
		if got := strings.Join(labels, ", "); got != c.want {
			t.Errorf("up to %v: %s; want %s", c.hi, got, c.want)
		}
	}
}

// The palette: each colour has a contrast of 3 to 1 with its page, and the first six stay apart for people who see no red or no green,
// by lightness or hue.
func TestPalette(t *testing.T) {
	for _, dark := range []bool{false, true} {
		page := linear(t, surfaces[0].light)
		if dark {
			page = linear(t, surfaces[0].dark)
		}
		var colors [][3]float64
		for i, p := range palette {
			hex := p.light
			if dark {
				hex = p.dark
			}
			c := linear(t, hex)
			colors = append(colors, c)
			if r := contrast(c, page); r < 3 {
				t.Errorf("hue %d, dark %v: contrast %.2f with the page", i+1, dark, r)
			}
		}
		for name, m := range blindness {
			for i := range 6 {
				for j := range i {
					if d := distance(m.see(colors[i]), m.see(colors[j])); d < 0.09 {
						t.Errorf("dark %v, %s: hues %d and %d are %.3f apart", dark, name, j+1, i+1, d)
					}
				}
			}
		}
	}
}

type matrix [3][3]float64

func (m matrix) see(c [3]float64) (out [3]float64) {
	for i := range 3 {
		for j := range 3 {
			out[i] += m[i][j] * c[j]
		}
		out[i] = min(max(out[i], 0), 1)
	}
	return out
}

// blindness are projections of linear RGB (Viénot, Brettel and Mollon 1999).
var blindness = map[string]matrix{
	"none":         {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.11238, 0.88762, 0}, {0.11238, 0.88762, 0}, {0.00401, -0.00401, 1}},
	"deuteranopia": {{0.29275, 0.70725, 0}, {0.29275, 0.70725, 0}, {-0.02234, 0.02234, 1}},
}

func linear(t *testing.T, hex string) (c [3]float64) {
	for i := range 3 {
		var v int
		for _, d := range hex[1+2*i : 3+2*i] {
			switch {
			case d >= '0' && d <= '9':
				v = v*16 + int(d-'0')
			case d >= 'a' && d <= 'f':
				v = v*16 + int(d-'a') + 10
			default:
				t.Fatalf("%s is no colour", hex)
			}
		}
		x := float64(v) / 255
		if x <= 0.04045 {
			c[i] = x / 12.92
		} else {
			c[i] = math.Pow((x+0.055)/1.055, 2.4)
		}
	}
	return c
}

func contrast(a, b [3]float64) float64 {
	light := func(c [3]float64) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	x, y := light(a), light(b)
	return max(x, y) / min(x, y)
}

// distance is Euclidean in OKLab (Ottosson 2020); 0.02 is just to be seen side by side.
func distance(a, b [3]float64) float64 {
	lab := func(c [3]float64) [3]float64 {
		l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
		m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
		s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
		return [3]float64{
			0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
			1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
			0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
		}
	}
	x, y := lab(a), lab(b)
	return math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2]))
}

// TestGolden compares one chart of each kind with the file that was looked at.
func TestGolden(t *testing.T) {
	for name, c := range map[string]Chart{
		"lines": Lines{
			Title: "Loss", X: Axis{Label: "Time", Unit: "s"}, Y: Axis{Label: "Loss", Log: true},
			Series: []Series{
				{Name: "local", Points: []Point{{0, 2, 1.9, 2.1}, {1, 1, 0.9, 1.1}, {2, 0.5, 0.45, 0.55}}, Band: true},
				{Name: "server <SSP 3>", Points: []Point{{0, 2, 0, 0}, {1, math.NaN(), 0, 0}, {2, 0.3, 0.2, 0.4}}},
			},
			YMarks: []Mark{{0.4, "target"}},
		},
		"bars": Bars{
			Title: "Speed", Value: Axis{Unit: "samples/s"}, Series: []string{"here", "published"},
			Groups: []Group{
				{Label: "local", Bars: []Bar{{Value: 100, Lo: 90, Hi: 120}, {Series: 1, Value: 20, Outline: true}}},
				{Label: "Spark & co", Note: "full batch", Bars: []Bar{{Missing: "not installed"}}},
			},
			Marks: []Mark{{80, "goal"}},
		},
		"stack": Stack{
			Title: "Phases", Share: true, Parts: []Part{{Name: "load"}, {Name: "compute", Flat: true}},
			Rows: []StackRow{{Label: "local", Values: []float64{1, 3}}, {Label: "peer", Missing: "not measured"}},
		},
		"histogram": Histogram{
			Title: "Staleness", Whole: true, X: Axis{Label: "Clocks"},
			Panels: []Panel{{Label: "SSP 1", Bins: []Bin{{Lo: 0, Count: 3}, {Lo: 1, Count: 1}}, Marks: []Mark{{1, "bound"}}}},
		},
		"waterfall": Waterfall{
			Title: "Gap", Value: Axis{Log: true, Format: quantity.Seconds}, HigherWorse: true,
			Steps: []Level{{Label: "shipped", Value: 160, Lo: 150, Hi: 170}, {Label: "tuned", Value: 80}, {Label: "twin", Missing: "no twin yet"}, {Label: "best", Value: 90}},
		},
		"scaling": Scaling{
			Title: "Scaling", X: Axis{Label: "Workers"},
			Series: []Series{{Name: "allreduce", Points: []Point{{X: 1, Y: 10}, {X: 2, Y: 19, Lo: 18, Hi: 20}, {X: 4, Y: 30}}}},
		},
	} {
		for _, f := range []Frame{{ID: name, Width: 720}, {ID: name, Width: 380}, {ID: name, Width: 720, Standalone: true}} {
			file := filepath.Join("testdata", name+".svg")
			switch {
			case f.Width == 380:
				file = filepath.Join("testdata", name+"-narrow.svg")
			case f.Standalone && name != "waterfall":
				continue // one is enough
			case f.Standalone:
				file = filepath.Join("testdata", name+"-standalone.svg")
			}
			got, err := c.Draw(f)
			if err != nil {
				t.Fatal(err)
			}
			checkSVG(t, got)
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != got {
				t.Errorf("%s is not what is drawn now; look at it, and run with -update", file)
			}
		}
	}
}
