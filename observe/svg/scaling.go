package svg

import "slices"

// Scaling is a chart of speed against workers, with the line that each series would follow if its speed grew as the workers do.
type Scaling struct {
	Title, Desc string
	X, Y        Axis
	Series      []Series // their X are numbers of workers; an ideal goes on to the last of its name
	Flat        bool     // the ideal keeps its first value, as a speed per worker does, instead of growing
	YMarks      []Mark   // such as the best single thread
}

// Draw implements Chart.
func (s Scaling) Draw(f Frame) (string, error) { return s.lines().Draw(f) }

// lines adds the ideals: thin dotted lines from the first point of each measured line, which may go on as another series of its name.
func (s Scaling) lines() Lines {
	l := Lines{Title: s.Title, Desc: s.Desc, X: s.X, Y: s.Y, YMarks: s.YMarks}
	if l.X.At == nil {
		l.X.At = s.workers()
	}
	if !l.Y.Log && l.Y.Lo == 0 && l.Y.Hi == 0 {
		l.Y.Hi = smallest // shows 0
	}
	for i, series := range s.Series {
		series.Hue = hue(series.Hue, i)
		l.Series = append(l.Series, series)
	}
	for _, series := range l.Series[:len(s.Series):len(s.Series)] {
		if series.Thin || series.Dash != Solid && (!series.Measured || series.NoName) {
			continue // predicted, or the rest of a line
		}
		if ideal, ok := s.ideal(l, series); ok {
			l.Series = append(l.Series, ideal)
		}
	}
	return l
}

func (s Scaling) ideal(l Lines, of Series) (Series, bool) {
	out := Series{Name: of.Name + ", ideal", Hue: of.Hue, Dash: Dotted, Thin: true, NoName: true}
	var first Point
	for _, series := range s.Series {
		if series.Name != of.Name {
			continue
		}
		for _, p := range series.Points {
			n := len(out.Points)
			if !l.shows(p) || p.X <= 0 || n > 0 && p.X <= out.Points[n-1].X {
				continue
			}
			if n == 0 {
				first = p
			}
			y := first.Y
			if !s.Flat {
				y = first.Y / first.X * p.X
			}
			out.Points = append(out.Points, Point{X: p.X, Y: y})
		}
	}
	return out, len(out.Points) > 1
}

// workers returns the places of the axis that were measured.
func (s Scaling) workers() []float64 {
	var out []float64
	for _, series := range s.Series {
		for _, p := range series.Points {
			if s.X.has(p.X) && len(out) < 64 && !slices.Contains(out, p.X) {
				out = append(out, p.X)
			}
		}
	}
	slices.Sort(out)
	return out
}
