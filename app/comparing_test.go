package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/compare"
)

// TestTrialsAreToldApart: in a pipe, the lines of one system at two links, batches or numbers of workers say which is which; a trial that several
// tables show has one.
func TestTrialsAreToldApart(t *testing.T) {
	var out strings.Builder
	c := newComparing(&out, false)
	for _, cell := range []compare.Cell{
		{Task: "softmax", Batch: 100, Workers: 2, System: "allreduce"},
		{Task: "softmax", Batch: 100, Workers: 2, Link: compare.Link{Mbit: 750}, System: "allreduce"},
		{Task: "softmax", Batch: 500, Workers: 2, System: "allreduce"},
		{Task: "softmax", Batch: 100, Workers: 3, System: "allreduce"},
		{Task: "softmax", Batch: 100, Workers: 3, System: "allreduce"}, // of another table, which shows the same trial
	} {
		c.trialed(compare.Trialed{Cell: cell, Repeat: 1, Result: compare.Result{SamplesPerSec: 1000}}, compare.Table{})
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		if seen[line] || !strings.Contains(line, "allreduce repeat 1: ") {
			t.Errorf("%q, of\n%s", line, out.String())
		}
		seen[line] = true
	}
}

// TestFaultsAreToldApart: what is printed of a fault names its row, in a pipe and on a terminal, and no trial; what is asked of all systems is one line.
func TestFaultsAreToldApart(t *testing.T) {
	for _, live := range []bool{false, true} {
		var out strings.Builder
		c := &comparing{out: &out, live: live, left: -1, size: func() (int, int) { return 80, 24 }, told: map[string]bool{}}
		for _, system := range []string{"server-bsp", "horovod"} {
			c.status(compare.Status{Cell: compare.Cell{System: system}, Phase: "ask", Left: -1})
		}
		for _, system := range []string{"server-bsp", "horovod"} {
			c.status(compare.Status{Cell: compare.Cell{Task: "logistic", System: system}, Repeat: 1, Phase: "kill a worker", Left: -1})
			if want := "logistic " + system + ": kill a worker\n"; !strings.HasSuffix(out.String(), want) {
				t.Errorf("live: %v: %q lacks %q", live, out.String(), want)
			}
		}
		if n := strings.Count(out.String(), "ask\n"); !live && n != 1 {
			t.Errorf("the systems are asked %d times", n)
		}
	}
}

// TestTargetNotSeen: where no parameters were looked at, none of them is the best.
func TestTargetNotSeen(t *testing.T) {
	var out strings.Builder
	c := newComparing(&out, false)
	cell := compare.Cell{Task: "softmax", Batch: -1, Workers: 2, System: "spark-mllib"}
	c.trialed(compare.Trialed{Cell: cell, Repeat: 1, Result: compare.Result{SamplesPerSec: 1000}}, compare.Table{})
	c.trialed(compare.Trialed{Cell: cell, Repeat: 2, Result: compare.Result{SamplesPerSec: 1000, Best: 0.5, Curve: []compare.Point{{Value: 0.5}}}}, compare.Table{})
	for _, want := range []string{"repeat 1: 1k samples/s, target not seen\n", "repeat 2: 1k samples/s, target not reached (best 0.5)\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q does not say %q", out.String(), want)
		}
	}
}

// TestTableFitsTheScreen: what is drawn is never higher than the terminal, so that the next drawing takes its place; the row of the last trial
// and the status are among it.
func TestTableFitsTheScreen(t *testing.T) {
	table := compare.Table{Task: "mlp1", Workers: 3, Batch: 100}
	for i := range 40 {
		table.Rows = append(table.Rows, &compare.Row{System: fmt.Sprintf("row-%02d", i)})
	}
	for _, height := range []int{1, 2, 3, 4, 5, 10, 24, 60} {
		for _, row := range []int{0, 20, 39} {
			var out strings.Builder
			c := &comparing{out: &out, live: true, size: func() (int, int) { return 80, height }}
			cell := compare.Cell{Task: "mlp1", Workers: 3, Batch: 100, System: table.Rows[row].System}
			c.trialed(compare.Trialed{Cell: cell, Repeat: 1}, table)
			status := compare.Status{Cell: compare.Cell{Task: "mlp1", System: "the-next"}, Repeat: 1, Total: 40, Phase: "warm up"}
			for range 2 {
				out.Reset()
				c.status(status)
			}
			screen := out.String()
			if n := strings.Count(screen, "\n"); n != c.drawn || n > max(1, height-1) {
				t.Errorf("%d lines on a screen of %d; %d are to be taken back", n, height, c.drawn)
			}
			if !strings.Contains(screen, "mlp1 the-next, repeat 1: warm up") {
				t.Errorf("height %d: no status in %q", height, screen)
			}
			if height >= 5 && !(strings.Contains(screen, "SAMPLES/S") && strings.Contains(screen, cell.System)) {
				t.Errorf("height %d: %s or its columns are not in %q", height, cell.System, screen)
			}
		}
	}
}

// TestNarrowerTerminal: once a terminal is narrower, no line that is drawn is as wide as it was: it would go on in the next, which no later drawing
// takes back.
func TestNarrowerTerminal(t *testing.T) {
	var out strings.Builder
	width := 120
	size := func() (int, int) { return width, 24 }
	c := &comparing{out: &out, live: true, size: size}
	p := &progress{out: &out, style: bar, size: size, last: halfway}
	for _, width = range []int{120, 30} {
		out.Reset()
		c.trialed(compare.Trialed{Repeat: 1}, compare.Table{Task: "mlp1", Rows: []*compare.Row{{System: "server-bsp"}}})
		c.draw(c.table + "trial 1 of 40: mlp1 server-bsp, repeat 1: train")
		p.draw()
		for _, line := range strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' || r == '\r' }) {
			for _, escape := range []string{"\x1b[K", "\x1b[J", "\x1b[5A"} {
				line = strings.ReplaceAll(line, escape, "")
			}
			if n := len([]rune(line)); n >= width {
				t.Errorf("%q has %d columns on a terminal of %d", line, n, width)
			}
		}
	}
}
