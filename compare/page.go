package compare

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

func (r *Report) html(f *os.File) error { return r.page().WriteHTML(f) }

func (r *Report) csv(f *os.File) error { return r.page().WriteCSV(f) }

// page lays the report out in the order of the evaluation: where the published gap goes, a verdict per claim, the setup, the proof, the
// tables, the way to the target, the sweep of staleness, processor, memory and network by role, scaling, phases, the single thread,
// threats, and what was not found.
func (r *Report) page() *report.Page {
	title := "Topologies compared"
	if r.Quick {
		title = "Topologies compared, quickly"
	}
	p := &report.Page{Title: title, Subtitle: fmt.Sprintf("%s · %s", r.Machine, r.Created), Contents: true}
	p.Lead = r.lead()
	add := func(title string, blocks ...report.Block) {
		if len(blocks) > 0 {
			p.Sections = append(p.Sections, report.Section{Title: title, Blocks: blocks})
		}
	}
	if !r.Quick && !r.own() {
		add("Where the published gap goes", r.gap()...)
		add("A verdict per claim", r.claimTable()...)
	}
	add("Setup", r.setup()...)
	add("Equality proof", r.proof()...)
	add("Speed", r.speed()...)
	add("Time to target", r.way()...)
	add("Staleness", r.staleness()...)
	add("Processor, memory and network by role", r.roles()...)
	add("Scaling", r.scaling()...)
	add("Where a step's time goes", r.phases()...)
	add("The best single thread", r.single()...)
	add("Threats to validity", r.doubts()...)
	add("What was not found or failed", r.missing()...)
	p.Footer = []report.Span{report.Text("Made by "), report.Mono(orElse(r.Command, "trivium compare")), report.Text(", build "), report.Mono(short(r.Build)), report.Text(". Its numbers are those of report.json.")}
	return p
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func short(s string) string { return s[:min(len(s), 12)] }

func say(format string, args ...any) report.Paragraph {
	return report.Paragraph{report.Text(fmt.Sprintf(format, args...))}
}

func caption(format string, args ...any) []report.Span {
	return []report.Span{report.Text(fmt.Sprintf(format, args...))}
}

// own reports whether this is a user's own job.
func (r *Report) own() bool { return len(r.Tables) > 0 && r.Tables[0].Own }

// lead is what the reader should know if he reads nothing else.
func (r *Report) lead() []report.Block {
	var tiles report.Tiles
	for _, t := range r.Tables {
		if best, next := t.first(); best != nil && len(tiles) < 4 {
			note := ""
			if next != nil {
				note = fmt.Sprintf("%.2f times as fast as %s", next.Target.Median/best.Target.Median, next.System)
			}
			tiles = append(tiles, report.Tile{Value: secondsWord(best.Target.Median), Label: fmt.Sprintf("%s: %s to %v", t.title(), best.System, t.Target), Note: note})
		}
	}
	var blocks []report.Block
	if r.Best != nil {
		tone := report.Good
		if r.Best.System == "" {
			tone = report.Open
		}
		blocks = append(blocks, report.Callout{Tone: tone, Title: "For this job", Blocks: []report.Block{say("%s", r.Best.Text)}})
	}
	if len(tiles) > 0 {
		blocks = append(blocks, tiles)
	}
	text := "Each row trains the same model on the same rows from the same initial weights, on the same cores; only where the parameters live, and who waits for whom, differs. Medians of %d interleaved repeats; warm-up and evaluation are outside the clock."
	blocks = append(blocks, say(text, r.Repeats))
	if r.Quick {
		blocks = append(blocks, say("A quick look has no verdicts: three repeats cannot carry them."))
	}
	return blocks
}

func (r *Report) setup() []report.Block {
	facts := report.Facts{
		{Name: "machine", Value: caption("%s", r.Machine)},
		{Name: "cores of every row", Value: caption("%d", r.Cores)},
		{Name: "repeats", Value: caption("%d, interleaved (every row once, then every row again)", r.Repeats)},
		{Name: "warm-up", Value: caption("20 updates or %g s, whichever is later, on parameters that are then discarded", r.WarmUp)},
		{Name: "measured", Value: caption("at least %g s a trial, and an epoch past the target", r.Seconds)},
		{Name: "arithmetic", Value: caption("float32, one arithmetic thread a worker unless the row says otherwise")},
		{Name: "started", Value: caption("%s", r.Created)},
	}
	versions := map[string]string{}
	for system, f := range r.Facts {
		for name, v := range f {
			if name != "trivium" && name != "go" {
				name = system + ", " + name
			}
			versions[name] = v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		facts = append(facts, report.Fact{Name: name, Value: caption("%s", versions[name])})
	}
	blocks := []report.Block{facts}
	for _, n := range r.Notes {
		blocks = append(blocks, say("%s", n))
	}
	var tasks report.Table
	tasks.Name, tasks.Caption = "tasks", caption("What was trained.")
	tasks.Columns = []report.Column{{Name: "task"}, {Name: "model"}, {Name: "data"}, {Name: "target"}, {Name: "counts within", Unit: "epochs"}}
	seen := map[string]bool{}
	for _, t := range r.Tables {
		key := t.Task + t.Target.String()
		if seen[key] {
			continue
		}
		seen[key] = true
		tasks.Rows = append(tasks.Rows, report.Row{Cells: []report.Cell{
			report.Name(t.Task), report.Name(t.Model), report.Name(t.Data), report.Name(t.Target.String()), report.Number(float64(t.Cap), report.Digits(0)),
		}})
	}
	return append(blocks, tasks)
}

func (r *Report) proof() []report.Block {
	t := report.Table{Name: "equality", Caption: caption("Largest deviation of the training loss from that of local at the same effective batch, over 1 + loss, at up to %d updates of each repeat. Up to 0.001 is equal.", proofPoints)}
	t.Columns = []report.Column{{Name: "table"}, {Name: "row"}, {Name: "largest deviation"}, {Name: "proof"}}
	var figures []report.SmallFigure
	for _, table := range r.Tables {
		for _, x := range table.Rows {
			if x.Good == 0 {
				continue
			}
			verdict := report.Verdict(report.Good, "equal")
			switch {
			case x.Approx != "":
				verdict = report.Verdict(report.Neutral, "exempt: "+x.Approx)
			case x.Mode != Sync:
				verdict = report.Verdict(report.Neutral, "exempt: workers read stale parameters")
			case x.Proof != proven:
				verdict = report.Verdict(report.Bad, "failed: "+x.Proof)
			}
			deviation := report.Cell{}
			if x.Approx == "" && x.Mode == Sync {
				deviation = report.Number(x.Largest, func(v float64) string { return fmt.Sprintf("%.1e", v) })
			}
			t.Rows = append(t.Rows, report.Row{Cells: []report.Cell{report.Name(table.title()), report.Name(x.System), deviation, verdict}})
		}
		if c, ok := table.lossChart(false); ok {
			figures = append(figures, report.SmallFigure{Title: table.title(), Chart: c})
		}
	}
	blocks := []report.Block{say("Samples per second compare nothing where the systems compute different things. At fixed updates each row's parameters were saved and evaluated afterwards, all by one program.")}
	switch c := &r.Check; {
	case c.Compared > 0 && c.Largest <= checkTolerance:
		blocks = append(blocks, report.Callout{Tone: report.Good, Title: "Checked by NumPy", Blocks: []report.Block{say("check.py, which shares no code with this program, recomputed %d of these losses from the saved parameters; the largest difference is %.1e.", c.Compared, c.Largest)}})
	case c.Compared > 0:
		blocks = append(blocks, report.Callout{Tone: report.Bad, Title: "NumPy disagrees", Blocks: []report.Block{say("check.py recomputed %d losses; one differs by %.1e, and 1e-5 is allowed.", c.Compared, c.Largest)}})
	case c.Why != "":
		blocks = append(blocks, report.Callout{Tone: report.Open, Title: "Not checked by NumPy", Blocks: []report.Block{say("%s", c.Why)}})
	}
	if len(t.Rows) > 0 {
		blocks = append(blocks, t)
	}
	if len(figures) > 0 {
		blocks = append(blocks, report.Figures{Caption: caption("Training loss against samples: rows that compute the same thing lie on one line."), Items: figures})
	}
	return blocks
}

// lossChart is the training loss of all rows against time or samples; false: there is none.
func (t *Table) lossChart(time bool) (svg.Lines, bool) {
	c := svg.Lines{Title: "Training loss, " + t.title(), Y: svg.Axis{Label: "Training loss", Log: true}, X: svg.Axis{Label: "Samples"}}
	if time {
		c.X = svg.Axis{Label: "Time since the first update", Unit: "s"}
	}
	for i, x := range t.Rows {
		s := svg.Series{Name: x.System, Hue: i%svg.Hues + 1}
		for _, one := range x.Trials {
			if one.Result.Error != "" {
				continue
			}
			for _, p := range one.Result.Curve {
				if math.IsNaN(p.Loss) || p.Loss <= 0 {
					continue
				}
				at := float64(p.Samples)
				if time {
					at = p.Seconds
				}
				s.Points = append(s.Points, svg.Point{X: at, Y: p.Loss, Lo: p.Loss, Hi: p.Loss})
			}
			break // the first repeat: the others differ in time alone
		}
		if len(s.Points) > 0 && len(c.Series) < svg.Hues {
			c.Series = append(c.Series, s)
		}
	}
	if t.Target.Split == "train" && t.Target.Metric == "loss" {
		c.YMarks = []svg.Mark{{At: t.Target.Value, Label: fmt.Sprintf("target %v", t.Target.Value)}}
	}
	return c, len(c.Series) > 0
}

func (r *Report) speed() []report.Block {
	var blocks []report.Block
	for _, t := range r.Tables {
		table := report.Table{
			Name: "speed-" + anchor(t), Caption: []report.Span{report.Strong(t.title()), report.Text(fmt.Sprintf(": median [minimum–maximum] of %d repeats. Target %v.", r.Repeats, t.Target))},
			Columns: []report.Column{
				{Name: "row"},
				{Name: "what it is"},
				{Name: "effective batch", Unit: "rows"},
				{Name: "speed", Unit: "samples/s", Best: report.Highest, Bars: true},
				{Name: "of the best"},
				{Name: "to target", Unit: "s", Best: report.Lowest},
				{Name: "start-up", Unit: "s"},
				{Name: "workers + servers"},
			},
		}
		best := 0.0
		for _, x := range t.Rows {
			best = max(best, x.Rate.Median)
		}
		crowded := false
		for _, x := range t.Rows {
			name := report.Name(x.System)
			if x.Peer {
				name = name.With("another system")
			}
			row := report.Row{Muted: x.Crowded, Unranked: !x.Ranked}
			crowded = crowded || x.Crowded
			if x.Good == 0 {
				row.Cells = []report.Cell{name, report.Name(x.Title), report.Name(Batch(x.Effective).String()), report.Missing(orElse(x.Error, "not measured")), {}, {}, {}, {}}
				table.Rows = append(table.Rows, row)
				continue
			}
			target := report.Interval(x.Target.Median, x.Target.Min, x.Target.Max, svg.Short)
			if !x.Ranked {
				target = report.Missing("not ranked: " + x.Why)
			}
			target.Rank = x.Place
			row.Cells = []report.Cell{
				name, report.Name(x.Title), report.Name(Batch(x.Effective).String()), report.Interval(x.Rate.Median, x.Rate.Min, x.Rate.Max, svg.Short),
				report.Number(x.Rate.Median/best, report.Digits(2)), target, report.Number(x.Start.Median, report.Digits(2)),
				report.Name(fmt.Sprintf("%d + %d", x.Workers, x.Servers)),
			}
			table.Rows = append(table.Rows, row)
		}
		if crowded {
			table.Notes = append(table.Notes, "Grey rows have more busy threads than cores: they show what this machine gives, and carry no verdict.")
		}
		blocks = append(blocks, table)
		if published, ok := publishedTable(t); ok {
			blocks = append(blocks, published)
		}
	}
	return blocks
}

// anchor names a table's data.
func anchor(t *Table) string {
	s := fmt.Sprintf("%s-b%s-w%d", t.Task, t.Batch, t.Workers)
	if t.Link.Mbit > 0 {
		s += fmt.Sprintf("-%dmbit", t.Link.Mbit)
	}
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return '-'
	}, strings.ToLower(s))
}

func (r *Report) way() []report.Block {
	var figures []report.SmallFigure
	for _, t := range r.Tables {
		if c, ok := t.lossChart(true); ok {
			figures = append(figures, report.SmallFigure{Title: t.title(), Chart: c})
		}
	}
	if len(figures) == 0 {
		return nil
	}
	return []report.Block{
		say("Rows rank by the time to the target, which includes how far each update comes. The clock stands still while parameters are copied for evaluation; what is not reached is never extrapolated."),
		report.Figures{Caption: caption("Training loss against time: the lowest line is the fastest way."), Items: figures},
	}
}

func (r *Report) staleness() []report.Block {
	var panels []svg.Panel
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			if x.Mode.Kind != "ssp" || len(panels) >= 8 {
				continue
			}
			bins := map[int]float64{}
			for _, one := range x.Trials {
				for name, n := range one.Result.Staleness {
					var at int
					if _, err := fmt.Sscan(name, &at); err == nil {
						bins[at] += n
					}
				}
			}
			if len(bins) == 0 {
				continue
			}
			p := svg.Panel{Label: t.Task + ", " + x.System, Hue: 1, Marks: []svg.Mark{{At: float64(x.Mode.Staleness), Label: fmt.Sprintf("bound %d", x.Mode.Staleness)}}}
			for _, at := range slices.Sorted(maps.Keys(bins)) {
				p.Bins = append(p.Bins, svg.Bin{Lo: float64(at), Count: bins[at]})
			}
			panels = append(panels, p)
		}
	}
	if len(panels) == 0 {
		return nil
	}
	return []report.Block{report.Figure{
		Chart:   svg.Histogram{Title: "How many clocks reads were behind", Whole: true, X: svg.Axis{Label: "Clocks behind"}, Panels: panels},
		Caption: caption("How stale reads were under each bound: the bound is a limit, not a habit."),
	}}
}

func (r *Report) roles() []report.Block {
	var blocks []report.Block
	for _, t := range r.Tables {
		table := report.Table{
			Name: "use-" + anchor(t), Caption: []report.Span{report.Strong(t.title()), report.Text(": what the processes of each role took, all together, within the clock.")},
			Columns: []report.Column{
				{Name: "row"},
				{Name: "role"},
				{Name: "processes"},
				{Name: "user", Unit: "cores", Group: "processor"},
				{Name: "system", Unit: "cores", Group: "processor"},
				{Name: "each sample", Unit: "µs", Group: "processor"},
				{Name: "mean", Unit: "bytes", Group: "memory"},
				{Name: "peak", Unit: "bytes", Group: "memory"},
				{Name: "a second", Unit: "bytes", Group: "network"},
				{Name: "each sample", Unit: "bytes", Group: "network"},
			},
		}
		for _, x := range t.Rows {
			for _, role := range slices.Sorted(maps.Keys(x.Use)) {
				u := x.Use[role]
				second, sample := report.Number(u.BytesSecond, svg.Bytes), report.Number(u.BytesSample, report.Digits(0))
				if u.NotCounted != "" {
					second = report.Missing("not measured: " + u.NotCounted)
					sample = second
				}
				memory, peak := report.Number(u.MeanBytes, svg.Bytes), report.Number(u.PeakBytes, svg.Bytes)
				if u.MeanBytes == 0 {
					memory = report.Missing("not measured")
					peak = memory
				}
				table.Rows = append(table.Rows, report.Row{Muted: x.Crowded, Cells: []report.Cell{
					report.Name(x.System), report.Name(string(role)), report.Number(float64(u.Processes), report.Digits(0)),
					report.Number(u.UserShare, report.Digits(2)), report.Number(u.SystemShare, report.Digits(2)), report.Number(u.MicrosSample, report.Digits(2)),
					memory, peak, second, sample,
				}})
			}
		}
		if len(table.Rows) > 0 {
			table.Notes = []string{"Memory is the proportional set size, so that shared pages count once. Bytes are both directions of the processes' own interfaces."}
			blocks = append(blocks, table)
		}
	}
	return blocks
}

func (r *Report) scaling() []report.Block {
	type key struct {
		task  string
		batch Batch
		link  Link
	}
	lines := map[key]map[string][]svg.Point{}
	for _, t := range r.Tables {
		k := key{t.Task, t.Batch, t.Link}
		for _, x := range t.Rows {
			if x.Good == 0 || x.Workers != t.Workers {
				continue
			}
			if lines[k] == nil {
				lines[k] = map[string][]svg.Point{}
			}
			lines[k][x.System] = append(lines[k][x.System], svg.Point{X: float64(x.Workers), Y: x.Rate.Median, Lo: x.Rate.Min, Hi: x.Rate.Max})
		}
	}
	var blocks []report.Block
	for _, t := range r.Tables {
		k := key{t.Task, t.Batch, t.Link}
		chart := svg.Scaling{Title: "Speed against workers, " + t.Task, X: svg.Axis{Label: "Workers"}, Y: svg.Axis{Unit: "samples/s"}}
		for i, name := range slices.Sorted(maps.Keys(lines[k])) {
			points := lines[k][name]
			slices.SortFunc(points, func(a, b svg.Point) int { return int(a.X - b.X) })
			if len(points) > 1 && len(chart.Series) < svg.Hues {
				chart.Series = append(chart.Series, svg.Series{Name: name, Points: points, Hue: i%svg.Hues + 1})
			}
		}
		delete(lines, k)
		if len(chart.Series) > 0 {
			blocks = append(blocks, report.Figure{Chart: chart, Caption: caption("Speed of %s at batch %s of each worker: weak scaling, since the effective batch grows with the workers.", t.Task, t.Batch)})
		}
	}
	return blocks
}

func (r *Report) phases() []report.Block {
	var figures []report.SmallFigure
	for _, t := range r.Tables {
		chart := svg.Stack{Title: "Where a step goes, " + t.title(), Share: true, Parts: report.Phases()}
		for _, x := range t.Rows {
			var sums []float64
			for _, one := range x.Trials {
				if one.Result.Error != "" || len(one.Result.Phases) == 0 {
					continue
				}
				if sums == nil {
					sums = make([]float64, len(phaseOrder))
				}
				for i, name := range phaseOrder {
					sums[i] += one.Result.Phases[name]
				}
			}
			row := svg.StackRow{Label: x.System, Values: sums}
			if sums == nil {
				row.Missing = "not measured: it has no such counters"
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

// phaseOrder are the words of observe.Phase.
var phaseOrder = []string{"load", "compute", "serialise", "push", "pull", "wait-barrier", "wait-stale", "apply", "other"}

// single says how many workers it takes to beat one thread.
func (r *Report) single() []report.Block {
	table := report.Table{
		Name: "single-thread", Caption: caption("How each row compares with local on one thread (McSherry, Isard and Murray 2015): above 1, it beats it."),
		Columns: []report.Column{{Name: "table"}, {Name: "row"}, {Name: "workers"}, {Name: "speed of local's", Unit: "×"}, {Name: "time to target of local's", Unit: "×"}},
	}
	for _, t := range r.Tables {
		i := slices.IndexFunc(t.Rows, func(x *Row) bool { return x.System == "local" })
		if i < 0 || t.Rows[i].Good == 0 {
			continue
		}
		one := t.Rows[i]
		for _, x := range t.Rows {
			if x == one || x.Good == 0 {
				continue
			}
			target := report.Missing(orElse(x.Why, one.Why))
			if x.Ranked && one.Ranked {
				target = report.Number(one.Target.Median/x.Target.Median, report.Digits(2))
			}
			table.Rows = append(table.Rows, report.Row{Muted: x.Crowded, Cells: []report.Cell{
				report.Name(t.title()), report.Name(x.System), report.Number(float64(x.Workers), report.Digits(0)),
				report.Number(x.Rate.Median/one.Rate.Median, report.Digits(2)), target,
			}})
		}
	}
	if len(table.Rows) == 0 {
		return nil
	}
	return []report.Block{table}
}

func (r *Report) doubts() []report.Block {
	var l report.List
	for _, t := range r.Threats {
		l.Items = append(l.Items, say("%s", t))
	}
	return []report.Block{l}
}

func (r *Report) missing() []report.Block {
	var l report.List
	for _, name := range slices.Sorted(maps.Keys(r.Absent)) {
		l.Items = append(l.Items, say("%s: %s", name, r.Absent[name]))
	}
	var blocks []report.Block
	if len(l.Items) > 0 {
		blocks = append(blocks, l)
	}
	for _, t := range r.Tables {
		for _, x := range t.Rows {
			for _, one := range x.Trials {
				if one.Result.Error == "" {
					continue
				}
				d := report.Details{Summary: caption("%s, %s, repeat %d: %s", t.title(), x.System, one.Repeat, one.Result.Error)}
				if len(one.Result.Last) > 0 {
					d.Blocks = append(d.Blocks, report.Code{Caption: "Its last lines", Text: strings.Join(one.Result.Last, "\n")})
				} else {
					d.Blocks = append(d.Blocks, say("It printed nothing."))
				}
				blocks = append(blocks, d)
			}
		}
	}
	return blocks
}
