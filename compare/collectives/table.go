package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/trivium-ml/trivium/internal/median"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// A table is all cells.
type table []*cell

// A cell is one size among so many processes.
type cell struct {
	ranks, bytes int
	columns      []*timing
}

// A timing is what the best algorithm of a column took: by the median of the windows, and by the lowest.
type timing struct {
	name           string
	ratio          bool
	median, lowest time.Duration
	medianBy       string
	lowestBy       string
	cpu            []time.Duration // of all processes together, for one operation; ours alone
}

func (t *timing) note(way string, median, lowest time.Duration) {
	if t.median == 0 || median < t.median {
		t.median, t.medianBy = median, way
	}
	if t.lowest == 0 || lowest < t.lowest {
		t.lowest, t.lowestBy = lowest, way
	}
}

func (c *cell) find(name string) *timing {
	for _, t := range c.columns {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (c *cell) print(w io.Writer) {
	fmt.Fprintf(w, "%s, %d processes, load %s\n", quantity.Bytes(c.bytes), c.ranks, load())
	gloo := c.find("gloo")
	for _, t := range c.columns {
		if t.median == 0 {
			fmt.Fprintf(w, "  %-12s failed, as said above\n", t.name)
			continue
		}
		fmt.Fprintf(w, "  %-12s %9.1f µs median (%s), %9.1f µs lowest (%s)", t.name, micros(t.median), t.medianBy, micros(t.lowest), t.lowestBy)
		if gloo != nil && gloo.median > 0 && t != gloo {
			fmt.Fprintf(w, "; %.2f and %.2f times gloo", over(gloo.median, t.median), over(gloo.lowest, t.lowest))
		}
		if len(t.cpu) > 0 {
			slices.Sort(t.cpu)
			fmt.Fprintf(w, "; %.0f (%.0f) µs of all processes", micros(median.Of(t.cpu)), micros(t.cpu[0]))
		}
		fmt.Fprintln(w)
	}
}

// print sets times in microseconds beside ratios of rates: above 1 is faster than Gloo.
func (t table) print(w io.Writer) {
	if len(t) == 0 {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprint(tw, "| size\t| processes")
	for _, c := range t[0].columns {
		fmt.Fprintf(tw, "\t| %s", c.name)
	}
	for _, c := range t[0].columns {
		if c.ratio {
			fmt.Fprintf(tw, "\t| %s/gloo", c.name)
		}
	}
	fmt.Fprintln(tw, "\t|")
	for _, c := range t {
		fmt.Fprintf(tw, "| %s\t| %d", quantity.Bytes(c.bytes), c.ranks)
		for _, x := range c.columns {
			if x.median == 0 {
				fmt.Fprint(tw, "\t| failed")
				continue
			}
			fmt.Fprintf(tw, "\t| %.0f (%.0f)", micros(x.median), micros(x.lowest))
		}
		gloo := c.find("gloo")
		for _, x := range c.columns {
			if !x.ratio {
				continue
			}
			if gloo == nil || gloo.median == 0 {
				fmt.Fprint(tw, "\t| ")
				continue
			}
			fmt.Fprintf(tw, "\t| %.2f (%.2f)", over(gloo.median, x.median), over(gloo.lowest, x.lowest))
		}
		fmt.Fprintln(tw, "\t|")
	}
	_ = tw.Flush() // to memory or a terminal
}

// median is that of times in their order; of an even number, the mean of the two in the middle.
func over(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
