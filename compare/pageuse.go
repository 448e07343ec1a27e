package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// roles are the paper's figures 7 to 11 and 13 to 15: processor, memory and network of workers and servers, a second and a sample, as bars;
// the numbers are folded away below them.
func (r *Report) roles() []report.Block {
	var blocks []report.Block
	files := "at other systems the files that they are written to"
	if r.FilesAfter {
		files = "not the files that they are written to afterwards (PMLS's program writes its own meanwhile)"
	}
	for _, t := range r.Tables {
		table := t.useTable()
		if len(table.Rows) == 0 {
			continue
		}
		var items []report.SmallFigure
		for _, x := range uses {
			if f, ok := t.useBars(x); ok {
				items = append(items, f)
			}
		}
		if len(items) == 0 {
			blocks = append(blocks, table)
			continue
		}
		blocks = append(blocks, report.Figures{
			Caption: []report.Span{report.Strong(t.title()), report.Text(": what the processes of each role took, all together, from the clock's start until it stands still, copies of parameters included, and " + files + ". Bytes are those of both directions, so that what one process sends to another counts at each. Bytes a second flatter a slow system; bytes a sample do not.")},
			Items:   items, Data: &table,
		})
	}
	return blocks
}

// A usage is one figure of what processes take.
type usage struct {
	title  string
	axis   svg.Axis
	format func(float64) string
	of     func(PerUse) (v float64, known bool)
}

var uses = []usage{
	{"Busy cores", svg.Axis{Label: "Busy cores"}, quantity.Short, func(u PerUse) (float64, bool) { return u.UserShare + u.SystemShare, u.NotTimed == "" }},
	{"Processor time of a sample", svg.Axis{Label: "Processor time of a sample", Unit: "µs"}, quantity.Short, func(u PerUse) (float64, bool) { return u.MicrosSample, u.NotTimed == "" }},
	{"Memory", svg.Axis{Label: "Memory, mean", Format: quantity.Bytes[float64], Binary: true}, quantity.Bytes[float64], func(u PerUse) (float64, bool) { return u.MeanBytes, u.MeanBytes > 0 }},
	{"Network, a second", svg.Axis{Label: "Bytes a second", Format: quantity.Bytes[float64], Binary: true, Hi: 1}, quantity.Bytes[float64], func(u PerUse) (float64, bool) { return u.BytesSecond, u.NotCounted == "" && u.NotTimed == "" }},
	{"Network, a sample", svg.Axis{Label: "Bytes a sample", Format: quantity.Bytes[float64], Binary: true, Hi: 1}, quantity.Bytes[float64], func(u PerUse) (float64, bool) { return u.BytesSample, u.NotCounted == "" && u.NotTimed == "" }},
	{"System calls of an update", svg.Axis{Label: "System calls of an update"}, quantity.Short, func(u PerUse) (float64, bool) { return u.CallsUpdate, u.CallsUnknown == "" }},
}

// useBars is one figure by row and role; false: nothing of it was measured.
func (t *Table) useBars(use usage) (f report.SmallFigure, measured bool) {
	chart := svg.Bars{Title: use.title + ", " + t.title(), Value: use.axis, Series: []string{"workers", "servers"}, Hues: []int{1, 2}}
	if !slices.ContainsFunc(t.Rows, func(x *Row) bool { _, ok := x.Use[ServerRole]; return ok }) {
		chart.Series, chart.Hues = chart.Series[:1], chart.Hues[:1]
	}
	for _, x := range t.Rows {
		if len(x.Use) == 0 {
			continue
		}
		g := svg.Group{Label: x.System}
		if x.Crowded {
			g.Note = "oversubscribed"
		}
		for i, role := range []Role{WorkerRole, ServerRole} {
			u, ok := x.Use[role]
			if !ok {
				continue
			}
			b := svg.Bar{Series: i}
			if v, known := use.of(u); known {
				b.Value, b.Text, measured = v, use.format(v), true
			} else {
				b.Missing = "not measured"
			}
			g.Bars = append(g.Bars, b)
		}
		chart.Groups = append(chart.Groups, g)
	}
	return report.SmallFigure{Title: use.title, Chart: chart}, measured
}

// fewReadings of the memory are too few to know its peak by: the mean of one or two may be the peak too.
const fewReadings = 5

func (t *Table) useTable() report.Table {
	table := report.Table{
		Name: "use-" + anchor(t),
		Columns: []report.Column{
			{Name: "row"},
			{Name: "role"},
			{Name: "processes"},
			{Name: "user", Unit: "cores", Group: "processor"},
			{Name: "system", Unit: "cores", Group: "processor"},
			{Name: "each sample", Unit: "µs", Group: "processor"},
			{Name: "mean", Unit: "bytes", Group: "memory"},
			{Name: "peak", Unit: "bytes", Group: "memory"},
			{Name: "read", Unit: "times", Group: "memory"},
			{Name: "a second", Unit: "bytes", Group: "network"},
			{Name: "each sample", Unit: "bytes", Group: "network"},
			{Name: "processor", Unit: "s", Group: "system, an update"},
			{Name: "calls", Group: "system, an update"},
			{Name: "transfers", Group: "system, an update"},
		},
		Notes: []string{fmt.Sprintf("Memory is the proportional set size, so that shared pages count once. Of the process that keeps copies of the parameters until the clock stands still, worker 0 or Spark's driver, it has these too. It is read ten times a second at most, and less often where a look takes long: the number is the least of any process in any repeat, and of fewer than %d readings there is no peak.", fewReadings), "Bytes are both directions of the processes' own interfaces.", "System calls are those of all processes of the role in an update of the warm-up, since counting them would slow what is measured; transfers are those of them that move bytes: read, write, send and receive, by whichever name."},
	}
	for _, x := range t.Rows {
		for _, role := range slices.Sorted(maps.Keys(x.Use)) {
			u := x.Use[role]
			user, system, micros := report.Number(u.UserShare, report.Digits(2)), report.Number(u.SystemShare, report.Digits(2)), report.Number(u.MicrosSample, report.Digits(2))
			if u.NotTimed != "" {
				user = report.Missing("not measured: " + u.NotTimed)
				system, micros = user, user
			}
			second, sample := report.Number(u.BytesSecond, quantity.Bytes), report.Number(u.BytesSample, quantity.Short)
			if why := orElse(u.NotCounted, u.NotTimed); why != "" {
				second = report.Missing("not measured: " + why)
				sample = second
			}
			kernel, calls, moves := report.Number(u.SystemUpdate, quantity.Seconds), report.Number(u.CallsUpdate, quantity.Short), report.Number(u.TransfersUpdate, quantity.Short)
			if u.NotTimed != "" {
				kernel = report.Missing("not measured: " + u.NotTimed)
			}
			if u.CallsUnknown != "" {
				calls = report.Missing("not measured: " + u.CallsUnknown)
				moves = calls
			}
			memory, peak, read := report.Number(u.MeanBytes, quantity.Bytes), report.Number(u.PeakBytes, quantity.Bytes), report.Number(float64(u.Readings), report.Digits(0))
			switch {
			case u.MeanBytes == 0:
				memory = report.Missing("not measured")
				peak, read = memory, memory
			case u.Readings == 0: // of a trial that was measured before they were counted
				read = report.Missing("not counted")
			case u.Readings < fewReadings:
				peak = report.Missing("not known")
			}
			table.Rows = append(table.Rows, report.Row{Muted: x.Crowded, Cells: []report.Cell{
				report.Name(x.System), report.Name(string(role)), report.Number(float64(u.Processes), report.Digits(0)),
				user, system, micros, memory, peak, read, second, sample, kernel, calls, moves,
			}})
		}
	}
	return table
}

// phases is how the workers' time splits.
func (r *Report) phases() []report.Block {
	var figures []report.SmallFigure
	for _, t := range r.Tables {
		chart := svg.Stack{Title: "Where a step goes, " + t.title(), Share: true, Parts: report.Phases()}
		for _, x := range t.Rows {
			if x.Good == 0 {
				continue
			}
			row := svg.StackRow{Label: x.System}
			if sums := x.phases(); sums == nil {
				row.Missing = "not measured: it has no such counters"
			} else {
				for _, name := range phaseOrder {
					row.Values = append(row.Values, sums[name])
				}
			}
			chart.Rows = append(chart.Rows, row)
		}
		if slices.ContainsFunc(chart.Rows, func(x svg.StackRow) bool { return x.Values != nil }) {
			figures = append(figures, report.SmallFigure{Title: t.title(), Chart: chart})
		}
	}
	if len(figures) == 0 {
		return nil
	}
	return []report.Block{report.Figures{Caption: caption("Shares of the workers' time by phase: what is not compute is the price of the topology."), Items: figures}}
}

// phases are what the row's good trials spent in each phase, all together; nil: phases were not counted.
func (x *Row) phases() map[string]float64 {
	var sums map[string]float64
	for i := range x.Trials {
		r := &x.Trials[i].Result
		if r.Error != "" || len(r.Phases) == 0 {
			continue
		}
		if sums == nil {
			sums = map[string]float64{}
		}
		for name, v := range r.Phases {
			sums[name] += v
		}
	}
	return sums
}

// phaseOrder are the words of observe.Phase.
var phaseOrder = []string{"load", "compute", "serialise", "push", "pull", "wait-barrier", "wait-stale", "apply", "other"}

// scaling is the paper's figure 12: speed, and speed per worker, against workers, with the line of ideal growth; at equal batch of each
// worker (weak), and at equal effective batch (strong).
func (r *Report) scaling() []report.Block {
	type key struct {
		task   string
		link   Link
		size   int // rows of each worker, or of all
		strong bool
	}
	type point struct {
		svg.Point
		crowded bool
	}
	lines := map[key]map[string][]point{}
	single := map[key]float64{}
	var order []key
	add := func(k key, t *Table) {
		if lines[k] == nil {
			lines[k] = map[string][]point{}
			order = append(order, k)
		}
		for _, x := range t.Rows {
			if x.System == "local" && x.Good > 0 && x.Effective == k.size { // as many rows an update as the others have, or as each of them
				single[k] = x.Rate.Median
			}
			if x.Good == 0 || x.Workers != t.Workers || x.System == "local" || x.System == "local-cores" {
				continue
			}
			lines[k][x.System] = append(lines[k][x.System], point{svg.Point{X: float64(x.Workers), Y: x.Rate.Median, Lo: x.Rate.Min, Hi: x.Rate.Max}, x.Crowded})
		}
	}
	for _, t := range r.Tables {
		switch {
		case t.Own, t.Batch < 0: // shared out
			add(key{t.Task, t.Link, int(t.Batch), true}, t)
		default:
			add(key{t.Task, t.Link, int(t.Batch), false}, t)
			add(key{t.Task, t.Link, int(t.Batch) * t.Workers, true}, t)
		}
	}
	hues := r.hues()
	var blocks []report.Block
	for _, k := range order {
		how := fmt.Sprintf("batch %s of each worker (weak scaling: the effective batch grows with the workers)", Batch(k.size))
		if k.strong {
			how = fmt.Sprintf("%s rows an update, shared by all workers (strong scaling)", Batch(k.size))
		}
		var items []report.SmallFigure
		var speed, each svg.Scaling
		taken := map[int]bool{}           // colours of the lines of the two
		crowded := map[float64][]string{} // rows by the number of workers from which on they are
		end := func() {
			if len(taken) > 0 {
				items = append(items, report.SmallFigure{Title: "Together", Chart: speed}, report.SmallFigure{Title: "Each worker", Chart: each})
			}
			clear(taken)
			speed = svg.Scaling{Title: "Speed against workers, " + k.task, X: svg.Axis{Label: "Workers"}, Y: svg.Axis{Label: "Speed", Unit: "samples/s"}}
			each = svg.Scaling{Title: "Speed of a worker, " + k.task, X: svg.Axis{Label: "Workers"}, Y: svg.Axis{Label: "Speed of a worker", Unit: "samples/s"}, Flat: true}
			if s := single[k]; s > 0 {
				speed.YMarks = []svg.Mark{{At: s, Label: "one thread"}}
			}
		}
		end()
		for _, name := range slices.Sorted(maps.Keys(lines[k])) {
			points := lines[k][name]
			slices.SortFunc(points, func(a, b point) int { return int(a.X - b.X) })
			if len(points) < 2 {
				continue
			}
			if len(taken) == svg.Hues {
				end()
			}
			own := max(1, hues[name]) // 1: it is drawn in no table
			for taken[own] {          // by another row: there are more than colours
				own = hue(own)
			}
			taken[own] = true
			// What has a core for each busy thread and what has not are two lines, which nothing joins.
			free := svg.Series{Name: name, Hue: own}
			busy := svg.Series{Name: name, Hue: own, Dash: svg.Dashed, Measured: true}
			freeEach, busyEach := free, busy
			for _, p := range points {
				all, one := &free, &freeEach
				if p.crowded {
					if all, one = &busy, &busyEach; len(busy.Points) == 0 {
						crowded[p.X] = append(crowded[p.X], name)
					}
				}
				all.Points = append(all.Points, p.Point)
				one.Points = append(one.Points, svg.Point{X: p.X, Y: p.Y / p.X, Lo: p.Lo / p.X, Hi: p.Hi / p.X})
			}
			if len(free.Points) > 0 {
				speed.Series, each.Series = append(speed.Series, free), append(each.Series, freeEach)
				busy.NoName, busyEach.NoName = true, true
			}
			if len(busy.Points) > 0 {
				speed.Series, each.Series = append(speed.Series, busy), append(each.Series, busyEach)
			}
		}
		if end(); len(items) == 0 {
			continue
		}
		text := fmt.Sprintf(", %s, %s. Dotted: what as many would do if each kept the speed of the first.", k.link, how)
		var from []string
		for _, n := range slices.Sorted(maps.Keys(crowded)) {
			from = append(from, fmt.Sprintf("from %s on (%s)", quantity.Count(int(n), "worker"), strings.Join(crowded[n], ", ")))
		}
		if len(from) > 0 {
			text += " Dashed: more busy threads than cores " + strings.Join(from, ", ") + ", so it is partly the scheduler that is shown."
		}
		blocks = append(blocks, report.Figures{Items: items, Caption: []report.Span{report.Strong(k.task), report.Text(text)}})
	}
	return blocks
}
