package svg

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
)

// Stack is a chart of rows that are each split into parts: where the time of a step goes.
type Stack struct {
	Title, Desc string
	Value       Axis
	Parts       []Part
	Rows        []StackRow
	Share       bool // rows are all as long as the chart, and parts are shares
}

// A Part is what every row has some of.
type Part struct {
	Name string
	Hue  int  // see Hues
	Flat bool // without hatching: for the part that the others are seen against
}

// A StackRow is one bar of a Stack.
type StackRow struct {
	Label, Note string
	Values      []float64 // one for each part, ≥ 0; those left out at the end are 0
	Text        string    // behind the bar; empty: the sum, unless the chart shows shares
	Missing     string    // why there are no values
}

// Draw implements Chart.
func (s Stack) Draw(f Frame) (string, error) {
	if err := s.validate(); err != nil {
		return "", err
	}
	return draw(f, s.Title, s.describe(), func(c *canvas) (float64, error) { return s.layout(c) })
}

func (s Stack) validate() error {
	for _, r := range s.Rows {
		if len(r.Values) > len(s.Parts) {
			return fmt.Errorf("svg: stack %q: row %q has %d values for %d parts", s.Title, r.Label, len(r.Values), len(s.Parts))
		}
		for i, v := range r.Values {
			if v < 0 {
				return fmt.Errorf("svg: stack %q: row %q: %s is %g; a part of a whole cannot be negative", s.Title, r.Label, s.Parts[i].Name, v)
			}
		}
	}
	return nil
}

// sum returns the length of a row; 0 where it cannot be drawn.
func (r StackRow) sum() float64 {
	if r.Missing != "" {
		return 0
	}
	sum := 0.0
	for _, v := range r.Values {
		sum += v
	}
	if !Plottable(sum) || sum < smallest {
		return 0
	}
	return sum
}

func (s Stack) describe() string {
	if s.Desc != "" {
		return s.Desc
	}
	var rows []string
	for _, r := range s.Rows {
		sum := r.sum()
		if sum == 0 {
			rows = append(rows, r.Label+": "+nonEmpty(r.Missing, "not measured"))
			continue
		}
		var parts []string
		for i, v := range r.Values {
			if v/sum >= 0.005 {
				parts = append(parts, s.Parts[i].Name+" "+quantity.Percent(v/sum))
			}
		}
		rows = append(rows, r.Label+": "+strings.Join(parts, ", "))
	}
	return "Rows split into parts. " + strings.Join(rows, "; ") + "."
}

func (s Stack) text(r StackRow) string {
	switch {
	case r.Text != "" || s.Share:
		return r.Text
	}
	return s.Value.text(r.sum())
}

const (
	stackThick = 20.0
	stackPitch = 30.0
)

func (s Stack) layout(c *canvas) (float64, error) {
	var extent span
	var labels []string
	right := 14.0
	notes := false
	for _, r := range s.Rows {
		labels = append(labels, r.Label)
		notes = notes || r.Note != ""
		if sum := r.sum(); sum > 0 {
			extent.add(sum)
			right = max(right, textWidth(s.text(r), smallSize)+12)
		}
	}
	if !extent.any {
		return 0, nothing("stack", s.Title)
	}
	used := s.used()
	c.b.WriteString("<defs>\n")
	for i, part := range s.Parts {
		if used[i] {
			hatch := i
			if part.Flat {
				hatch = 0
			}
			c.pattern(strconv.Itoa(i), hue(part.Hue, i), hatch)
		}
	}
	c.b.WriteString("</defs>\n")
	r := c.rows(labels)
	y := c.legend(s.keys(used), 0, 2, c.w) + 2
	value := s.Value
	value.Log = false
	if s.Share {
		extent = span{0, 1, true}
		value.Format = quantity.Percent
	}
	extent.add(0)
	pitch := stackPitch
	if r.above {
		pitch += 17
	} else if notes {
		pitch = 36
	}
	p := plot{left: r.left, right: c.w - min(right, c.w*0.3), top: y, bottom: y + pitch*float64(len(s.Rows))}
	var ticks []tick
	p.x, ticks = value.resolve(extent, p.left, p.right, 76, !s.Share)
	for _, t := range ticks {
		c.line("g", p.x.at(t.at), p.top, p.x.at(t.at), p.bottom)
	}
	c.line("a", p.left, p.top, p.left, p.bottom)
	for _, row := range s.Rows {
		s.row(c, p, r, y, pitch, row)
		y += pitch
	}
	p.below(c, ticks, value.title())
	if value.title() == "" {
		return p.bottom + 22, nil
	}
	return p.bottom + 38, nil
}

func (s Stack) row(c *canvas, p plot, r rows, y, pitch float64, row StackRow) {
	y = c.label(r, y, pitch, row.Label, row.Note)
	if r.above {
		pitch -= 17
	}
	y += (pitch - stackThick) / 2
	sum := row.sum()
	if sum == 0 {
		c.fitted("m", start, p.left+5, y+stackThick/2+4, c.w-p.left-5, smallSize, nonEmpty(row.Missing, "not measured"))
		return
	}
	scale := 1.0
	if s.Share {
		scale = 1 / sum
	}
	at := 0.0
	for i, v := range row.Values {
		if v == 0 {
			continue
		}
		from, to := p.x.at(at*scale), p.x.at((at+v)*scale)
		at += v
		if to-from < 0.05 {
			continue // less than a screen shows; the description has it
		}
		title := row.Label + ", " + s.Parts[i].Name + ": " + quantity.Percent(v/sum)
		if !s.Share {
			title += ", " + s.Value.text(v)
		}
		gap := 0.0
		if to-from > 3 {
			gap = 0.5
		}
		c.rect("", "url(#"+c.id+"-"+strconv.Itoa(i)+")", from+gap, y, to-from-2*gap, stackThick, title)
		if words := roundPercent(v / sum); textWidth(words, smallSize) < to-from-8 && v/sum >= 0.05 {
			c.text("v e"+strconv.Itoa(hue(s.Parts[i].Hue, i)), middle, (from+to)/2, y+stackThick/2+4, words)
		}
	}
	c.fitted("l", start, p.x.at(at*scale)+6, y+stackThick/2+4, c.w-p.x.at(at*scale)-6, smallSize, s.text(row))
}

// roundPercent writes a share in whole percent, where there is little room.
func roundPercent(share float64) string {
	if share > 0 && share < 0.005 {
		return "<1 %"
	}
	return quantity.Percent(math.Round(share*100) / 100)
}

// used tells which parts any row has: the others need no place in the legend.
func (s Stack) used() []bool {
	used := make([]bool, len(s.Parts))
	for _, r := range s.Rows {
		if r.sum() == 0 {
			continue
		}
		for i, v := range r.Values {
			used[i] = used[i] || v > 0
		}
	}
	return used
}

func (s Stack) keys(used []bool) []key {
	var keys []key
	for i, part := range s.Parts {
		if used[i] {
			keys = append(keys, key{part.Name, func(c *canvas, x, y float64) {
				c.rect("", "url(#"+c.id+"-"+strconv.Itoa(i)+")", x+2, y-6, 20, 12, "")
			}})
		}
	}
	return keys
}
