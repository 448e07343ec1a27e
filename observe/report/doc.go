// Package report lays measurements out as a document: one HTML file with its styles and charts inside, and the same tables as CSV and
// JSON.
//
// A [Page] is a typed document: sections of paragraphs, tables, figures and details. It says what a number is, its unit, its interval
// and its place among others; how that looks is decided here, once.
//
//	page := report.Page{Title: "Compare", Sections: []report.Section{{Title: "Speed", Blocks: []report.Block{
//		report.Paragraph{report.Text("Medians of seven repeats.")},
//		report.Table{Name: "speed", Columns: columns, Rows: rows},
//		report.Figure{Chart: svg.Bars{...}, Caption: "Speed of each row."},
//	}}}}
//	err := page.WriteHTML(w)
//
// The page needs no script and asks for nothing from elsewhere. It follows the reader's light or dark preference, fits small screens,
// and prints. The same page is the same bytes. All text is escaped; a number that is not finite is written as a gap that says why.
package report
