package svg

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bars is a chart of horizontal bars in groups, with intervals as whiskers. On a logarithmic axis, which has no zero that a bar could
// begin at, values are dots.
type Bars struct {
	Title, Desc string
	Value       Axis
	Series      []string // names of the bars of a group, for the legend; nil or one: no legend
	Hues        []int    // of the series; nil: by place
	Groups      []Group
	Marks       []Mark // such as the target, or 1 × where bars are ratios
}

// A Group is a row of the chart: one bar, or one for each series.
type Group struct {
	Label string
	Note  string // under or behind the label, in small: a condition, a unit
	Bars  []Bar
}

// A Bar is a value with its interval, which Lo and Hi both 0 leave out.
type Bar struct {
	Series        int // index of its name and hue
	Value, Lo, Hi float64
	Text          string // beside the bar; empty: the value
	Missing       string // why there is no value; written where the bar would be. A value that is not finite needs none
	Outline       bool   // drawn empty: published, predicted, of other hardware
	Hue           int    // of this bar alone; 0: the series'
}

// Draw implements Chart.
func (b Bars) Draw(f Frame) (string, error) {
	if err := b.validate(); err != nil {
		return "", err
	}
	return draw(f, b.Title, b.describe(), func(c *canvas) (float64, error) { return b.layout(c) })
}

func (b Bars) validate() error {
	for _, g := range b.Groups {
		for _, bar := range g.Bars {
			if bar.Series < 0 || len(b.Series) > 0 && bar.Series >= len(b.Series) {
				return fmt.Errorf("svg: bars %q: %q has a bar of series %d; there are %d", b.Title, g.Label, bar.Series, len(b.Series))
			}
		}
	}
	return nil
}

func (b Bars) describe() string {
	if b.Desc != "" {
		return b.Desc
	}
	var parts []string
	for _, g := range b.Groups {
		var values []string
		for _, bar := range g.Bars {
			s := b.words(bar)
			if len(b.Series) > 1 {
				s = b.Series[bar.Series] + " " + s
			}
			values = append(values, s)
		}
		parts = append(parts, g.Label+": "+strings.Join(values, ", "))
	}
	return "Bars of " + nonEmpty(b.Value.title(), "values") + ". " + strings.Join(parts, "; ") + "."
}

// words is what stands beside a bar.
func (b Bars) words(bar Bar) string {
	switch {
	case bar.Missing != "":
		return bar.Missing
	case !b.Value.has(bar.Value):
		return "not measured"
	case bar.Text != "":
		return bar.Text
	}
	return b.Value.text(bar.Value)
}

func (b Bars) shows(bar Bar) bool { return bar.Missing == "" && b.Value.has(bar.Value) }

// rows is how the labels of a chart of rows stand: beside the rows, or above them where the chart is narrow.
type rows struct {
	left  float64 // where the plot begins
	room  float64 // of the labels beside the rows
	above bool
}

func (c *canvas) rows(labels []string) rows {
	widest := 0.0
	for _, l := range labels {
		widest = max(widest, textWidth(l, fontSize))
	}
	if c.w < narrowBelow {
		return rows{left: 2, above: true}
	}
	room := min(widest, c.w*0.36)
	return rows{left: room + 10, room: room}
}

// label writes a row's label and note, and returns the y at which the row's bars begin.
func (c *canvas) label(r rows, y, height float64, label, note string) float64 {
	if r.above {
		room := c.w - r.left
		c.fitted("halo", start, r.left, y+11, room, fontSize, label)
		if used := textWidth(label, fontSize) + 8; note != "" && (used+textWidth(note, smallSize) < room || used < room-90) {
			c.fitted("l halo", start, r.left+used, y+11, room-used, smallSize, note)
		}
		return y + 17
	}
	at := y + height/2 + 4
	if note != "" {
		at -= 6
		c.fitted("l", end, r.room, at+13, r.room, smallSize, note)
	}
	c.fitted("", end, r.room, at, r.room, fontSize, label)
	return y
}

func (b Bars) layout(c *canvas) (float64, error) {
	var s span
	var labels []string
	right := 8.0
	for _, g := range b.Groups {
		labels = append(labels, g.Label)
		for _, bar := range g.Bars {
			if !b.shows(bar) {
				continue
			}
			s.add(bar.Value)
			if lo, hi, ok := b.Value.interval(bar.Value, bar.Lo, bar.Hi); ok {
				s.add(lo)
				s.add(hi)
			}
			right = max(right, textWidth(b.words(bar), smallSize)+10)
		}
	}
	if !s.any {
		return 0, nothing("bar chart", b.Title)
	}
	if !b.Value.Log {
		s.add(0)
	}
	for _, m := range b.Marks {
		if b.Value.has(m.At) {
			s.add(m.At)
		}
	}
	r := c.rows(labels)
	right = min(right, c.w*0.3)
	y := 2.0
	if len(b.Series) > 1 {
		y = c.legend(b.keys(), 0, y, c.w) + 2
	}
	if len(b.Marks) > 0 {
		y += lineHeight
	}
	p := plot{left: r.left, right: c.w - right, top: y}
	var ticks []tick
	p.x, ticks = b.Value.resolve(s, p.left, p.right, 76, true)
	p.bottom = p.top
	for _, g := range b.Groups {
		p.bottom += g.height(r)
	}
	for _, t := range ticks {
		c.line("g", p.x.at(t.at), p.top, p.x.at(t.at), p.bottom)
	}
	if !b.Value.Log {
		c.line("a", p.x.at(0), p.top, p.x.at(0), p.bottom)
	}
	c.markLines(p, b.Value, b.Marks) // below the bars, and below the words, whose rim keeps them clear
	for _, g := range b.Groups {
		b.group(c, p, r, y, g)
		y += g.height(r)
	}
	p.below(c, ticks, b.Value.title())
	if b.Value.title() == "" {
		return p.bottom + 22, nil
	}
	return p.bottom + 38, nil
}

// markLines draws references across rows, with their names above.
func (c *canvas) markLines(p plot, a Axis, marks []Mark) {
	free := -1e6
	for _, m := range marks {
		if !a.has(m.At) {
			continue
		}
		x := p.x.at(m.At)
		c.line("r", x, p.top-3, x, p.bottom)
		w := textWidth(m.Label, smallSize)
		from := min(max(x-w/2, 0), max(c.w-w, 0))
		if from > free+6 {
			c.fitted("l", start, from, p.top-7, c.w, smallSize, m.Label)
			free = from + w
		}
	}
}

// pitch is the distance between the bars of a group.
func (g Group) pitch() float64 {
	if len(g.Bars) <= 1 {
		return 16
	}
	return 14
}

func (g Group) height(r rows) float64 {
	h := g.pitch()*float64(max(len(g.Bars), 1)) + 10
	switch {
	case r.above:
		return h + 17
	case g.Note != "":
		return max(h, 34)
	}
	return h
}

func (b Bars) group(c *canvas, p plot, r rows, y float64, g Group) {
	y = c.label(r, y, g.height(r), g.Label, g.Note)
	full := g.height(r)
	if r.above {
		full -= 17
	}
	pitch := g.pitch()
	y += (full - pitch*float64(len(g.Bars))) / 2
	for _, bar := range g.Bars {
		b.bar(c, p, y, pitch-2, g.Label, bar)
		y += pitch
	}
}

func (b Bars) bar(c *canvas, p plot, y, thick float64, label string, bar Bar) {
	at := y + thick/2
	if !b.shows(bar) {
		c.fitted("m", start, p.left+5, at+4, c.w-p.left-5, smallSize, b.words(bar))
		return
	}
	h := b.hue(bar)
	x := p.x.at(bar.Value)
	title := label + ": " + b.words(bar)
	if len(b.Series) > 1 {
		title = label + ", " + b.Series[bar.Series] + ": " + b.words(bar)
	}
	lo, hi, interval := b.Value.interval(bar.Value, bar.Lo, bar.Hi)
	if interval {
		title += fmt.Sprintf(" (%s to %s)", b.Value.text(lo), b.Value.text(hi))
	}
	reach := x
	if b.Value.Log {
		c.line("g", p.left, at, x, at)
	} else {
		zero := p.x.at(0)
		class := "f" + strconv.Itoa(h)
		from, width := min(zero, x), max(x-zero, zero-x)
		if bar.Outline {
			class = "o" + strconv.Itoa(h)
			c.rect(class, "", from+0.75, y+0.75, max(width-1.5, 1), thick-1.5, title)
		} else {
			c.rect(class, "", from, y, max(width, 1), thick, title)
		}
		reach = max(x, zero)
	}
	if interval {
		a, z := p.x.at(lo), p.x.at(hi)
		reach = max(reach, z)
		c.across(a, z, at)
	}
	if b.Value.Log {
		if bar.Outline {
			c.b.WriteString(`<circle class="o` + strconv.Itoa(h) + `" cx="` + c.num(x) + `" cy="` + c.num(at) + `" r="4"`)
			c.closeWith("circle", title)
		} else {
			c.marker(h, bar.Series, x, at, title)
		}
		reach += 5
	}
	c.fitted("l halo", start, reach+5, at+4, c.w-reach-5, smallSize, b.words(bar))
}

// across draws a horizontal whisker, with a rim in the page's colour where it lies on a bar.
func (c *canvas) across(from, to, y float64) {
	d := "M" + c.num(from) + "," + c.num(y-3) + "v6M" + c.num(from) + "," + c.num(y) + "H" + c.num(to) + "M" + c.num(to) + "," + c.num(y-3) + "v6"
	c.path("u", d)
	c.path("w", d)
}

func (b Bars) hue(bar Bar) int {
	if bar.Hue != 0 {
		return hue(bar.Hue, 0)
	}
	given := 0
	if bar.Series < len(b.Hues) {
		given = b.Hues[bar.Series]
	}
	return hue(given, bar.Series)
}

func (b Bars) keys() []key {
	var keys []key
	for i, name := range b.Series {
		outline := true
		for _, g := range b.Groups {
			if slices.ContainsFunc(g.Bars, func(bar Bar) bool { return bar.Series == i && !bar.Outline }) {
				outline = false
			}
		}
		h := b.hue(Bar{Series: i})
		keys = append(keys, key{name, func(c *canvas, x, y float64) {
			switch {
			case b.Value.Log:
				c.marker(h, i, x+sampleWidth/2, y, "")
			case outline:
				c.rect("o"+strconv.Itoa(h), "", x+6, y-5, 14, 10, "")
			default:
				c.rect("f"+strconv.Itoa(h), "", x+6, y-5, 14, 10, "")
			}
		}})
	}
	return keys
}
