package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/trivium-ml/trivium/observe/svg"
)

// WriteHTML writes the page as one file. Nothing is written if a block cannot be drawn: the error then joins all that is wrong.
func (p *Page) WriteHTML(w io.Writer) error {
	h := &html{ids: map[string]bool{}}
	h.page(p)
	if err := errors.Join(h.errs...); err != nil {
		return err
	}
	_, err := w.Write(h.b.Bytes())
	return err
}

// An html writes a page into memory. Text reaches it through text and verbatim alone.
type html struct {
	b       bytes.Buffer
	ids     map[string]bool
	figures int
	charts  int
	errs    []error
}

func (h *html) raw(s ...string) {
	for _, s := range s {
		h.b.WriteString(s)
	}
}

// text writes words, which no line break parts from the sign of a percentage behind them.
func (h *html) text(s string) { h.verbatim(strings.ReplaceAll(s, " %", "\u00a0%")) }

// verbatim writes what may be copied: code and addresses.
func (h *html) verbatim(s string) { h.b.WriteString(svg.Escape(s)) }

// anchor returns an id that the page does not have yet.
func (h *html) anchor(wanted, otherwise string) string {
	id := slug(wanted)
	if id == "" {
		id = slug(otherwise)
	}
	if id == "" || id[0] >= '0' && id[0] <= '9' {
		id = "s-" + id
	}
	unique := id
	for n := 2; h.ids[unique]; n++ {
		unique = id + "-" + strconv.Itoa(n)
	}
	h.ids[unique] = true
	return unique
}

// slug is s in lower-case letters and digits, with single hyphens between words.
func slug(s string) string {
	var b strings.Builder
	hyphen := false
	for _, r := range strings.ToLower(s) {
		switch {
		case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			if hyphen && b.Len() > 0 {
				b.WriteByte('-')
			}
			hyphen = false
			b.WriteRune(r)
		default:
			hyphen = true
		}
		if b.Len() > 60 {
			break
		}
	}
	return b.String()
}

func (h *html) page(p *Page) {
	h.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n",
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"/>\n<title>")
	h.text(p.Title)
	h.raw("</title>\n<style>\n", svg.CSS(), pageCSS, "</style>\n</head>\n<body")
	contents := p.Contents && len(p.Sections) > 1
	if contents {
		h.raw(" class=\"with-nav\"")
	}
	h.raw(">\n<header>\n<h1>")
	h.text(p.Title)
	h.raw("</h1>\n")
	if p.Subtitle != "" {
		h.raw("<p class=\"sub\">")
		h.text(p.Subtitle)
		h.raw("</p>\n")
	}
	anchors := make([]string, len(p.Sections))
	for i, s := range p.Sections {
		anchors[i] = h.anchor(s.ID, s.Title)
	}
	if len(p.Lead) > 0 { // before the contents, which on a phone fill the screen
		h.raw("<div class=\"lead\">\n")
		h.blocks(p.Lead)
		h.raw("</div>\n")
	}
	h.raw("</header>\n")
	if contents {
		h.contents(p, anchors)
	}
	h.raw("<main>\n")
	number := 0
	for i, s := range p.Sections {
		label := ""
		if !s.Plain {
			number++
			label = strconv.Itoa(number)
		}
		h.section(s, anchors[i], label)
	}
	h.raw("</main>\n")
	if len(p.Footer) > 0 {
		h.raw("<footer><p>")
		h.spans(p.Footer)
		h.raw("</p></footer>\n")
	}
	h.raw("</body>\n</html>\n")
}

func (h *html) contents(p *Page, anchors []string) {
	h.raw("<nav aria-label=\"Contents\">\n<ol>\n")
	number := 0
	for i, s := range p.Sections {
		h.raw("<li><a href=\"#", anchors[i], "\"><span class=\"no\">")
		if !s.Plain {
			number++
			h.raw(strconv.Itoa(number))
		}
		h.raw("</span>")
		h.text(s.Title)
		h.raw("</a></li>\n")
	}
	h.raw("</ol>\n</nav>\n")
}

func (h *html) section(s Section, id, label string) {
	h.raw("<section id=\"", id, "\">\n<h2>")
	if label != "" {
		h.raw("<span class=\"no\">", label, "</span>")
	}
	h.text(s.Title)
	h.raw("</h2>\n")
	h.blocks(s.Blocks)
	for _, u := range s.Under {
		h.under(u, 3)
	}
	h.raw("</section>\n")
}

func (h *html) under(s Section, level int) {
	tag := "h" + strconv.Itoa(min(level, 6))
	h.raw("<section id=\"", h.anchor(s.ID, s.Title), "\">\n<", tag, ">")
	h.text(s.Title)
	h.raw("</", tag, ">\n")
	h.blocks(s.Blocks)
	for _, u := range s.Under {
		h.under(u, level+1)
	}
	h.raw("</section>\n")
}

func (h *html) blocks(blocks []Block) {
	for _, b := range blocks {
		switch b := b.(type) {
		case Paragraph:
			h.raw("<p>")
			h.spans(b)
			h.raw("</p>\n")
		case List:
			h.list(b)
		case Table:
			h.table(b)
		case Figure:
			h.figure(b)
		case Figures:
			h.smallFigures(b)
		case Facts:
			h.facts(b)
		case Tiles:
			h.tiles(b)
		case Callout:
			h.callout(b)
		case Details:
			h.details(b)
		case Code:
			h.code(b)
		default:
			h.errs = append(h.errs, fmt.Errorf("report: a block of type %T: blocks are values of the types that Block names", b))
		}
	}
}

func (h *html) spans(spans []Span) {
	for _, s := range spans {
		switch s.Kind {
		case StrongSpan:
			h.tagged("strong", s.Text)
		case MonoSpan:
			h.raw("<code>")
			for i, word := range strings.Split(s.Text, " ") {
				if i > 0 {
					h.raw(" ")
				}
				if strings.HasPrefix(word, "-") && len(word) <= 24 { // a flag and no long list behind it: its hyphens a browser would leave on the line before
					h.raw("<span class=\"flag\">")
					h.verbatim(word)
					h.raw("</span>")
					continue
				}
				h.verbatim(word)
			}
			h.raw("</code>")
		case BadgeSpan:
			h.raw("<span class=\"badge ", s.Tone.class(), "\">")
			if sign := s.Tone.sign(); sign != "" {
				h.raw("<span aria-hidden=\"true\">", sign, "</span> ")
			}
			h.text(s.Text)
			h.raw("</span>")
		default:
			h.text(s.Text)
		}
	}
}

func (h *html) tagged(tag, s string) {
	h.raw("<", tag, ">")
	h.text(s)
	h.raw("</", tag, ">")
}

func (t Tone) class() string {
	switch t {
	case Good:
		return "good"
	case Bad:
		return "bad"
	case Open:
		return "open"
	case Warn:
		return "warn"
	}
	return "neutral"
}

func (t Tone) sign() string {
	switch t {
	case Good:
		return "✓"
	case Bad:
		return "✗"
	case Open:
		return "?"
	case Warn:
		return "!"
	}
	return ""
}

func (h *html) list(l List) {
	tag := "ul"
	if l.Ordered {
		tag = "ol"
	}
	h.raw("<", tag, ">\n")
	for _, item := range l.Items {
		h.raw("<li>")
		h.spans(item)
		h.raw("</li>\n")
	}
	h.raw("</", tag, ">\n")
}

func (h *html) facts(f Facts) {
	h.raw("<dl class=\"facts\">\n")
	for _, fact := range f {
		h.raw("<div><dt>")
		h.text(fact.Name)
		h.raw("</dt><dd>")
		h.spans(fact.Value)
		h.raw("</dd></div>\n")
	}
	h.raw("</dl>\n")
}

func (h *html) tiles(t Tiles) {
	h.raw("<div class=\"tiles\">\n")
	for _, tile := range t {
		h.raw("<div class=\"tile ", tile.Tone.class(), "\"><p class=\"what\">")
		h.text(tile.Label)
		h.raw("</p><p class=\"value\">")
		h.text(tile.Value)
		h.raw("</p>")
		if tile.Note != "" {
			h.raw("<p class=\"note\">")
			h.text(tile.Note)
			h.raw("</p>")
		}
		h.raw("</div>\n")
	}
	h.raw("</div>\n")
}

func (h *html) callout(c Callout) {
	h.raw("<aside class=\"callout ", c.Tone.class(), "\">\n")
	if c.Title != "" {
		h.raw("<p class=\"title\">")
		if sign := c.Tone.sign(); sign != "" {
			h.raw("<span aria-hidden=\"true\">", sign, "</span> ")
		}
		h.text(c.Title)
		h.raw("</p>\n")
	}
	h.blocks(c.Blocks)
	h.raw("</aside>\n")
}

func (h *html) details(d Details) {
	h.raw("<details")
	if d.Open {
		h.raw(" open=\"open\"")
	}
	h.raw(">\n<summary>")
	h.spans(d.Summary)
	h.raw("</summary>\n")
	h.blocks(d.Blocks)
	h.raw("</details>\n")
}

func (h *html) code(c Code) {
	h.raw("<figure class=\"code\">")
	if c.Caption != "" {
		h.raw("<figcaption>")
		h.text(c.Caption)
		h.raw("</figcaption>")
	}
	h.raw("<pre tabindex=\"0\"><code>")
	for i, line := range strings.Split(strings.TrimRight(c.Text, "\n"), "\n") {
		if i > 0 {
			h.raw("\n")
		}
		h.verbatim(line)
	}
	h.raw("</code></pre></figure>\n")
}
