package svg

import (
	"cmp"
	"slices"
	"strconv"
)

// marker draws the sign of a line's place: a filled shape with a rim in the page's colour.
func (c *canvas) marker(h, place int, x, y float64, title string) {
	class := "f" + strconv.Itoa(h) + " p"
	at := c.num(x) + "," + c.num(y)
	var d string
	switch place % 5 {
	case 0:
		c.b.WriteString(`<circle class="` + class + `" cx="` + c.num(x) + `" cy="` + c.num(y) + `" r="4"`)
		c.closeWith("circle", title)
		return
	case 1:
		d = "M" + at + "m-3.6,-3.6h7.2v7.2h-7.2z"
	case 2:
		d = "M" + at + "m0,-4.6l4.6,8h-9.2z"
	case 3:
		d = "M" + at + "m0,-5l5,5l-5,5l-5,-5z"
	case 4:
		d = "M" + at + "m0,4.6l4.6,-8h-9.2z"
	}
	c.b.WriteString(`<path class="` + class + `" d="` + d + `"`)
	c.closeWith("path", title)
}

// keys are the legend of the lines and of the marks.
func (l Lines) keys() []key {
	var keys []key
	for i, s := range l.Series {
		if s.NoName || !slices.ContainsFunc(s.Points, l.shows) {
			continue
		}
		h := hue(s.Hue, i)
		keys = append(keys, key{s.Name, func(c *canvas, x, y float64) {
			c.line("s"+strconv.Itoa(h)+s.Dash.class(), x, y, x+sampleWidth, y)
			if !s.Thin {
				c.marker(h, i, x+sampleWidth/2, y, "")
			}
		}})
	}
	for _, m := range l.YMarks {
		if m.Label != "" && l.Y.has(m.At) {
			keys = append(keys, key{m.Label, func(c *canvas, x, y float64) { c.line("r", x, y, x+sampleWidth, y) }})
		}
	}
	return keys
}

// A name is a label at the end of a line.
type name struct {
	text, class string
	x, want, y  float64
	size        float64
}

// names writes the lines' names behind their ends, apart from one another; a thin line joins a name that had to move.
func (l Lines) names(c *canvas, p plot) {
	var all []name
	for i, s := range l.Series {
		if s.NoName || s.Name == "" {
			continue
		}
		for _, pt := range slices.Backward(s.Points) {
			if l.shows(pt) {
				y := p.y.at(pt.Y)
				all = append(all, name{s.Name, "f" + strconv.Itoa(hue(s.Hue, i)) + " n", p.x.at(pt.X), y, y, fontSize})
				break
			}
		}
	}
	for _, m := range l.YMarks {
		if m.Label != "" && l.Y.has(m.At) {
			y := p.y.at(m.At)
			all = append(all, name{m.Label, "l", p.right, y, y, smallSize})
		}
	}
	sortNames(all)
	spread(all, p.top, p.bottom, 14)
	for _, n := range all {
		if n.y-n.want > 2 || n.want-n.y > 2 || p.right-n.x > 8 {
			c.line("k", n.x+5, n.want, p.right+7, n.y)
		}
		c.fitted(n.class, start, p.right+10, n.y+4, c.w-p.right-10, n.size, n.text)
	}
}

func sortNames(names []name) {
	slices.SortStableFunc(names, func(a, b name) int { return cmp.Compare(a.want, b.want) })
}

// spread moves names, which are in the order of want, so that they stand at least apart from each other and within top and bottom, as
// long as there is room, and as near to what they name as that allows: groups that touch are centred on their mean.
func spread(names []name, top, bottom, apart float64) {
	type group struct {
		from, to int
		y        float64 // of its first name
	}
	var groups []group
	for i := range names {
		g := group{i, i + 1, min(max(names[i].want, top), bottom)}
		for len(groups) > 0 {
			last := groups[len(groups)-1]
			if last.y+float64(last.to-last.from)*apart <= g.y {
				break
			}
			groups = groups[:len(groups)-1]
			g.from = last.from
			sum := 0.0
			for j := g.from; j < g.to; j++ {
				sum += names[j].want - float64(j-g.from)*apart
			}
			n := float64(g.to - g.from)
			g.y = max(min(sum/n, bottom-(n-1)*apart), top)
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		for j := g.from; j < g.to; j++ {
			names[j].y = g.y + float64(j-g.from)*apart
		}
	}
}
