package svg

import (
	"errors"
	"fmt"
	"strings"
)

// draw writes a whole svg element. The body lays itself out for the width and returns its height; it starts at y = 0.
func draw(f Frame, title, desc string, body func(c *canvas) (height float64, err error)) (string, error) {
	if strings.TrimSpace(title) == "" {
		return "", errors.New("svg: a chart without a title: readers who cannot see it would know nothing of it")
	}
	width, margin, top := f.width(), 0.0, 0.0
	if f.Standalone {
		margin, top = 14, 42
	}
	c := &canvas{id: f.id(), w: width - 2*margin}
	height, err := body(c)
	if err != nil {
		return "", err
	}
	total := height + top + margin
	var head strings.Builder
	head.WriteString(`<svg class="tv" role="img"`)
	if f.Standalone {
		head.WriteString(` xmlns="http://www.w3.org/2000/svg"`)
	}
	w, h := coordinate(width), c.num(total)
	head.WriteString(` width="` + w + `" height="` + h + `" viewBox="0 0 ` + w + " " + h + `"`)
	head.WriteString(` aria-labelledby="` + c.id + `-title` + described(desc, " "+c.id+"-desc") + `">` + "\n")
	head.WriteString(`<title id="` + c.id + `-title">` + Escape(title) + "</title>\n")
	if desc != "" {
		head.WriteString(`<desc id="` + c.id + `-desc">` + Escape(desc) + "</desc>\n")
	}
	if f.Standalone {
		head.WriteString("<style>" + strings.ReplaceAll(CSS(), ":root", "svg.tv") + "</style>\n")
		head.WriteString(`<rect class="bg" width="` + w + `" height="` + h + `"/>` + "\n")
		head.WriteString(`<text class="h" x="` + coordinate(margin) + `" y="26">` + Escape(shorten(title, c.w, 15)) + "</text>\n")
		head.WriteString(`<g transform="translate(` + coordinate(margin) + "," + coordinate(top) + `)">` + "\n" + c.b.String() + "</g>\n</svg>\n")
	} else {
		head.WriteString(c.b.String() + "</svg>\n")
	}
	if c.broken {
		return "", fmt.Errorf("svg: chart %q: a coordinate is not finite; this is a fault of the drawing", title)
	}
	return head.String(), nil
}

func described(desc, id string) string {
	if desc == "" {
		return ""
	}
	return id
}

// A key is an entry of a legend: its sample is drawn by the chart.
type key struct {
	name   string
	sample func(c *canvas, x, y float64) // a box of 22 × 12 whose left edge is x and whose middle is y
}

const sampleWidth = 22.0

// legend writes the keys in rows above a chart, where they cover nothing, and returns the y below them.
func (c *canvas) legend(keys []key, x, y, width float64) float64 {
	if len(keys) == 0 {
		return y
	}
	left := x
	for _, k := range keys {
		room := sampleWidth + 6
		w := room + min(textWidth(k.name, fontSize), width-room) + 16
		if left > x && left+w-16 > x+width {
			left = x
			y += lineHeight + 2
		}
		k.sample(c, left, y+8)
		c.fitted("", start, left+room, y+12, width-room, fontSize, k.name)
		left += w + 4
	}
	return y + lineHeight + 8
}
