package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func (h *html) table(t Table) {
	if err := t.validate(); err != nil {
		h.errs = append(h.errs, err)
		return
	}
	class := "table"
	if t.Compact {
		class += " compact"
	}
	if len(t.Columns) >= manyColumns {
		class += " dense"
	}
	label := "Table"
	if len(t.Caption) > 0 {
		label = plain(t.Caption)
	} else if t.Name != "" {
		label = t.Name
	}
	h.raw("<div class=\"", class, "\"")
	if t.Name != "" {
		h.raw(" id=\"", h.anchor(t.Name, ""), "\"")
	}
	h.raw(">\n")
	if len(t.Caption) > 0 {
		h.raw("<p class=\"caption\">")
		h.spans(t.Caption)
		h.raw("</p>\n")
	}
	h.raw("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"")
	h.text(label)
	h.raw("\">\n<table>\n")
	h.head(t)
	notes := &footnotes{}
	best := make([][]bool, len(t.Columns))
	aligns := make([]string, len(t.Columns))
	longest := make([]float64, len(t.Columns))
	for i, c := range t.Columns {
		best[i] = t.best(i)
		aligns[i] = strings.TrimSpace(c.alignClass(t.numeric(i)) + " " + t.widthClass(i))
		longest[i] = t.longest(i)
	}
	h.raw("<tbody>\n")
	for i, r := range t.Rows {
		if r.Heading != "" {
			h.raw("<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"", strconv.Itoa(max(len(t.Columns), 1)), "\">")
			h.text(r.Heading)
			h.raw("</th></tr>\n")
		}
		h.raw("<tr", rowClass(r), ">")
		for j := range t.Columns {
			var c Cell
			if j < len(r.Cells) {
				c = r.Cells[j]
			}
			h.cell(c, aligns[j], j == 0, best[j][i], longest[j], notes)
		}
		h.raw("</tr>\n")
	}
	h.raw("</tbody>\n</table>\n</div>\n")
	h.notes(t, notes)
	h.raw("</div>\n")
}

// manyColumns is the number from which a table is set closer, so that it fits a page.
const manyColumns = 8

func rowClass(r Row) string {
	var classes []string
	if r.Muted {
		classes = append(classes, "muted")
	}
	if r.Total {
		classes = append(classes, "total")
	}
	if len(classes) == 0 {
		return ""
	}
	return ` class="` + strings.Join(classes, " ") + `"`
}

func (c Column) alignClass(numeric bool) string {
	if c.Right || numeric {
		return "r"
	}
	return ""
}

// widthClass keeps short names on one line, and gives long texts room on a small screen, where the table scrolls instead.
func (t Table) widthClass(column int) string {
	most := 0
	for _, r := range t.Rows {
		if column < len(r.Cells) {
			spans, _ := shortBadge(r.Cells[column].Spans)
			most = max(most, utf8.RuneCountInString(plain(spans)))
		}
	}
	switch {
	case most > 30:
		return "long"
	case most > 0 && most <= 22:
		return "short"
	}
	return ""
}

// longest returns the largest value of a column with bars; 0 without.
func (t Table) longest(column int) float64 {
	longest := 0.0
	if !t.Columns[column].Bars {
		return 0
	}
	for _, r := range t.Rows {
		if column < len(r.Cells) {
			if v := r.Cells[column].Value; v != nil && !math.IsInf(*v, 0) {
				longest = max(longest, *v)
			}
		}
	}
	return longest
}

// head writes the columns' names, with a line of groups above where there are any.
func (h *html) head(t Table) {
	if !slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Name != "" || c.Group != "" }) {
		return
	}
	h.raw("<thead>\n")
	if slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Group != "" }) {
		h.raw("<tr class=\"groups\">")
		for i := 0; i < len(t.Columns); {
			j := i + 1
			for j < len(t.Columns) && t.Columns[j].Group == t.Columns[i].Group && t.Columns[i].Group != "" {
				j++
			}
			if t.Columns[i].Group == "" {
				h.raw("<td></td>")
			} else {
				h.raw("<th scope=\"colgroup\" colspan=\"", strconv.Itoa(j-i), "\"><span>")
				h.text(t.Columns[i].Group)
				h.raw("</span></th>")
			}
			i = j
		}
		h.raw("</tr>\n")
	}
	h.raw("<tr>")
	for i, c := range t.Columns {
		h.raw("<th scope=\"col\"")
		if class := c.alignClass(t.numeric(i)); class != "" {
			h.raw(" class=\"", class, "\"")
		}
		h.raw(">")
		h.text(c.Name)
		if c.Unit != "" {
			h.raw("<span class=\"unit\">")
			h.text(c.Unit)
			h.raw("</span>")
		}
		h.raw("</th>")
	}
	h.raw("</tr>\n</thead>\n")
}

func (h *html) cell(c Cell, align string, first, best bool, longest float64, notes *footnotes) {
	tag := "td"
	if first {
		tag = "th scope=\"row\""
	}
	var classes []string
	if align != "" {
		classes = append(classes, align)
	}
	if best {
		classes = append(classes, "best")
	}
	if longest > 0 && c.Value != nil {
		classes = append(classes, "bar")
	}
	h.raw("<", tag)
	if len(classes) > 0 {
		h.raw(" class=\"", strings.Join(classes, " "), "\"")
	}
	if longest > 0 && c.Value != nil && *c.Value > 0 && !math.IsInf(*c.Value, 0) {
		h.raw(" style=\"--w:", strconv.FormatFloat(*c.Value/longest*100, 'f', 1, 64), "%\"")
	}
	h.raw(">")
	if c.Rank > 0 {
		h.raw("<span class=\"rank\">", ordinal(c.Rank), "</span> ")
	}
	marks := c.Notes
	if c.Missing != "" {
		short, why := headAndReason(c.Missing)
		class := "none"
		if len(short) <= longWords {
			class += " short"
		} else {
			class += " words"
		}
		h.raw("<span class=\"", class, "\">")
		h.text(short)
		h.raw("</span>")
		if why != "" {
			marks = append([]string{why}, marks...)
		}
	}
	if c.Value != nil && c.Missing == "" {
		h.text(c.Text)
		if best {
			h.raw("<span class=\"star\" title=\"best\" role=\"img\" aria-label=\"best\">★</span>")
		}
	}
	if len(c.Spans) > 0 {
		if c.Value != nil {
			h.raw(" ")
		}
		spans, why := shortBadge(c.Spans)
		h.spans(spans)
		if why != "" {
			marks = append([]string{why}, marks...)
		}
	}
	for i, n := range marks {
		if i > 0 {
			h.raw("<sup>,</sup>")
		}
		h.raw("<sup>", notes.letter(n), "</sup>")
	}
	if c.Range != "" && c.Missing == "" {
		h.raw("<span class=\"range\">")
		h.text(c.Range)
		h.raw("</span>")
	}
	h.raw("</", tag[:2], ">")
}

// longWords is the length beyond which what a cell says in place of a number, or in a badge, would make its column wide.
const longWords = 24

// headAndReason splits "not measured: no permission" where it is long: the reason becomes a footnote.
func headAndReason(s string) (head, why string) {
	head, why, found := strings.Cut(s, ": ")
	if !found || len(s) <= longWords || strings.TrimSpace(head) == "" {
		return s, ""
	}
	return head, why
}

// shortBadge does the same for a badge that is all there is in a cell.
func shortBadge(spans []Span) ([]Span, string) {
	if len(spans) != 1 || spans[0].Kind != BadgeSpan {
		return spans, ""
	}
	badge := spans[0]
	head, why := headAndReason(badge.Text)
	badge.Text = head
	return []Span{badge}, why
}

// footnotes are the notes of a table in the order of their first use.
type footnotes struct{ all []string }

func (f *footnotes) letter(note string) string {
	i := slices.Index(f.all, note)
	if i < 0 {
		i = len(f.all)
		f.all = append(f.all, note)
	}
	return letters(i)
}

// letters counts a, b … z, aa, ab …
func letters(i int) string {
	s := ""
	for i++; i > 0; i = (i - 1) / 26 {
		s = string(rune('a'+(i-1)%26)) + s
	}
	return s
}

func (h *html) notes(t Table, f *footnotes) {
	if len(f.all)+len(t.Notes) == 0 {
		return
	}
	h.raw("<div class=\"notes\">")
	for _, n := range t.Notes {
		h.raw("<p>")
		h.text(n)
		h.raw("</p>")
	}
	for i, n := range f.all {
		h.raw("<p><sup>", letters(i), "</sup> ")
		h.text(n)
		h.raw("</p>")
	}
	h.raw("</div>\n")
}

func plain(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.Text)
	}
	return b.String()
}

// ordinal is 1 as 1st: a place beside a value is not to be read as a part of it.
func ordinal(n int) string {
	ending := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			ending = "st"
		case 2:
			ending = "nd"
		case 3:
			ending = "rd"
		}
	}
	return strconv.Itoa(n) + ending
}
