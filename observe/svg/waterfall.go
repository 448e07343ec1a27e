package svg

import (
	"fmt"
	"math"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// Waterfall shows how one value becomes another, step by step: where a gap goes. Each row is the level after its step; its bar runs from
// the level before. On a logarithmic axis, which Value.Log asks for, equal factors are equally long.
type Waterfall struct {
	Title, Desc string
	Value       Axis
	Steps       []Level
	HigherWorse bool // a growing value is a loss, as of a time: bars that shorten it are drawn as gains
}

// A Level is a value on the way, with its interval (Lo and Hi both 0: none). The first is where the way begins.
type Level struct {
	Label         string
	Note          string // what changed, or the kind of the change: "implementation"
	Value, Lo, Hi float64
	Text          string // beside it; empty: the value, and the factor from the level before
	Missing       string // why it is not known; the next bar then runs from the last known level
}

// Draw implements Chart.
func (w Waterfall) Draw(f Frame) (string, error) {
	return draw(f, w.Title, w.describe(), func(c *canvas) (float64, error) { return w.layout(c) })
}

func (w Waterfall) shows(l Level) bool { return l.Missing == "" && w.Value.has(l.Value) }

func (w Waterfall) describe() string {
	if w.Desc != "" {
		return w.Desc
	}
	var parts []string
	before := math.NaN()
	for _, l := range w.Steps {
		parts = append(parts, l.Label+" "+w.words(l, before))
		if w.shows(l) {
			before = l.Value
		}
	}
	return "Steps of " + nonEmpty(w.Value.title(), "a value") + ": " + strings.Join(parts, "; ") + "."
}

// words is what stands beside a level: its value, and the factor from the one before.
func (w Waterfall) words(l Level, before float64) string {
	switch {
	case l.Missing != "":
		return l.Missing
	case !w.shows(l):
		return "not measured"
	case l.Text != "":
		return l.Text
	}
	s := w.Value.text(l.Value)
	if before > 0 && l.Value > 0 {
		s += w.factor(before, l.Value)
	}
	return s
}

func (w Waterfall) factor(before, after float64) string {
	ratio := after / before
	gain := (ratio < 1) == w.HigherWorse
	if ratio < 1 {
		ratio = 1 / ratio
	}
	if ratio < 1.005 {
		return ", the same"
	}
	if w.HigherWorse {
		if gain {
			return ", " + quantity.Ratio(ratio) + " faster"
		}
		return ", " + quantity.Ratio(ratio) + " slower"
	}
	if gain {
		return ", " + quantity.Ratio(ratio) + " more"
	}
	return ", " + quantity.Ratio(ratio) + " less"
}

func (w Waterfall) layout(c *canvas) (float64, error) {
	var s span
	var labels []string
	for _, l := range w.Steps {
		labels = append(labels, l.Label, l.Note)
		if !w.shows(l) {
			continue
		}
		s.add(l.Value)
		if lo, hi, ok := w.Value.interval(l.Value, l.Lo, l.Hi); ok {
			s.add(lo)
			s.add(hi)
		}
	}
	if !s.any {
		return 0, nothing("waterfall", w.Title)
	}
	right := 8.0
	before := math.NaN()
	for _, l := range w.Steps {
		if w.shows(l) {
			right = max(right, textWidth(w.words(l, before), smallSize)+14)
			before = l.Value
		}
	}
	r := c.rows(labels)
	pitch := 38.0
	if r.above {
		pitch, right = 50, 8 // words go on the label's line
	}
	right = min(right, c.w*0.34)
	p := plot{left: r.left, right: c.w - right, top: 4}
	p.bottom = p.top + pitch*float64(len(w.Steps))
	var ticks []tick
	p.x, ticks = w.Value.resolve(s, p.left+4, p.right, 76, true)
	for _, t := range ticks {
		c.line("g", p.x.at(t.at), p.top, p.x.at(t.at), p.bottom)
	}
	w.steps(c, p, r, pitch)
	c.line("a", p.left, p.bottom, p.right, p.bottom)
	p.below(c, ticks, w.Value.title())
	if w.Value.title() == "" {
		return p.bottom + 22, nil
	}
	return p.bottom + 38, nil
}

func (w Waterfall) steps(c *canvas, p plot, r rows, pitch float64) {
	const thick = 16.0
	before, beforeY := math.NaN(), 0.0
	y := p.top
	for _, l := range w.Steps {
		words := w.words(l, before)
		top := y
		if r.above {
			wide := textWidth(words, smallSize)
			class := "l"
			if !w.shows(l) {
				class = "m"
			}
			c.fitted(class+" halo", end, c.w-2, y+11, c.w*0.6, smallSize, words)
			room := c.w - min(wide, c.w*0.6) - 14
			c.fitted("halo", start, r.left, y+11, room, fontSize, l.Label)
			if used := textWidth(l.Label, fontSize) + 7; used+textWidth(l.Note, smallSize) < room {
				c.text("l halo", start, r.left+used, y+11, l.Note)
			}
			top += 17
		} else {
			c.label(r, y, pitch, l.Label, l.Note)
			top += (pitch - thick) / 2
		}
		at := top + thick/2
		if !w.shows(l) {
			if !r.above {
				c.fitted("m", start, p.left+8, at+4, c.w-p.left-8, smallSize, words)
			}
			y += pitch
			continue
		}
		x := p.x.at(l.Value)
		reach := x
		if !math.IsNaN(before) {
			from := p.x.at(before)
			reach = max(reach, from)
			class := "flat"
			switch {
			case l.Value == before:
			case (l.Value < before) == w.HigherWorse:
				class = "up"
			default:
				class = "down"
			}
			c.line("k", from, beforeY, from, top+thick)
			c.rect(class, "", min(from, x), top, max(math.Abs(x-from), 1), thick, l.Label+": "+words)
		}
		if lo, hi, ok := w.Value.interval(l.Value, l.Lo, l.Hi); ok {
			c.across(p.x.at(lo), p.x.at(hi), at)
			reach = max(reach, p.x.at(hi))
		}
		c.b.WriteString(`<circle class="dot" cx="` + c.num(x) + `" cy="` + c.num(at) + `" r="3.5"`)
		c.closeWith("circle", fmt.Sprintf("%s: %s", l.Label, words))
		if !r.above {
			c.fitted("l halo", start, reach+9, at+4, c.w-reach-9, smallSize, words)
		}
		before, beforeY = l.Value, at
		y += pitch
	}
}
