package svg

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A canvas writes one svg element. Every number goes through num and every text through escape, so that what comes out is well-formed.
type canvas struct {
	b      strings.Builder
	id     string
	w      float64
	broken bool // a coordinate was not finite: a fault of this package, which Draw reports instead of writing it
}

// num writes a coordinate with two digits after the point: a hundredth of a pixel is below what a screen shows.
func (c *canvas) num(v float64) string {
	if math.IsNaN(v) || math.Abs(v) > 1e6 {
		c.broken = true
		return "0"
	}
	return coordinate(v)
}

func coordinate(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	s = strings.TrimRight(s, "0")
	s = strings.TrimSuffix(s, ".")
	if s == "-0" {
		return "0"
	}
	return s
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.b.WriteString(`<line class="` + class + `" x1="` + c.num(x1) + `" y1="` + c.num(y1) + `" x2="` + c.num(x2) + `" y2="` + c.num(y2) + `"/>` + "\n")
}

func (c *canvas) rect(class, fill string, x, y, w, h float64, title string) {
	c.b.WriteString(`<rect class="` + class + `"`)
	if fill != "" {
		c.b.WriteString(` fill="` + fill + `"`)
	}
	c.b.WriteString(` x="` + c.num(x) + `" y="` + c.num(y) + `" width="` + c.num(max(w, 0)) + `" height="` + c.num(max(h, 0)) + `"`)
	c.closeWith("rect", title)
}

func (c *canvas) path(class, d string) {
	c.b.WriteString(`<path class="` + class + `" d="` + d + `"/>` + "\n")
}

// closeWith ends an open tag, with a title that a browser shows on hovering.
func (c *canvas) closeWith(tag, title string) {
	if title == "" {
		c.b.WriteString("/>\n")
		return
	}
	c.b.WriteString("><title>" + Escape(title) + "</title></" + tag + ">\n")
}

// Anchors of a text.
const (
	start  = ""
	middle = "middle"
	end    = "end"
)

func (c *canvas) text(class, anchor string, x, y float64, s string) {
	if s != "" {
		c.element(class, anchor, x, y, Escape(s))
	}
}

// fitted writes s, shortened to width; the whole of it is then the tooltip.
func (c *canvas) fitted(class, anchor string, x, y, width, size float64, s string) {
	short := shorten(s, width, size)
	if short == s {
		c.text(class, anchor, x, y, s)
		return
	}
	c.element(class, anchor, x, y, "<title>"+Escape(s)+"</title>"+Escape(short))
}

// element writes a text element of what is escaped already.
func (c *canvas) element(class, anchor string, x, y float64, content string) {
	c.b.WriteString(`<text`)
	if class != "" {
		c.b.WriteString(` class="` + class + `"`)
	}
	if anchor != "" {
		c.b.WriteString(` text-anchor="` + anchor + `"`)
	}
	c.b.WriteString(` x="` + c.num(x) + `" y="` + c.num(y) + `">` + content + "</text>\n")
}

// Escape makes s text of an XML element or of an attribute in double quotes. Characters that XML cannot hold, and those that turn the
// direction of the text around them, become U+FFFD.
func Escape(s string) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '&' || c == '<' || c == '>' || c == '"' || c == '\'' || c == 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString("&#34;")
		case r == '\'':
			b.WriteString("&#39;")
		case r == '\t' || r == '\n' || r == '\r':
			b.WriteByte(' ')
		case r < ' ', r >= 0x7f && r < 0xa0, r == 0xfffe, r == 0xffff, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r) // what is not UTF-8 was decoded as U+FFFD
		}
	}
	return b.String()
}
