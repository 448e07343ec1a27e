package app

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/trivium-ml/trivium/internal/finite"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
)

// A progress shows how far a training is: a bar that is redrawn on a terminal, a key=value line now and then in a pipe, or a JSON
// object a line. One goroutine draws, on its own clock; training only leaves the newest figures.
type progress struct {
	out   io.Writer
	style style
	size  func() (width, height int) // of the terminal, which may change
	color bool

	mu      sync.Mutex
	last    figures
	drawn   bool // the bar is on the screen
	said    map[string]bool
	stop    chan struct{} // ends the drawing that start began
	stopped sync.WaitGroup
}

// A style is a way to show progress.
type style uint8

const (
	quiet style = iota
	bar
	lines
	objects
)

const (
	redrawEvery = 100 * time.Millisecond // ten times a second: the eye sees no more
	lineEvery   = 5 * time.Second
)

// figures are what there is to show at one moment.
type figures struct {
	train.Progress
	Metrics map[string]float64 // of the last evaluation
}

// newProgress chooses the style: JSON where asked for, a bar on a terminal, else lines.
func newProgress(out io.Writer, asJSON, silent bool, getenv func(string) string) *progress {
	p := &progress{out: out, style: lines, size: sizeOf(out, getenv)}
	if _, _, draws := terminal(out, getenv); draws {
		p.style = bar
		p.color = getenv("NO_COLOR") == ""
	}
	if silent {
		p.style = quiet
	}
	if asJSON {
		p.style = objects
	}
	return p
}

// terminal tells whether out is a terminal that can be drawn on, and how many columns and lines it has.
func terminal(out io.Writer, getenv func(string) string) (width, height int, draws bool) {
	const usual, usualHeight = 80, 24
	if o, ok := out.(*output); ok {
		out = o.w
	}
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || getenv("TERM") == "dumb" {
		return usual, usualHeight, false
	}
	if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		if h <= 0 {
			h = usualHeight
		}
		return w, h, true
	}
	return usual, usualHeight, true
}

// sizeOf asks for the columns and lines of a terminal, anew at each drawing: one that is made narrower would break a line that is as wide as
// it was, and the next drawing would take back only a part of it.
func sizeOf(out io.Writer, getenv func(string) string) func() (width, height int) {
	return func() (width, height int) {
		width, height, _ = terminal(out, getenv)
		return width, height
	}
}

// start begins to draw. The caller calls finish, and may start again then.
func (p *progress) start() {
	p.stop = make(chan struct{})
	every := lineEvery
	switch p.style {
	case quiet:
		return
	case bar:
		every = redrawEvery
	}
	p.stopped.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
				p.mu.Lock()
				if p.last.Step > 0 {
					p.draw()
				}
				p.mu.Unlock()
			}
		}
	})
}

// finish stops drawing and clears the bar.
func (p *progress) finish() {
	close(p.stop)
	p.stopped.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// update leaves the newest figures.
func (p *progress) update(f train.Progress) {
	p.mu.Lock()
	p.last.Progress = f
	p.mu.Unlock()
}

// evaluated shows an evaluation, on a line that stays.
func (p *progress) evaluated(at train.Progress, metrics map[string]float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at.Step == 0 { // of no epochs: none was begun
		at.Epoch = 0
	}
	f := figures{at, metrics}
	p.last = f
	switch p.style {
	case bar:
		p.clear()
		fmt.Fprintln(p.out, evaluationLine(f))
	case lines:
		fmt.Fprintln(p.out, "evaluated "+keyValues(f))
	case objects:
		p.object("evaluation", f)
	}
}

// say shows a sentence once, on a line that stays.
func (p *progress) say(event, sentence string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said[sentence] {
		return
	}
	if p.said == nil {
		p.said = map[string]bool{}
	}
	p.said[sentence] = true
	switch p.style {
	case objects:
		p.encode(map[string]any{"event": event, "message": sentence})
	case bar, lines:
		p.clear()
		fmt.Fprintln(p.out, sentence)
	case quiet:
		if event == "notice" { // it went wrong, though training goes on
			fmt.Fprintln(p.out, sentence)
		}
	}
}

// notice is say for what happened in training. What went well is no news to those who want to hear only of what went wrong.
func (p *progress) notice(level observe.Level, sentence string) {
	if p.style != quiet || level != observe.Info {
		p.say("notice", sentence)
	}
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

// draw shows the newest figures; p.mu is held.
func (p *progress) draw() {
	switch p.style {
	case bar:
		width, _ := p.size()
		fmt.Fprint(p.out, "\r"+barLine(p.last, width, p.color)+"\x1b[K")
		p.drawn = true
	case lines:
		fmt.Fprintln(p.out, keyValues(p.last))
	case objects:
		p.object("progress", p.last)
	}
}

func (p *progress) object(event string, f figures) {
	o := map[string]any{
		"event": event, "epoch": f.Epoch, "epochs": f.Epochs, "step": f.Step, "steps": f.Steps,
		"samples": f.Samples, "samples_per_second": finite.OrNil(f.SamplesPerSec()), "seconds": f.Elapsed.Seconds(),
	}
	if !math.IsNaN(f.Loss) { // else no update has one yet
		o["loss"] = finite.OrNil(f.Loss)
	}
	if left := f.Left(); left >= 0 {
		o["seconds_left"] = left.Seconds()
	}
	for name, v := range f.Metrics {
		o[name] = finite.OrNil(v)
	}
	p.encode(o)
}

func (p *progress) encode(o any) {
	line, err := json.Marshal(o)
	if err != nil {
		line = fmt.Appendf(nil, `{"event":"error","message":%q}`, err)
	}
	fmt.Fprintf(p.out, "%s\n", line)
}

// barLine is the bar: epoch, share done, loss, rate and time left, in width columns.
func barLine(f figures, width int, color bool) string {
	share := 0.0
	if f.Steps > 0 {
		share = min(1, float64(f.Step)/float64(f.Steps))
	}
	head := "step " + thousands(f.Step)
	if f.Epochs > 0 {
		head = fmt.Sprintf("epoch %d/%d", f.Epoch, f.Epochs)
	}
	loss := ""
	if !math.IsNaN(f.Loss) { // else no update has one yet
		loss = "  loss " + figure(f.Loss)
	}
	tail := fmt.Sprintf(" %3.0f %%%s  %s samples/s", 100*share, loss, quantity.Short(f.SamplesPerSec()))
	if left := f.Left(); left >= 0 {
		tail += "  left " + clock(left)
	}
	cells := width - len(head) - len(tail) - 5
	if cells < 5 { // too narrow for a bar
		line := head + tail
		return line[:min(len(line), max(0, width-1))]
	}
	cells = min(cells, 40)
	done := int(share * float64(cells))
	filled := strings.Repeat("=", done)
	if done > 0 && done < cells {
		filled = filled[1:] + ">"
	}
	empty := strings.Repeat(" ", cells-done)
	if color {
		return fmt.Sprintf("%s  [\x1b[32m%s\x1b[0m%s]%s", head, filled, empty, tail)
	}
	return fmt.Sprintf("%s  [%s%s]%s", head, filled, empty, tail)
}

// keyValues is the line for a pipe.
func keyValues(f figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch=%d step=%d", f.Epoch, f.Step)
	if f.Steps > 0 {
		fmt.Fprintf(&b, " steps=%d", f.Steps)
	}
	if !math.IsNaN(f.Loss) { // else no update has one yet
		fmt.Fprintf(&b, " loss=%s", figure(f.Loss))
	}
	fmt.Fprintf(&b, " samples_per_second=%.0f seconds=%.1f", f.SamplesPerSec(), f.Elapsed.Seconds())
	if left := f.Left(); left >= 0 {
		fmt.Fprintf(&b, " left=%.0f", left.Seconds())
	}
	for _, name := range slices.Sorted(maps.Keys(f.Metrics)) {
		fmt.Fprintf(&b, " %s=%s", name, figure(f.Metrics[name]))
	}
	return b.String()
}

// evaluationLine is what stays on a terminal of an evaluation.
func evaluationLine(f figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %-3d", f.Epoch)
	if !math.IsNaN(f.Loss) { // else no update has one yet
		fmt.Fprintf(&b, " loss %-8s", figure(f.Loss))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Metrics)) {
		fmt.Fprintf(&b, "  %s %s", name, figure(f.Metrics[name]))
	}
	fmt.Fprintf(&b, "  %s samples/s", quantity.Short(f.SamplesPerSec()))
	return b.String()
}

// figure is x with four digits that count.
func figure(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }

// thousands is 10980 as 10,980.
func thousands(n int64) string { return quantity.Grouped(float64(n), 0) }

// clock is 90 s as 01:30.
func clock(d time.Duration) string {
	s := int64(d.Round(time.Second).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}
