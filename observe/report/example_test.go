package report_test

import (
	"fmt"
	"strings"

	"github.com/trivium-ml/trivium/observe/report"
)

func Example() {
	speed := report.Table{
		Name:    "speed",
		Caption: []report.Span{report.Text("Samples per second")},
		Columns: []report.Column{{Name: "row"}, {Name: "softmax", Unit: "samples/s", Best: report.Highest}},
		Rows: []report.Row{
			{Cells: []report.Cell{report.Name("local"), report.Interval(451e3, 440e3, 460e3, nil)}},
			{Cells: []report.Cell{report.Name("allreduce"), report.Interval(512e3, 499e3, 520e3, nil)}},
			{Cells: []report.Cell{report.Name("Spark"), report.Missing("not installed: looked for spark-submit on PATH")}},
		},
	}
	page := report.Page{Title: "Compare", Sections: []report.Section{{Title: "Speed", Blocks: []report.Block{speed}}}}
	var html, csv strings.Builder
	if err := page.WriteHTML(&html); err != nil {
		fmt.Println(err)
	}
	if err := speed.WriteCSV(&csv); err != nil {
		fmt.Println(err)
	}
	fmt.Print(csv.String())
	fmt.Println(strings.Contains(html.String(), "<script"))
	// Output:
	// row,softmax (samples/s),softmax (samples/s) low,softmax (samples/s) high
	// local,451000,440000,460000
	// allreduce,512000,499000,520000
	// Spark,not installed: looked for spark-submit on PATH,,
	// false
}
