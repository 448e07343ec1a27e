package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/svg"
)

// scoreFigures draws the evaluations that were taken more than once.
func scoreFigures(all []*measured) Figures {
	f := Figures{Caption: []Span{Strong("Evaluations."), Text(" As the run directory has them: one that another followed within a second may be missing.")}}
	names := repeated(all)
	var left []string
	for _, name := range names {
		chart := svg.Lines{Title: name + " by update", X: svg.Axis{Label: "Updates"}, Y: svg.Axis{Label: name, Value: quantity.Figure}}
		for _, m := range all {
			line := svg.Series{Name: m.label, Hue: m.hue}
			for _, sc := range m.scores(name) {
				line.Points = append(line.Points, svg.Point{X: float64(sc.step), Y: sc.value})
			}
			if slices.ContainsFunc(line.Points, func(p svg.Point) bool { return svg.Plottable(p.Y) }) {
				chart.Series = append(chart.Series, line)
			}
		}
		switch {
		case len(chart.Series) == 0:
		case len(f.Items) == shownMetrics:
			left = append(left, name)
		default:
			f.Items = append(f.Items, SmallFigure{Title: name, Chart: chart})
		}
	}
	if len(left) > 0 {
		f.Caption = append(f.Caption, Text(" In the numbers alone: "+strings.Join(left, ", ")+"."))
	}
	data := scoreTable(all, names)
	f.Data = &data
	return f
}

// repeated are the metrics that were evaluated more than once: those first that a run was asked for, in that order.
func repeated(all []*measured) []string {
	names, asked := map[string]bool{}, []string{}
	for _, m := range all {
		for _, src := range m.sources {
			seen := map[string]int{}
			for _, sc := range src.scores {
				if seen[sc.name]++; seen[sc.name] > 1 {
					names[sc.name] = true
				}
			}
		}
		var job struct{ Metrics []string }
		if json.Unmarshal(m.Head.Configuration, &job) == nil { // else it has asked for none
			asked = append(asked, job.Metrics...)
		}
	}
	place := func(name string) int {
		_, metric, _ := strings.Cut(name, ".") // of train, valid or test rows
		if i := slices.Index(asked, metric); i >= 0 {
			return i
		}
		return len(asked)
	}
	return slices.SortedStableFunc(slices.Values(slices.Sorted(maps.Keys(names))), func(a, b string) int { return cmp.Compare(place(a), place(b)) })
}

// scores are a metric's evaluations.
func (m *measured) scores(name string) (list []score) {
	for _, src := range m.sources {
		for _, sc := range src.scores {
			if sc.name == name {
				list = append(list, sc)
			}
		}
	}
	return list
}

// scoreTable is what scoreFigures draws: of very many evaluations every so many of each metric of each run, the last among them.
func scoreTable(all []*measured, names []string) Table {
	t := Table{Name: "evaluations", Columns: []Column{{Name: "run"}, {Name: "metric"}, {Name: "update"}, {Name: "time", Unit: "s"}, {Name: "value"}}}
	count := 0
	for _, name := range names {
		for _, m := range all {
			count += len(m.scores(name))
		}
	}
	every := max(1, (count+shownScores-1)/shownScores)
	for _, name := range names {
		for _, m := range all {
			scores := m.scores(name)
			for i, sc := range scores {
				if (len(scores)-1-i)%every == 0 {
					t.Rows = append(t.Rows, Row{Cells: []Cell{
						Name(m.label), Name(name), Number(float64(sc.step), Digits(0)), Number(sc.at-max(m.begin, 0), Digits(2)), Number(sc.value, quantity.Figure),
					}})
				}
			}
		}
	}
	if left := count - len(t.Rows); left > 0 {
		t.Notes = []string{fmt.Sprintf("Of each metric of each run every %s row is here. Left out: %s, which the folder series of the run directory has.", ordinal(every), quantity.Count(left, "evaluation"))}
	}
	return t
}
