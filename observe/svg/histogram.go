package svg

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// Histogram is a chart of how often values occur, one panel under the other with common axes: how stale reads were, under each bound.
// Heights are shares of the panel's count.
type Histogram struct {
	Title, Desc string
	X           Axis
	Panels      []Panel
	Whole       bool // values are whole numbers, each with a bin of its own
}

// A Panel is one histogram.
type Panel struct {
	Label, Note string
	Bins        []Bin // in ascending order
	Marks       []Mark
	Hue         int
	Missing     string // why there are no values
}

// A Bin counts the values from Lo to below Hi; of a chart of whole numbers, those that are Lo.
type Bin struct{ Lo, Hi, Count float64 }

// Draw implements Chart.
func (h Histogram) Draw(f Frame) (string, error) {
	return draw(f, h.Title, h.describe(), func(c *canvas) (float64, error) { return h.layout(c) })
}

func (h Histogram) describe() string {
	if h.Desc != "" {
		return h.Desc
	}
	var parts []string
	for _, p := range h.Panels {
		total, most := h.total(p), 0
		if total == 0 {
			parts = append(parts, p.Label+": "+nonEmpty(p.Missing, "not measured"))
			continue
		}
		for i, b := range p.Bins {
			if h.shows(b) && (!h.shows(p.Bins[most]) || b.Count > p.Bins[most].Count) {
				most = i
			}
		}
		parts = append(parts, fmt.Sprintf("%s: most often %s, %s of all", p.Label, h.X.text(p.Bins[most].Lo), quantity.Percent(p.Bins[most].Count/total)))
	}
	return "Histograms of " + nonEmpty(h.X.title(), "values") + ". " + strings.Join(parts, "; ") + "."
}

func (h Histogram) shows(b Bin) bool {
	if !h.X.has(b.Lo) || !Plottable(b.Count) || b.Count <= 0 {
		return false
	}
	if h.Whole {
		return math.Abs(b.Lo) < 1<<52 // a float64 has a place for every half below it
	}
	return h.X.has(b.Hi) && b.Hi > b.Lo
}

// total returns the count of a panel; 0 where there is nothing to show.
func (h Histogram) total(p Panel) float64 {
	if p.Missing != "" {
		return 0
	}
	sum := 0.0
	for _, b := range p.Bins {
		if h.shows(b) {
			sum += b.Count
		}
	}
	if !Plottable(sum) {
		return 0
	}
	return sum
}

const panelHeight = 54.0

func (h Histogram) layout(c *canvas) (float64, error) {
	var xs span
	highest := 0.0
	labels := make([]string, 0, len(h.Panels))
	for _, p := range h.Panels {
		labels = append(labels, p.Label, p.Note)
		total := h.total(p)
		if total == 0 {
			continue
		}
		for _, b := range p.Bins {
			if !h.shows(b) {
				continue
			}
			highest = max(highest, b.Count/total)
			xs.add(b.Lo)
			if !h.Whole {
				xs.add(b.Hi)
			}
		}
		for _, m := range p.Marks {
			if h.X.has(m.At) {
				xs.add(m.At)
			}
		}
	}
	if !xs.any || highest == 0 {
		return 0, nothing("histogram", h.Title)
	}
	r := c.rows(labels)
	x := h.X
	p := plot{left: r.left, right: c.w - max(10, h.beside(xs.hi))}
	shares := h.Whole && h.widest() < (p.right-p.left)/(xs.hi-xs.lo+1)-6
	if !shares {
		p.left += 34
	}
	if h.Whole {
		x.Log = false
		x.At = wholeTicks(xs, (p.right-p.left)/30)
		xs = span{xs.lo - 0.5, xs.hi + 0.5, true}
	}
	var ticks []tick
	p.x, ticks = x.resolve(xs, p.left, p.right, 76, false)
	y := 16.0
	for i, panel := range h.Panels {
		y = h.panel(c, &p, r, y, highest, i, panel, shares)
	}
	p.below(c, ticks, x.title())
	if x.title() == "" {
		return p.bottom + 22, nil
	}
	return p.bottom + 38, nil
}

// beside is the room that labels of marks at the right end take: there they would else lie on the last bar.
func (h Histogram) beside(end float64) (room float64) {
	for _, p := range h.Panels {
		for _, m := range p.Marks {
			if m.At == end && h.total(p) > 0 {
				room = max(room, textWidth(m.Label, smallSize)+8)
			}
		}
	}
	return room
}

// widest is the width of the longest share above a bar: all bars have theirs, or none has.
func (h Histogram) widest() (w float64) {
	for _, p := range h.Panels {
		total := h.total(p)
		for _, b := range p.Bins {
			if total > 0 && h.shows(b) {
				w = max(w, textWidth(roundPercent(b.Count/total), smallSize))
			}
		}
	}
	return w
}

// wholeTicks returns whole numbers, all of them or every 2nd, 5th, 10th …
func wholeTicks(s span, count float64) []float64 {
	step := max(1, niceStep(max(s.hi-s.lo, 1), max(int(count), 2)))
	var out []float64
	for first := math.Ceil(s.lo / step); len(out) < 1000; {
		v := (first + float64(len(out))) * step
		if v > s.hi {
			break
		}
		out = append(out, v)
	}
	return out
}

func (h Histogram) panel(c *canvas, p *plot, r rows, y, highest float64, place int, panel Panel, shares bool) float64 {
	gap := 26.0
	y = c.label(r, y, panelHeight, panel.Label, panel.Note)
	if r.above && shares {
		y += 14 // for the shares above the bars, clear of the label's descenders
	}
	p.top, p.bottom = y, y+panelHeight
	total := h.total(panel)
	if total == 0 {
		c.fitted("m", start, p.left+5, p.bottom-6, c.w-p.left, smallSize, nonEmpty(panel.Missing, "not measured"))
		c.line("a", p.left, p.bottom, p.right, p.bottom)
		return p.bottom + gap
	}
	c.line("g", p.left, p.top, p.right, p.top)
	if !shares {
		c.text("l", end, p.left-5, p.top+8, roundPercent(highest))
	}
	n := strconv.Itoa(hue(panel.Hue, place))
	for _, b := range panel.Bins {
		if !h.shows(b) {
			continue
		}
		from, to := b.Lo, b.Hi
		if h.Whole {
			from, to = b.Lo-0.4, b.Lo+0.4
		}
		x1, x2 := p.x.at(from), p.x.at(to)
		if !h.Whole && x2-x1 > 3 {
			x1, x2 = x1+0.5, x2-0.5
		}
		high := b.Count / total / highest * panelHeight
		title := panel.Label + ", " + h.X.text(b.Lo) + ": " + quantity.Percent(b.Count/total)
		c.rect("f"+n, "", x1, p.bottom-high, max(x2-x1, 0.75), high, title)
		if shares {
			c.text("l halo", middle, (x1+x2)/2, max(p.bottom-high-4, p.top-4), roundPercent(b.Count/total))
		}
	}
	c.line("a", p.left, p.bottom, p.right, p.bottom)
	for _, m := range panel.Marks {
		if h.X.has(m.At) {
			at := p.x.at(m.At)
			if h.Whole {
				at = p.x.at(m.At + 0.5)
			}
			c.line("r", at, p.top, at, p.bottom)
			w := textWidth(m.Label, smallSize)
			if at+5+w < c.w {
				c.text("l halo", start, at+5, p.top+11, m.Label)
			} else {
				c.text("l halo", end, at-5, p.top+11, m.Label)
			}
		}
	}
	return p.bottom + gap
}
