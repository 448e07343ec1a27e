package compare

import (
	"fmt"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
)

// A place is a column of one of the paper's tables: what was published there, and the rows that stand there here.
type place struct {
	head, published string
	batch           Batch  // published
	peer, our       string // rows
	alone           bool   // the head says the batch: what was measured at another has no place below it
}

// The columns of Tables 1 and 3.
var (
	table1 = []place{
		{"Spark, full", "Spark", -1, "spark", "", true},
		{"TensorFlow 100", "TensorFlow", 100, "tensorflow-sync", "", true},
		{"TensorFlow 500", "TensorFlow", 500, "tensorflow-sync", "", true},
		{"MXNet 100", "MXNet", 100, "mxnet-sync", "server-bsp", true},
		{"MXNet 500", "MXNet", 500, "mxnet-sync", "server-bsp", true},
		{"PMLS SSP 3", "PMLS SSP 3", 1, "pmls-ssp3-clock10", "server-ssp3-clock10", false},
	}
	table3 = []place{
		{"Spark, full", "Spark", -1, "spark", "", true},
		{"TensorFlow sync", "TensorFlow sync", 500, "tensorflow-sync", "", false},
		{"TensorFlow async", "TensorFlow async", 500, "tensorflow-async", "", false},
		{"MXNet sync", "MXNet sync", 500, "mxnet-sync", "server-bsp", false},
		{"MXNet async", "MXNet async", 500, "mxnet-async", "server-asp", false},
	}
)

// paperTables are Tables 1 and 3 as they were published, with ours and the peers' below each line. Sets are never mixed: where digits or
// the ten thousand test images of MNIST stand in, the line says so.
func (r *Report) paperTables() []report.Block {
	if r.own() {
		return nil
	}
	var blocks []report.Block
	if t, ok := r.paperTable("table-1", "Table 1 of the paper: logistic regression, samples a second.", table1, "logistic"); ok {
		blocks = append(blocks, t)
	}
	if t, ok := r.paperTable("table-3", "Table 3 of the paper: MNIST, images a second.", table3, "softmax", "mlp1", "mlp2"); ok {
		blocks = append(blocks, t)
	}
	return blocks
}

func (r *Report) paperTable(name, title string, places []place, tasks ...string) (report.Table, bool) {
	out := report.Table{
		Name: name, Caption: caption("%s Published: three workers of an m4.xlarge each, other hardware, never ranked with the rest. Here: median [minimum–maximum], %s.", title, r.repeats(r.Tables...)),
		Columns: []report.Column{{Name: "task"}, {Name: "who"}},
		Notes:   []string{"Samples a second across batch sizes compare nothing: a full batch is one update, batch 500 makes 120."},
	}
	for _, p := range places {
		out.Columns = append(out.Columns, report.Column{Name: p.head, Right: true})
	}
	any := false
	for _, task := range tasks {
		for _, name := range []string{task, task + "-10k"} {
			lines := r.paperLines(name, places)
			if len(lines) == 0 {
				continue
			}
			any = true
			if name == task {
				cells := []report.Cell{report.Name(task), report.Name("published")}
				for _, p := range places {
					cell := report.Cell{}
					if v := rateOf(task, p.published, publishedBatch(p)); v > 0 {
						cell = report.Number(v, report.Digits(0))
					}
					cells = append(cells, cell)
				}
				out.Rows = append(out.Rows, report.Row{Muted: true, Heading: taskHeading(r, name), Cells: cells})
			} else {
				lines[0].Heading = taskHeading(r, name)
			}
			out.Rows = append(out.Rows, lines...)
		}
	}
	return out, any
}

func publishedBatch(p place) int {
	if p.batch < 0 {
		return 0
	}
	return int(p.batch)
}

// taskHeading says what a task's rows were measured on.
func taskHeading(r *Report, task string) string {
	for _, t := range r.Tables {
		if t.Task == task {
			switch {
			case task == "logistic":
				return "logistic, 10,000 × 10,000"
			case strings.HasSuffix(task, "-10k"):
				return task + ": 8,000 of MNIST's test images, which the paper did not train on"
			case t.Data == generatedSource:
				return task + ": generated digits stand in for MNIST"
			}
			return task + ": MNIST"
		}
	}
	return task
}

// paperLines are the lines of a task: other systems here, and our rows of the same topology.
func (r *Report) paperLines(task string, places []place) (rows []report.Row) {
	workers := 0
	for _, t := range r.Tables {
		if t.Task == task && t.Link.Mbit == 0 && (t.Workers == 3 || workers != 3) {
			workers = t.Workers
		}
	}
	batches := map[Batch]bool{} // of so many workers
	for _, t := range r.Tables {
		if t.Task == task && t.Link.Mbit == 0 && t.Workers == workers && t.Batch > 0 {
			batches[t.Batch] = true
		}
	}
	for _, who := range []string{"other systems here", "ours, the same topology"} {
		cells := []report.Cell{report.Name(task), report.Name(fmt.Sprintf("%s, %s", who, quantity.Count(workers, "worker")))}
		crowded := false
		for _, p := range places {
			system := p.peer
			if who != "other systems here" {
				system = p.our
			}
			cell, gray := r.paperCell(task, system, p, workers, batches)
			crowded = crowded || gray
			cells = append(cells, cell)
		}
		rows = append(rows, report.Row{Muted: crowded, Cells: cells})
	}
	if workers == 0 {
		return nil
	}
	return rows
}

func (r *Report) paperCell(task, system string, p place, workers int, batches map[Batch]bool) (report.Cell, bool) {
	if system == "" {
		return report.Missing("no twin yet: " + noTwin), false
	}
	note, batch := "", p.batch
	if batch == 1 { // per-sample: whatever the table's batch is
		batch = 0
	}
	if batch > 0 && !batches[batch] && !p.alone {
		for b := range batches {
			if note == "" || b > batch {
				note, batch = fmt.Sprintf("at batch %s", b), b
			}
		}
	}
	for _, t := range r.Tables {
		if t.Task != task || t.Workers != workers || t.Link.Mbit > 0 || batch != 0 && t.Batch != batch {
			continue
		}
		x := t.row(system)
		switch {
		case x == nil:
			continue
		case x.Good == 0:
			return report.Missing("none: " + orElse(x.Error, notYet)), false
		}
		cell := report.Interval(x.Rate.Median, x.Rate.Min, x.Rate.Max, quantity.Short)
		if note != "" {
			cell = cell.With(note)
		}
		if x.Proof != "" && x.Proof != proven {
			cell = cell.With(x.Proof)
		}
		return x.withDoubts(cell), x.Crowded
	}
	if why, ok := r.Absent[system]; ok {
		return report.Missing("none: " + why), false
	}
	return report.Missing("not run"), false
}

// noTwin is why Spark's and TensorFlow's own topologies have no row of ours.
const noTwin = "driver (Spark's) and replica (TensorFlow's) are not built yet"
