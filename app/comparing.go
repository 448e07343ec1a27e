package app

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/compare"
	"github.com/trivium-ml/trivium/internal/quantity"
)

// A comparing shows how far a comparison is: on a terminal, the table under work with the trial, its rate so far and the time left, drawn
// anew several times a second; in a pipe, a line for each trial, and for each step that comes before the first, which may take long.
type comparing struct {
	out    io.Writer
	live   bool
	silent bool
	size   func() (width, height int) // of the terminal, which may change

	mu    sync.Mutex
	table string // the lines of the last table
	at    int    // which of them is the row of the last trial, from 0
	drawn int    // lines on the screen
	last  time.Time
	left  time.Duration
	step  string          // before the first trial, that was printed last
	told  map[string]bool // trials that have their line: several tables may show one
}

func newComparing(out io.Writer, asJSON bool) *comparing {
	_, _, draws := terminal(out, os.Getenv)
	return &comparing{out: out, silent: asJSON, size: sizeOf(out, os.Getenv), live: draws && !asJSON, left: -1, told: map[string]bool{}}
}

func (c *comparing) watch() compare.Watch {
	return compare.Watch{Note: c.note, Status: c.status, Trialed: c.trialed}
}

// note prints a sentence that stays.
func (c *comparing) note(text string) {
	if c.silent {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	fmt.Fprintf(c.out, "note: %s\n", text)
}

// status draws the trial under way.
func (c *comparing) status(s compare.Status) {
	if !c.live {
		c.prepare(s)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) < redrawEvery && s.Phase == "train" {
		return
	}
	c.last = time.Now()
	if s.Left >= 0 {
		c.left = s.Left
	}
	line := fmt.Sprintf("trial %d of %d: %s %s, repeat %d: %s", s.Done+1, s.Total, s.Cell.Task, s.Cell.System, s.Repeat, s.Phase)
	if s.Total == 0 {
		line = strings.TrimSpace(s.Cell.Task+" "+s.Cell.System) + ": " + s.Phase
	}
	if s.Rate > 0 {
		line += fmt.Sprintf(", %s samples/s", quantity.Short(s.Rate))
	}
	if c.left >= 0 {
		line += fmt.Sprintf(", about %s left", clock(c.left))
	}
	c.draw(c.table + line)
}

// prepare prints what comes before the first trial, where nothing is drawn.
func (c *comparing) prepare(s compare.Status) {
	if c.silent || s.Left >= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	step := s.Phase
	switch {
	case s.Cell.Task == "": // the same of all systems
	case s.Total == 0:
		step = s.Cell.Task + " " + s.Cell.System + ": " + step
	default:
		step = s.Cell.Task + ": " + step
	}
	if step != c.step {
		c.step = step
		fmt.Fprintln(c.out, step)
	}
}

// draw puts text, of which the last line is the status, on the screen in place of what it drew last. A line that is too long is cut, so that
// it stays one.
func (c *comparing) draw(text string) {
	c.clear()
	width, height := c.size()
	lines := c.fitting(strings.Split(strings.TrimRight(text, "\n"), "\n"), height)
	for i, l := range lines {
		if r := []rune(l); len(r) >= width {
			lines[i] = string(r[:width-1])
		}
	}
	fmt.Fprint(c.out, strings.Join(lines, "\n")+"\n")
	c.drawn = len(lines)
}

// headLines are what a table has above its rows: its title, and the names of its columns.
const headLines = 2

// fitting are those of a drawing's lines that a screen of such a height has room for, above the one that the cursor is left on: what goes beyond its top
// no later drawing takes back. The last line, which is the status, always stays, and the table's head where there is room for a row below
// it; rows go that are far from the last trial's.
func (c *comparing) fitting(lines []string, height int) []string {
	room := max(1, height-1)
	if len(lines) <= room {
		return lines
	}
	status, rows := len(lines)-1, room-headLines-1
	if rows < 1 {
		return lines[len(lines)-room:]
	}
	// More lines than room: there are more than rows between the head and the status.
	from := min(max(headLines, c.at-rows/2), status-rows)
	return slices.Concat(lines[:headLines], lines[from:from+rows], lines[status:])
}

func (c *comparing) clear() {
	if c.drawn > 0 {
		fmt.Fprintf(c.out, "\x1b[%dA\x1b[J", c.drawn)
		c.drawn = 0
	}
}

// trialed takes a trial's result. In a pipe its line has the name of its folder, in which batch, workers and link are: one system is in many
// tables.
func (c *comparing) trialed(t compare.Trialed, table compare.Table) {
	if c.silent {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live {
		var b strings.Builder
		_ = table.Text(&b) // a Builder has no errors
		c.table = b.String() + "\n"
		c.at = headLines + slices.IndexFunc(table.Rows, func(x *compare.Row) bool { return x.System == t.Cell.System })
		return
	}
	r := &t.Result
	words := fmt.Sprintf("%s repeat %d: ", t.Cell.ID(), t.Repeat)
	if c.told[words] {
		return
	}
	c.told[words] = true
	switch {
	case r.Error != "":
		words += r.Error
	case r.Reached:
		words += fmt.Sprintf("%s samples/s, target in %v", quantity.Short(r.SamplesPerSec), time.Duration(r.SecondsToTarget*float64(time.Second)).Round(100*time.Microsecond))
	case len(r.Curve) == 0: // it saved no parameters, or was too slow for the first place
		words += fmt.Sprintf("%s samples/s, target not seen", quantity.Short(r.SamplesPerSec))
	default:
		words += fmt.Sprintf("%s samples/s, target not reached (best %s)", quantity.Short(r.SamplesPerSec), figure(r.Best))
	}
	fmt.Fprintln(c.out, words)
}

// finish clears what is drawn.
func (c *comparing) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}
