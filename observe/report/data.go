package report

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/finite"
)

// WriteCSV writes the named tables of the page as one table, a line a cell: table, the heading that the row is under, the row's number
// and name, column, unit, value, low, high, text. Text that a spreadsheet would take for a formula begins with an apostrophe.
func (p *Page) WriteCSV(w io.Writer) error {
	lines := [][]string{{"table", "under", "row", "name", "column", "unit", "value", "low", "high", "text"}}
	for _, t := range p.tables() {
		if err := t.validate(); err != nil {
			return err
		}
		under := ""
		for i, r := range t.Rows {
			name := ""
			if len(r.Cells) > 0 {
				name = r.Cells[0].words()
			}
			if r.Heading != "" {
				under = r.Heading
			}
			for j, c := range r.Cells {
				if j == 0 && c.Value == nil || c.words() == "" {
					continue // the row's name; an empty cell
				}
				lines = append(lines, []string{
					safe(t.Name), safe(under), strconv.Itoa(i + 1), safe(name), safe(t.Columns[j].full()), safe(t.Columns[j].Unit),
					number(c.Value), number(c.Lo), number(c.Hi), safe(c.words()),
				})
			}
		}
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// WriteCSV writes the table as it stands, its intervals in columns of their own.
func (t Table) WriteCSV(w io.Writer) error {
	if err := t.validate(); err != nil {
		return err
	}
	var head []string
	intervals := make([]bool, len(t.Columns))
	for i, c := range t.Columns {
		name := c.full()
		if c.Unit != "" {
			name += " (" + c.Unit + ")"
		}
		head = append(head, safe(name))
		for _, r := range t.Rows {
			intervals[i] = intervals[i] || i < len(r.Cells) && r.Cells[i].Lo != nil
		}
		if intervals[i] {
			head = append(head, safe(name+" low"), safe(name+" high"))
		}
	}
	lines := [][]string{head}
	for _, r := range t.Rows {
		var line []string
		for i := range t.Columns {
			var c Cell
			if i < len(r.Cells) {
				c = r.Cells[i]
			}
			if v := number(c.Value); v != "" {
				line = append(line, v)
			} else {
				line = append(line, safe(c.words()))
			}
			if intervals[i] {
				line = append(line, number(c.Lo), number(c.Hi))
			}
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// full is a column's name with its group's.
func (c Column) full() string {
	return strings.TrimSpace(c.Group + " " + c.Name)
}

// words is what a cell says, without its footnotes.
func (c Cell) words() string {
	if c.Missing != "" {
		return c.Missing
	}
	s := plain(c.Spans)
	if c.Value != nil {
		s = strings.TrimSpace(c.Text + " " + s)
	}
	return s
}

// number writes a value with all its digits; nothing where there is none.
func number(v *float64) string {
	if v == nil || !finite.Is(*v) {
		return ""
	}
	return strconv.FormatFloat(*v, 'g', -1, 64)
}

func safe(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// tables returns the page's named tables, in the order of the page.
func (p *Page) tables() []Table {
	var out []Table
	var walk func([]Block)
	add := func(t *Table) {
		if t != nil && t.Name != "" {
			out = append(out, *t)
		}
	}
	walk = func(blocks []Block) {
		for _, b := range blocks {
			switch b := b.(type) {
			case Table:
				add(&b)
			case Figure:
				add(b.Data)
			case Figures:
				add(b.Data)
			case Callout:
				walk(b.Blocks)
			case Details:
				walk(b.Blocks)
			}
		}
	}
	var sections func([]Section)
	sections = func(all []Section) {
		for _, s := range all {
			walk(s.Blocks)
			sections(s.Under)
		}
	}
	walk(p.Lead)
	sections(p.Sections)
	return out
}

type pageJSON struct {
	Title    string      `json:"title"`
	Subtitle string      `json:"subtitle,omitempty"`
	Tables   []tableJSON `json:"tables"`
}

type tableJSON struct {
	Name    string       `json:"name"`
	Caption string       `json:"caption,omitempty"`
	Columns []columnJSON `json:"columns"`
	Rows    []rowJSON    `json:"rows"`
	Notes   []string     `json:"notes,omitempty"`
}

type columnJSON struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
}

type rowJSON struct {
	Heading  string     `json:"heading,omitempty"`
	Unranked bool       `json:"unranked,omitempty"`
	Muted    bool       `json:"muted,omitempty"`
	Cells    []cellJSON `json:"cells"`
}

type cellJSON struct {
	Text    string   `json:"text,omitempty"`
	Value   *float64 `json:"value,omitempty"`
	Low     *float64 `json:"low,omitempty"`
	High    *float64 `json:"high,omitempty"`
	Missing string   `json:"missing,omitempty"`
	Best    bool     `json:"best,omitempty"`
	Rank    int      `json:"rank,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// WriteJSON writes the named tables of the page with their values as numbers.
func (p *Page) WriteJSON(w io.Writer) error {
	page := pageJSON{Title: p.Title, Subtitle: p.Subtitle, Tables: []tableJSON{}}
	for _, t := range p.tables() {
		if err := t.validate(); err != nil {
			return err
		}
		page.Tables = append(page.Tables, t.json())
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	return out.Encode(page)
}

func (t Table) json() tableJSON {
	j := tableJSON{Name: t.Name, Caption: plain(t.Caption), Columns: []columnJSON{}, Rows: []rowJSON{}, Notes: t.Notes}
	for _, c := range t.Columns {
		j.Columns = append(j.Columns, columnJSON{c.full(), c.Unit})
	}
	best := make([][]bool, len(t.Columns))
	for i := range t.Columns {
		best[i] = t.best(i)
	}
	for i, r := range t.Rows {
		row := rowJSON{Heading: r.Heading, Unranked: r.Unranked, Muted: r.Muted, Cells: []cellJSON{}}
		for k, c := range r.Cells {
			cell := cellJSON{Missing: c.Missing, Best: best[k][i], Rank: c.Rank, Notes: c.Notes}
			cell.Value, cell.Low, cell.High = numberOrNil(c.Value), numberOrNil(c.Lo), numberOrNil(c.Hi)
			if c.Missing == "" {
				cell.Text = c.words()
			}
			row.Cells = append(row.Cells, cell)
		}
		j.Rows = append(j.Rows, row)
	}
	return j
}

// numberOrNil is v as JSON can have it.
func numberOrNil(v *float64) *float64 {
	if v == nil {
		return nil
	}
	return finite.OrNil(*v)
}
