package svg

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Lines is a chart of values over values: loss against time, speed against workers.
type Lines struct {
	Title, Desc string // for those who cannot see it; an empty Desc is made from the data
	X, Y        Axis
	Series      []Series
	XMarks      []Mark // vertical lines
	YMarks      []Mark // horizontal lines, such as a target
	Height      int    // of the plot in pixels; 0: by the width
}

// A Series is one line. A point with a value that the axes cannot show is a gap.
type Series struct {
	Name    string
	Points  []Point // in the order in which they are joined
	Hue     int     // see Hues
	Dash    Dash
	Band    bool // intervals as a band along the line; else as whiskers at the points
	Thin    bool // drawn back: an ideal, another repeat
	NoName  bool // neither legend nor label: one of several lines that another names
	Squares bool // a value holds until the next point: steps, not slopes

	Measured bool // though it is dashed: in a Scaling it has an ideal, as solid lines have
}

// A Point is a value of a series with its interval; Lo and Hi both 0 mean that it has none.
type Point struct{ X, Y, Lo, Hi float64 }

// A Dash says what sort of a line it is.
type Dash uint8

const (
	Solid  Dash = iota // measured
	Dashed             // predicted, published; or measured, with a reason to doubt it
	Dotted             // ideal
)

// Draw implements Chart.
func (l Lines) Draw(f Frame) (string, error) {
	return draw(f, l.Title, l.describe(), func(c *canvas) (float64, error) { return l.layout(c) })
}

func (l Lines) describe() string {
	if l.Desc != "" {
		return l.Desc
	}
	var parts []string
	for _, s := range l.Series {
		if i := slices.IndexFunc(s.Points, l.shows); i >= 0 && !s.NoName {
			last := s.Points[i]
			for _, p := range s.Points {
				if l.shows(p) {
					last = p
				}
			}
			parts = append(parts, fmt.Sprintf("%s from %s to %s", s.Name, l.Y.text(s.Points[i].Y), l.Y.text(last.Y)))
		}
	}
	return "Lines of " + nonEmpty(l.Y.title(), "values") + " against " + nonEmpty(l.X.title(), "values") + ": " + strings.Join(parts, "; ") + "."
}

func nonEmpty(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (l Lines) shows(p Point) bool { return l.X.has(p.X) && l.Y.has(p.Y) }

func (l Lines) spans() (x, y span) {
	for _, s := range l.Series {
		for _, p := range s.Points {
			if !l.shows(p) {
				continue
			}
			x.add(p.X)
			y.add(p.Y)
			if lo, hi, ok := l.Y.interval(p.Y, p.Lo, p.Hi); ok {
				y.add(lo)
				y.add(hi)
			}
		}
	}
	if !x.any {
		return x, y
	}
	for _, m := range l.XMarks {
		if l.X.has(m.At) {
			x.add(m.At)
		}
	}
	for _, m := range l.YMarks {
		if l.Y.has(m.At) {
			y.add(m.At)
		}
	}
	return x, y
}

func (l Lines) layout(c *canvas) (float64, error) {
	xs, ys := l.spans()
	if !xs.any {
		return 0, nothing("line chart", l.Title)
	}
	named := 0
	widest := 0.0
	for _, s := range l.Series {
		if !s.NoName && slices.ContainsFunc(s.Points, l.shows) {
			named++
			widest = max(widest, textWidth(s.Name, fontSize))
		}
	}
	for _, m := range l.YMarks {
		widest = max(widest, textWidth(m.Label, smallSize))
	}
	direct := c.w >= narrowBelow && named <= 10 && widest <= c.w*0.3 && (named+len(l.YMarks) < 2 || l.reach(xs))
	right := 12.0
	if direct && widest > 0 {
		right = widest + 16
	}
	top := 2.0
	if !direct && named+len(l.YMarks) > 1 {
		top = c.legend(l.keys(), 0, top, c.w)
	}
	height := float64(l.Height)
	if height <= 0 {
		height = min(max((c.w-right)*0.5, 180), 320)
	}
	height = min(height, 2000)
	c.text("l", start, 0, top+12, l.Y.title())
	top += 22
	if slices.ContainsFunc(l.XMarks, func(m Mark) bool { return m.Label != "" && l.X.has(m.At) }) {
		top += lineHeight
	}
	p := plot{top: top, bottom: top + height, right: c.w - right}
	var yTicks []tick
	p.y, yTicks = l.Y.resolve(ys, p.bottom, p.top, 44, true)
	p.left = gutter(yTicks)
	var xTicks []tick
	p.x, xTicks = l.X.resolve(xs, p.left, p.right, 76, false)

	p.grid(c, xTicks, yTicks, l.X.title())
	l.marks(c, p)
	for i, s := range l.Series {
		if s.Band {
			l.band(c, p, s, hue(s.Hue, i))
		}
	}
	for i, s := range l.Series {
		l.line(c, p, l.place(i), s)
	}
	if direct {
		l.names(c, p)
	}
	bottom := p.bottom + 22
	if l.X.title() != "" {
		bottom += lineHeight
	}
	return bottom, nil
}

// reach reports whether all lines end near the right edge, where their names would be: from the end of a shorter one something would have to lead
// through the plot to its name.
func (l Lines) reach(xs span) bool {
	x, _ := l.X.resolve(xs, 0, 1, 1, false)
	furthest := map[string]float64{}
	for _, s := range l.Series {
		for _, p := range s.Points {
			if l.shows(p) {
				furthest[s.Name] = max(furthest[s.Name], x.at(p.X))
			}
		}
	}
	for _, s := range l.Series {
		if at, ok := furthest[s.Name]; ok && at < 0.95 && !s.NoName && s.Name != "" {
			return false
		}
	}
	return true
}

// A plot is the rectangle that data is drawn in, with its scales.
type plot struct {
	left, right, top, bottom float64
	x, y                     scale
}

// gutter is the room that labels left of a plot take.
func gutter(ticks []tick) float64 {
	w := 0.0
	for _, t := range ticks {
		w = max(w, textWidth(t.label, smallSize))
	}
	return w + 10
}

// grid draws horizontal lines, the axis below, and the labels of both.
func (p plot) grid(c *canvas, xTicks, yTicks []tick, xTitle string) {
	for _, t := range yTicks {
		y := p.y.at(t.at)
		c.line("g", p.left, y, p.right, y)
		c.text("l", end, p.left-7, y+4, t.label)
	}
	c.line("a", p.left, p.bottom, p.right, p.bottom)
	p.below(c, xTicks, xTitle)
}

// below draws ticks and title under a plot. Labels that would touch the one before are left out.
func (p plot) below(c *canvas, ticks []tick, title string) {
	free := math.Inf(-1)
	for _, t := range ticks {
		x := p.x.at(t.at)
		c.line("a", x, p.bottom, x, p.bottom+4)
		half := textWidth(t.label, smallSize) / 2
		at := min(max(x, half), c.w-half)
		if at-half < free+6 {
			continue
		}
		c.text("l", middle, at, p.bottom+17, t.label)
		free = at + half
	}
	if title != "" {
		c.fitted("l", middle, (p.left+p.right)/2, p.bottom+34, p.right-p.left+p.left, smallSize, title)
	}
}

func (l Lines) marks(c *canvas, p plot) {
	free := math.Inf(-1)
	for _, m := range l.XMarks {
		if !l.X.has(m.At) {
			continue
		}
		x := p.x.at(m.At)
		c.line("r", x, p.top-4, x, p.bottom)
		w := textWidth(m.Label, smallSize)
		from := min(max(x-w/2, 0), c.w-w)
		if m.Label != "" && from > free+6 {
			c.text("l", start, from, p.top-8, m.Label)
			free = from + w
		}
	}
	for _, m := range l.YMarks {
		if l.Y.has(m.At) {
			y := p.y.at(m.At)
			c.line("r", p.left, y, p.right, y)
		}
	}
}

func (l Lines) band(c *canvas, p plot, s Series, h int) {
	var upper, lower []Point
	flush := func() {
		if len(upper) > 1 {
			upper, lower = thin(p.x, upper), thin(p.x, lower)
			slices.Reverse(lower)
			c.path("b"+strconv.Itoa(h), c.through(p, append(upper, lower...), false)+"Z")
		}
		upper, lower = nil, nil
	}
	for _, pt := range s.Points {
		lo, hi, ok := l.Y.interval(pt.Y, pt.Lo, pt.Hi)
		if !ok || !l.shows(pt) {
			flush()
			continue
		}
		upper = append(upper, Point{X: pt.X, Y: hi})
		lower = append(lower, Point{X: pt.X, Y: lo})
	}
	flush()
}

// place is the index of a series, or of the first of its name, which it continues where it has no name in the legend: so it has its markers.
func (l Lines) place(i int) int {
	if s := l.Series[i]; s.NoName && s.Name != "" {
		return slices.IndexFunc(l.Series, func(other Series) bool { return other.Name == s.Name })
	}
	return i
}

// line draws the stretches of a series between its gaps, its whiskers, and its markers.
func (l Lines) line(c *canvas, p plot, place int, s Series) {
	h := hue(s.Hue, place)
	dash := s.Dash
	if s.Hue == 0 && dash == Solid && place >= Hues {
		dash = Dash(place / Hues % 4) // the colours begin again
	}
	class := "s" + strconv.Itoa(h) + dash.class()
	if s.Thin {
		class += " thin"
	}
	var stretch []Point
	flush := func() {
		if len(stretch) > 1 {
			c.path(class, c.through(p, thin(p.x, stretch), s.Squares))
		} else if len(stretch) == 1 && s.Thin {
			c.marker(h, place, p.x.at(stretch[0].X), p.y.at(stretch[0].Y), "")
		}
		stretch = nil
	}
	shown := 0
	for _, pt := range s.Points {
		if !l.shows(pt) {
			flush()
			continue
		}
		shown++
		stretch = append(stretch, pt)
	}
	flush()
	if s.Thin {
		return
	}
	// Few points are all marked; of many, one now and then, at another place for each line.
	next := math.Inf(-1)
	sparse := float64(shown) > (p.right-p.left)/26
	if sparse {
		next = p.left + float64(place%5)*18 + 10
	}
	for _, pt := range s.Points {
		if !l.shows(pt) {
			continue
		}
		x, y := p.x.at(pt.X), p.y.at(pt.Y)
		if lo, hi, ok := l.Y.interval(pt.Y, pt.Lo, pt.Hi); ok && !s.Band && shown <= 200 {
			c.whisker("s"+strconv.Itoa(h), x, p.y.at(lo), p.y.at(hi))
		}
		if !sparse || x >= next {
			title := ""
			if !sparse {
				title = s.Name + ": " + l.Y.text(pt.Y) + " at " + l.X.text(pt.X)
			}
			c.marker(h, place, x, y, title)
			if sparse {
				next = x + 90
			}
		}
	}
}

func (d Dash) class() string {
	if d == Solid || d > Dotted {
		return ""
	}
	return " d" + strconv.Itoa(int(d))
}

func (c *canvas) whisker(class string, x, y1, y2 float64) {
	c.path(class, "M"+c.num(x-3)+","+c.num(y1)+"h6M"+c.num(x)+","+c.num(y1)+"V"+c.num(y2)+"M"+c.num(x-3)+","+c.num(y2)+"h6")
}

// through returns the path that joins points.
func (c *canvas) through(p plot, points []Point, squares bool) string {
	var b strings.Builder
	for i, pt := range points {
		x, y := c.num(p.x.at(pt.X)), c.num(p.y.at(pt.Y))
		switch {
		case i == 0:
			b.WriteString("M" + x + "," + y)
		case squares:
			b.WriteString("H" + x + "V" + y)
		default:
			b.WriteString("L" + x + "," + y)
		}
	}
	return b.String()
}

// bucket is the width in pixels within which a line keeps no more than its first, lowest, highest and last point.
const bucket = 2

// thin leaves out points that no screen could show: a line of a million points is no longer than one of two thousand, and keeps every
// peak. Points come back in their order.
func thin(x scale, points []Point) []Point {
	if float64(len(points)) <= math.Abs(x.to-x.from)*4/bucket {
		return points
	}
	var out []Point
	for i := 0; i < len(points); {
		column := math.Floor(x.at(points[i].X) / bucket)
		low, high, j := i, i, i
		for ; j < len(points) && math.Floor(x.at(points[j].X)/bucket) == column; j++ {
			if points[j].Y < points[low].Y {
				low = j
			}
			if points[j].Y > points[high].Y {
				high = j
			}
		}
		last := -1
		for _, k := range []int{i, min(low, high), max(low, high), j - 1} {
			if k != last {
				out = append(out, points[k])
			}
			last = k
		}
		i = j
	}
	return out
}
