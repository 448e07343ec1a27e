package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
)

func (r *Report) speed() []report.Block {
	var blocks []report.Block
	for _, t := range r.Tables {
		for _, rows := range t.regimes() {
			blocks = append(blocks, r.speedTable(t, rows))
		}
		if published, ok := publishedTable(t); ok {
			blocks = append(blocks, published)
		}
	}
	return blocks
}

// regimes are the rows with a core for each busy thread, and those without, which are never in one table: what the latter show is the
// scheduler too.
func (t *Table) regimes() (list [][]*Row) {
	var free, crowded []*Row
	for _, x := range t.Rows {
		if x.Crowded {
			crowded = append(crowded, x)
		} else {
			free = append(free, x)
		}
	}
	for _, rows := range [][]*Row{free, crowded} {
		if len(rows) > 0 {
			list = append(list, rows)
		}
	}
	return list
}

// speedTable is one regime of a table.
func (r *Report) speedTable(t *Table, rows []*Row) report.Table {
	table := report.Table{
		Name: "speed-" + anchor(t), Caption: []report.Span{report.Strong(t.title()), report.Text(fmt.Sprintf(": median [minimum–maximum] of %s. Target %v.", r.repeats(t), t.Target))},
		Columns: []report.Column{
			{Name: "row"}, // what matters most comes first: on a phone the rest is to the right of the screen
			{Name: "speed", Unit: "samples/s", Best: report.Highest, Bars: true},
			{Name: "to target", Best: report.Lowest},
			{Name: "of the best speed"},
			{Name: "batch of all", Unit: "rows"},
			{Name: "processes"},
			{Name: "start-up", Unit: "s"},
			{Name: "what it is"},
		},
	}
	best := 0.0
	for _, x := range rows {
		best = max(best, x.Rate.Median)
	}
	table.Notes = append(table.Notes, "Processes are workers + servers.")
	if rows[0].Crowded {
		table.Name += "-oversubscribed"
		table.Caption = append(table.Caption, report.Text(" Oversubscribed: these rows have more busy threads than cores. They show what this machine gives, and carry no verdict."))
	}
	for _, x := range rows {
		name := report.Name(x.System)
		if x.Peer {
			name = name.With("another system")
		}
		name = x.withDoubts(name)
		row := report.Row{Muted: x.Crowded, Unranked: !x.Ranked}
		if x.Good == 0 {
			row.Cells = []report.Cell{name, report.Missing(orElse(x.Error, notYet)), {}, {}, report.Name(Batch(x.Effective).String()), {}, {}, report.Name(x.Title)}
			table.Rows = append(table.Rows, row)
			continue
		}
		target := x.Target.seconds()
		if !x.Ranked {
			target = report.Missing("not ranked: " + x.Why)
		}
		target.Rank = x.placeAmong(rows)
		row.Cells = []report.Cell{
			name, report.Interval(x.Rate.Median, x.Rate.Min, x.Rate.Max, quantity.Short), target, report.Number(x.Rate.Median/best, report.Digits(2)),
			report.Name(Batch(x.Effective).String()), report.Name(fmt.Sprintf("%d+%d", x.Workers, x.Servers)), report.Number(x.Start.Median, report.Digits(2)),
			report.Name(x.Title),
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// notYet is said of a row that has neither trials nor an error.
const notYet = "not yet measured"

// withDoubts is a cell of the row, with a footnote where some of its repeats failed, whose figures are those of the others, and one where some
// of those are flagged: the threats say what for.
func (x *Row) withDoubts(c report.Cell) report.Cell {
	if x.Good == 0 {
		return c
	}
	if x.Good < len(x.Trials) {
		c = c.With(fmt.Sprintf("%d of %s ended well", x.Good, quantity.Count(len(x.Trials), "repeat")))
	}
	if flagged, good := x.flagged(); flagged > 0 {
		c = c.With(fmt.Sprintf("flagged, as the threats say: %d of %s", flagged, quantity.Count(good, "repeat")))
	}
	return c
}

// flagged is how many of the good repeats are.
func (x *Row) flagged() (flagged, good int) {
	for i := range x.Trials {
		if r := &x.Trials[i].Result; r.Error == "" {
			good++
			flagged += min(1, len(r.Flags))
		}
	}
	return flagged, good
}

// placeAmong is the row's place by time to target among those rows, from 1; 0: it has none.
func (x *Row) placeAmong(rows []*Row) int {
	if x.Place == 0 {
		return 0
	}
	place := 1
	for _, y := range rows {
		if y.Place > 0 && y.Place < x.Place {
			place++
		}
	}
	return place
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

// single is each row beside one thread, and how many workers it takes to beat that.
func (r *Report) single() []report.Block {
	table := report.Table{
		Name: "single-thread", Caption: caption("How many times as fast as local on one thread each row is (McSherry, Isard and Murray 2015), in samples a second and to the target: below 1, one thread is faster."),
		Columns: []report.Column{{Name: "table"}, {Name: "row"}, {Name: "workers"}, {Name: "in samples/s", Unit: "× local"}, {Name: "to the target", Unit: "× local"}},
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
	blocks := []report.Block{table}
	if cost := r.cost(); len(cost.Rows) > 0 {
		blocks = append(blocks, cost)
	}
	return blocks
}

// A versus is a row beside local, with so many workers: the ratios of speeds and of times to the target, above 1 where the row is ahead.
type versus struct {
	workers     int
	speed, time float64 // time: 0 where not both are ranked
	crowded     bool
}

// cost says from how many workers on each row is ahead of one thread, of rows that were measured with several numbers of workers.
func (r *Report) cost() report.Table {
	table := report.Table{
		Name: "single-thread-workers", Caption: caption("From how many workers on a row is ahead of local on one thread (its COST), of the numbers that were measured, at the same batch."),
		Columns: []report.Column{{Name: "at"}, {Name: "row"}, {Name: "measured", Unit: "workers", Right: true}, {Name: "faster from", Unit: "workers"}, {Name: "sooner at the target from", Unit: "workers"}},
	}
	type line struct{ at, system string }
	var order []line
	points := map[line][]versus{}
	for _, t := range r.Tables {
		one := t.row("local")
		if one == nil || one.Good == 0 {
			continue
		}
		at := fmt.Sprintf("%s, batch %s each, %s", t.Task, t.Batch, t.Link)
		if t.Own {
			at = fmt.Sprintf("%s, batch %s, %s", t.Task, t.Batch, t.Link)
		}
		for _, x := range t.Rows {
			if x == one || x.Good == 0 || x.Workers != t.Workers {
				continue
			}
			p := versus{workers: x.Workers, speed: x.Rate.Median / one.Rate.Median, crowded: x.Crowded}
			if x.Ranked && one.Ranked {
				p.time = one.Target.Median / x.Target.Median
			}
			k := line{at, x.System}
			if points[k] == nil {
				order = append(order, k)
			}
			points[k] = append(points[k], p)
		}
	}
	for _, k := range order {
		list := points[k]
		if len(list) < 2 {
			continue
		}
		slices.SortFunc(list, func(a, b versus) int { return a.workers - b.workers })
		var measured []string
		for _, p := range list {
			measured = append(measured, fmt.Sprint(p.workers))
		}
		row := report.Row{Muted: list[len(list)-1].crowded, Cells: []report.Cell{
			report.Name(k.at), report.Name(k.system), report.Name(strings.Join(measured, ", ")),
			aheadFrom(list, func(p versus) float64 { return p.speed }), aheadFrom(list, func(p versus) float64 { return p.time }),
		}}
		if !slices.ContainsFunc(list, func(p versus) bool { return p.time > 0 }) {
			row.Cells[len(row.Cells)-1] = report.Missing("not ranked")
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// aheadFrom is the least number of workers with which, and with all that are more, the ratio is above 1.
func aheadFrom(list []versus, ratio func(versus) float64) report.Cell {
	from := 0
	for i := len(list) - 1; i >= 0 && ratio(list[i]) > 1; i-- {
		from = list[i].workers
	}
	if from == 0 {
		return report.Missing(fmt.Sprintf("not with up to %d", list[len(list)-1].workers))
	}
	return report.Number(float64(from), report.Digits(0))
}
