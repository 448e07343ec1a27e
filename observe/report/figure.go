package report

import (
	"fmt"
	"strconv"

	"github.com/trivium-ml/trivium/observe/svg"
)

// Widths that charts are laid out for: a column of text, a telephone, half a column, a third of it.
const (
	wideChart   = 840
	narrowChart = 380
	halfChart   = 405
	thirdChart  = 270
)

// chart draws a chart at a width, under an id of its own.
func (h *html) chart(c svg.Chart, width int) {
	if c == nil {
		h.errs = append(h.errs, fmt.Errorf("report: figure %d has no chart", h.figures))
		return
	}
	h.charts++
	s, err := c.Draw(svg.Frame{ID: "c" + strconv.Itoa(h.charts), Width: width})
	if err != nil {
		h.errs = append(h.errs, fmt.Errorf("report: figure %d: %w", h.figures, err))
		return
	}
	h.raw(s)
}

// figure writes a chart twice, laid out for a wide and for a narrow page; the style shows one of the two, also to screen readers.
func (h *html) figure(f Figure) {
	h.figures++
	h.raw("<figure id=\"", h.anchor(f.ID, "figure-"+strconv.Itoa(h.figures)), "\">\n<div class=\"wide\">\n")
	h.chart(f.Chart, wideChart)
	h.raw("</div>\n<div class=\"narrow\">\n")
	h.chart(f.Chart, narrowChart)
	h.raw("</div>\n")
	h.caption(f.Caption)
	h.data(f.Data)
	h.raw("</figure>\n")
}

func (h *html) caption(spans []Span) {
	h.raw("<figcaption><span class=\"no\">Figure ", strconv.Itoa(h.figures), "</span> ")
	h.spans(spans)
	h.raw("</figcaption>\n")
}

func (h *html) data(t *Table) {
	if t == nil {
		return
	}
	table := *t
	table.Compact = true
	h.raw("<details class=\"data\">\n<summary>The numbers</summary>\n")
	h.table(table)
	h.raw("</details>\n")
}

func (h *html) smallFigures(f Figures) {
	h.figures++
	width, class := halfChart, "two"
	if f.Columns > 2 {
		width, class = thirdChart, "three"
	}
	h.raw("<figure id=\"", h.anchor(f.ID, "figure-"+strconv.Itoa(h.figures)), "\">\n<div class=\"grid ", class, "\">\n")
	for _, item := range f.Items {
		h.raw("<div><p class=\"small-title\">")
		h.text(item.Title)
		h.raw("</p>\n")
		h.chart(item.Chart, width)
		h.raw("</div>\n")
	}
	h.raw("</div>\n")
	h.caption(f.Caption)
	h.data(f.Data)
	h.raw("</figure>\n")
}
