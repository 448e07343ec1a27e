package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// checkHTML fails unless the page is well-formed XML behind its doctype (which makes it HTML that every browser reads alike), with ids
// that are unique and resolve, and without anything that could run or be fetched.
func checkHTML(t interface{ Fatalf(string, ...any) }, page []byte) {
	rest, ok := bytes.CutPrefix(page, []byte("<!DOCTYPE html>\n"))
	if !ok {
		t.Fatalf("no doctype")
	}
	d := xml.NewDecoder(bytes.NewReader(rest))
	ids := map[string]bool{}
	var refs []string
	depth, roots := 0, 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if depth == 0 {
				roots++
			}
			depth++
			switch e.Name.Local {
			case "script", "iframe", "object", "embed", "img", "link", "form", "base":
				t.Fatalf("the page has a %s", e.Name.Local)
			}
			for _, a := range e.Attr {
				switch name := strings.ToLower(a.Name.Local); {
				case strings.HasPrefix(name, "on"), name == "src", name == "srcset":
					t.Fatalf("%s has %s=%q", e.Name.Local, name, a.Value)
				case name == "href" && strings.HasPrefix(a.Value, "#"):
					refs = append(refs, a.Value[1:])
				case name == "href":
					t.Fatalf("a link to %q", a.Value)
				case name == "aria-labelledby":
					refs = append(refs, strings.Fields(a.Value)...)
				case name == "id":
					if ids[a.Value] {
						t.Fatalf("id %q twice", a.Value)
					}
					ids[a.Value] = true
				}
			}
		case xml.EndElement:
			depth--
		}
	}
	if roots != 1 {
		t.Fatalf("%d roots", roots)
	}
	for _, r := range refs {
		if !ids[r] {
			t.Fatalf("nothing has the id %q", r)
		}
	}
}

func TestPageIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	if err := demo().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	checkHTML(t, b.Bytes())
	for _, want := range []string{"<svg class=\"tv\" role=\"img\"", "prefers-color-scheme:dark", "@media print", "not installed<", "looked for spark-submit on PATH", "&lt;rank 1&gt; timed out &amp; left"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(b.String(), "looked for spark-submit on PATH</p>"); n != 2 { // the table, and again below the figure
		t.Errorf("equal footnotes stand %d times; want once a table", n)
	}
}

// Whatever is in the names, the page is a page, and its data can be read back.
func TestAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func() string {
			return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
				"<script>alert(1)</script>", "\" onload=\"x", "'; --", "]]>", "=cmd|x", "\x00\x1f", "\u202eevil", "a: b", "javascript:x", "#nowhere", strings.Repeat("x", 300),
			})).Draw(t, "name")
		}
		f := func() float64 {
			return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 0, -1})).Draw(t, "v")
		}
		spans := []report.Span{
			report.Text(n()), report.Strong(n()), report.Mono(n()), report.Badge(report.Tone(rapid.IntRange(0, 9).Draw(t, "tone")), n()),
		}
		table := report.Table{
			Name: n(), Caption: spans, Notes: []string{n()},
			Columns: []report.Column{{Name: n(), Unit: n()}, {Name: n(), Group: n(), Best: report.Highest, Bars: true}, {Name: n(), Group: n()}},
			Rows: []report.Row{
				{Heading: n(), Cells: []report.Cell{report.Name(n()), report.Interval(f(), f(), f(), nil).With(n()), report.Missing(n())}},
				{Cells: []report.Cell{report.Words(spans...), report.Number(f(), report.Digits(2)), report.Verdict(report.Bad, n())}},
				{},
			},
		}
		chart := svg.Bars{Title: "T" + n(), Groups: []svg.Group{{Label: n(), Bars: []svg.Bar{{Value: 1}}}}}
		p := report.Page{
			Title: n(), Subtitle: n(), Contents: true, Footer: spans, Lead: []report.Block{report.Paragraph(spans), report.Tiles{{Value: n(), Label: n(), Note: n()}}},
			Sections: []report.Section{
				{Title: n(), ID: n(), Blocks: []report.Block{table, report.List{Items: []report.Paragraph{spans}}, report.Facts{{Name: n(), Value: spans}}}},
				{Title: n(), Under: []report.Section{{Title: n(), Blocks: []report.Block{
					report.Callout{Title: n(), Blocks: []report.Block{report.Code{Caption: n(), Text: n()}}},
					report.Details{Summary: spans, Blocks: []report.Block{table}},
					report.Figure{ID: n(), Chart: chart, Caption: spans, Data: &table},
					report.Figures{ID: n(), Items: []report.SmallFigure{{Title: n(), Chart: chart}}},
				}}}},
			},
		}
		var html, text, js bytes.Buffer
		if err := p.WriteHTML(&html); err != nil {
			t.Fatalf("%v", err)
		}
		// A link to an anchor that is not there is the writer's business, not the escaping's.
		checkHTML(t, html.Bytes())
		if err := p.WriteCSV(&text); err != nil {
			t.Fatalf("%v", err)
		}
		lines, err := csv.NewReader(&text).ReadAll()
		if err != nil {
			t.Fatalf("CSV: %v", err)
		}
		for _, line := range lines {
			for i, field := range line {
				if field != "" && strings.ContainsRune("=+@", rune(field[0])) && (i < 6 || i > 8) {
					t.Fatalf("a spreadsheet would run %q", field)
				}
			}
		}
		if err := p.WriteJSON(&js); err != nil {
			t.Fatalf("%v", err)
		}
		var back any
		if err := json.Unmarshal(js.Bytes(), &back); err != nil {
			t.Fatalf("JSON: %v", err)
		}
	})
}

// TestPrint: paper does not scroll, so letters are in points there, with which tables shrink; and a chart is no higher than a sheet.
func TestPrint(t *testing.T) {
	var page bytes.Buffer
	if err := (&report.Page{Title: "printed"}).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	_, print, _ := strings.Cut(page.String(), "\n@media print{\n")
	for _, want := range []string{`\nhtml\{font-size:\d+(\.\d+)?pt\}\n`, `\nfigure svg\{max-height:\d+mm\}\n`} {
		if !regexp.MustCompile(want).MatchString(print) {
			t.Errorf("on paper there is no %s", want)
		}
	}
}

func TestBest(t *testing.T) {
	cells := func(v ...float64) (rows []report.Row) {
		for _, x := range v {
			rows = append(rows, report.Row{Cells: []report.Cell{report.Number(x, nil)}})
		}
		return rows
	}
	marked := func(rows []report.Row, b report.Best) []bool {
		var js bytes.Buffer
		p := report.Page{Sections: []report.Section{{Blocks: []report.Block{report.Table{Name: "t", Columns: []report.Column{{Best: b}}, Rows: rows}}}}}
		if err := p.WriteJSON(&js); err != nil {
			t.Fatal(err)
		}
		var out struct {
			Tables []struct {
				Rows []struct{ Cells []struct{ Best bool } }
			}
		}
		if err := json.Unmarshal(js.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		var best []bool
		for _, r := range out.Tables[0].Rows {
			best = append(best, r.Cells[0].Best)
		}
		return best
	}
	unranked := cells(9, 3, 2)
	unranked[0].Unranked = true
	muted := cells(9, 3, 2)
	muted[0].Muted = true
	for _, c := range []struct {
		name string
		rows []report.Row
		best report.Best
		want []bool
	}{
		{"highest", cells(1, 3, 2), report.Highest, []bool{false, true, false}},
		{"lowest", cells(1, 3, 2), report.Lowest, []bool{true, false, false}},
		{"two", cells(3, 3, 2), report.Highest, []bool{true, true, false}},
		{"alone", cells(3), report.Highest, []bool{false}},
		{"alone among missing", cells(3, math.NaN()), report.Highest, []bool{false, false}},
		{"unranked", unranked, report.Highest, []bool{false, true, false}},
		{"muted", muted, report.Highest, []bool{false, true, false}},
		{"not asked for", cells(1, 3, 2), report.NoBest, []bool{false, false, false}},
	} {
		got := marked(c.rows, c.best)
		for i := range c.want {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v; want %v", c.name, got, c.want)
				break
			}
		}
	}
}

// A page with a fault is not written at all, and the error names every fault.
func TestFaults(t *testing.T) {
	p := report.Page{Title: "t", Sections: []report.Section{{Title: "s", Blocks: []report.Block{
		report.Figure{},
		report.Figure{Chart: svg.Lines{Title: "empty"}},
		report.Table{Name: "wide", Columns: []report.Column{{Name: "a"}}, Rows: []report.Row{{Cells: make([]report.Cell, 2)}}},
		&report.Table{Name: "pointer"},
	}}}}
	var b bytes.Buffer
	err := p.WriteHTML(&b)
	if err == nil || b.Len() > 0 {
		t.Fatalf("%v, %d bytes", err, b.Len())
	}
	for _, want := range []string{"figure 1 has no chart", `line chart "empty": no finite value`, `table "wide": row 1 has 2 cells for 1 columns`, "*report.Table"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing of %q", err, want)
		}
	}
}

func TestData(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{"demo.csv": demo().WriteCSV, "demo.json": demo().WriteJSON} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, b.Bytes()) {
			t.Errorf("%s is not what is written now; look at it, and run with -update", file)
		}
	}
}

// TestFlagsAreWhole: a line of code is not broken behind the hyphens of a flag.
func TestFlagsAreWhole(t *testing.T) {
	p := report.Page{Title: "t", Lead: []report.Block{report.Paragraph{report.Mono("train x-y --workers N -q --names=" + strings.Repeat("x,", 99))}}}
	var b strings.Builder
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	const want = `<code>train x-y <span class="flag">--workers</span> N <span class="flag">-q</span> --names=x,x,`
	if !strings.Contains(b.String(), want) || !strings.Contains(b.String(), ".flag{white-space:nowrap}") {
		t.Errorf("%s\nis not in the page", want)
	}
}

// TestPaper: on paper, which does not scroll, a long command is whole, and no title and no caption is on two sheets.
func TestPaper(t *testing.T) {
	var b bytes.Buffer
	if err := demo().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	print := b.String()[strings.LastIndex(b.String(), "@media print{"):]
	for _, want := range []string{
		".scroll,pre{overflow:visible}", "pre{white-space:pre-wrap;overflow-wrap:anywhere}", ".caption,.small-title,summary,figcaption,figure,tr,.callout,.tile{break-inside:avoid}",
	} {
		if !strings.Contains(print, want) {
			t.Errorf("what is printed is not told %s", want)
		}
	}
}

// TestLeadBeforeContents: what a reader should know if he reads nothing else is above the contents, which on a phone fill the screen, and the first
// section has the anchor of its title even where a table above it is called so.
func TestLeadBeforeContents(t *testing.T) {
	p := &report.Page{
		Title: "Page", Contents: true, Lead: []report.Block{report.Table{Name: "setup", Columns: []report.Column{{Name: "the answer"}}}},
		Sections: []report.Section{{Title: "Setup"}, {Title: "More"}},
	}
	var b bytes.Buffer
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	checkHTML(t, b.Bytes())
	at := 0
	for _, want := range []string{"<header>", "the answer", "</header>", "<nav", "<main>", `<section id="setup">`} {
		i := strings.Index(b.String()[at:], want)
		if i < 0 {
			t.Fatalf("%s is not where it should be in\n%s", want, b.String())
		}
		at += i
	}
}
