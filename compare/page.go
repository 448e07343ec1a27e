package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/host"
	"github.com/trivium-ml/trivium/observe/report"
)

func (r *Report) html(f *os.File) error { return r.page().WriteHTML(f) }

func (r *Report) csv(f *os.File) error { return r.page().WriteCSV(f) }

// page lays the report out in the order of the evaluation: where the published gap goes, a verdict per claim, the setup, the proof, the
// tables, the way to the target, the sweep of staleness, processor, memory and network by role, scaling, phases, the single thread,
// threats, and what was not found.
func (r *Report) page() *report.Page {
	title, speed, faults := "Topologies compared", "Speed, in the paper's layout and in ours", "Faults and effort"
	switch {
	case r.Quick:
		title += ", quickly"
	case r.own():
		title, speed, faults = title+": "+r.Tables[0].Task, "Speed", "Faults"
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
	add(speed, append(r.paperTables(), r.speed()...)...)
	add("Time to target", r.way()...)
	add("The sweep of staleness", r.staleness()...)
	add("Processor, memory and network by role", r.roles()...)
	add("Scaling", r.scaling()...)
	add("Where a step's time goes", r.phases()...)
	add("The best single thread", r.single()...)
	add(faults, r.effort()...)
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
	var blocks []report.Block
	if r.unfinished {
		blocks = append(blocks, report.Callout{Tone: report.Open, Title: "This comparison is not finished", Blocks: []report.Block{report.Paragraph{
			report.Text("What is still to come may change which row is first. The command that began it goes on with it: "), report.Mono(orElse(r.Command, "trivium compare")), report.Text("."),
		}}})
	}
	if r.Best != nil {
		blocks = append(blocks, r.Best.blocks()...)
	} else if tiles := r.tiles(); len(tiles) > 0 {
		blocks = append(blocks, tiles)
	}
	text := "Each row trains the same model on the same rows from the same initial weights, on the same cores; what differs is where the parameters live, who waits for whom, and what the row's name says beside that. Medians of %s, each of which takes all rows in turn; warm-up and evaluation are outside the clock."
	blocks = append(blocks, say(text, r.repeats(r.Tables...)))
	if r.Quick {
		blocks = append(blocks, say("A quick look has no verdicts: they are the full run's."))
	}
	if flagged, of := r.flagged(); flagged*10 > of {
		blocks = append(blocks, report.Callout{Tone: report.Warn, Title: fmt.Sprintf("%d of %s are flagged", flagged, quantity.Count(of, "trial")), Blocks: []report.Block{say("Something else had the machine before or during them: what they took is partly its doing. What, the threats to validity say.")}})
	}
	return blocks
}

// tiles are the best rows of the first tables.
func (r *Report) tiles() (tiles report.Tiles) {
	for _, t := range r.Tables {
		best, next := t.first()
		if best == nil || len(tiles) == 4 {
			continue
		}
		note := ""
		if next != nil {
			v := Judge(best.Target.Values, next.Target.Values)
			note = fmt.Sprintf("%.2f times as fast as %s", v.Ratio, next.System)
			if min(len(best.Target.Values), len(next.Target.Values)) >= fewest {
				note += fmt.Sprintf(" (95 %% interval %.2f to %.2f)", v.Low, v.High)
			}
			if next.Effective != best.Effective {
				note += fmt.Sprintf(", which has %s rows in an update where it has %s", Batch(next.Effective), Batch(best.Effective))
			}
			if best.Crowded || next.Crowded {
				note += "; oversubscribed, so no verdict"
			}
		}
		tiles = append(tiles, report.Tile{Value: best.System + ", " + quantity.Seconds(best.Target.Median), Label: fmt.Sprintf("%s: the soonest to %v", t.title(), t.Target), Note: note})
	}
	return tiles
}

func (r *Report) setup() []report.Block {
	facts := report.Facts{
		{Name: "machine", Value: caption("%s", r.Machine)},
		{Name: "cores of every row", Value: caption("%d", r.Cores)},
		{Name: "repeats", Value: caption("%s, each of all rows in turn", r.repeats(r.Tables...))},
		{Name: "warm-up", Value: caption("20 updates or %g s, whichever is later, on parameters that are then discarded", r.WarmUp)},
		{Name: "measured", Value: caption("at least %g s a trial, and an epoch past the target%s", r.Seconds, r.short())},
		{Name: "arithmetic", Value: caption("float32, one arithmetic thread a worker unless the row says otherwise")},
		{Name: "started", Value: caption("%s", r.Created)},
	}
	if n := len(r.Sittings); n > 1 {
		facts = append(facts, report.Fact{Name: "sittings", Value: caption("%d, the last begun %s", n, r.Sittings[n-1].Began.Format("2006-01-02 15:04 MST"))})
	}
	if !r.own() {
		facts = append(facts, report.Fact{Name: "seed, order of rows", Value: caption("%d; index order, the short last update dropped", paperSeed)})
	}
	facts = append(facts, r.hostFacts()...)
	links := r.linkWords()
	for _, x := range links {
		facts = append(facts, report.Fact{Name: "link " + x.link.String(), Value: caption("%s", x.text)})
	}
	versions := r.versions()
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		facts = append(facts, report.Fact{Name: name, Value: caption("%s", versions[name])})
	}
	blocks := []report.Block{facts}
	if len(links) > 0 {
		blocks = append(blocks, say("Links are measured before the first trial on each, in every sitting: what one TCP connection between two of its namespaces carries one way, without headers, and how long a byte takes there and back."))
	}
	for _, n := range r.Notes {
		blocks = append(blocks, say("%s", n))
	}
	blocks = append(blocks, r.tuning()...)
	var tasks report.Table
	tasks.Name, tasks.Caption = "tasks", caption("What was trained.")
	tasks.Columns = []report.Column{{Name: "task"}, {Name: "model"}, {Name: "data"}, {Name: "target"}, {Name: "counts within"}, {Name: "checksum of the data"}}
	seen := map[string]bool{}
	for _, t := range r.Tables {
		key := t.Task + t.Target.String()
		if seen[key] {
			continue
		}
		seen[key] = true
		tasks.Rows = append(tasks.Rows, report.Row{Cells: []report.Cell{
			report.Name(t.Task), report.Name(t.Model), report.Name(t.Data), report.Name(t.Target.String()), report.Name(t.within()), report.Name(t.Checksum),
		}})
	}
	return append(blocks, tasks)
}

// short says how many trials are shorter than was ordered, and by how much: those that the time limit cut, and those that became faster than
// their warm-up was.
func (r *Report) short() string {
	good, short, least := 0, 0, r.Seconds
	for x := range r.results() {
		if x.Error != "" {
			continue
		}
		good++
		if x.Seconds < r.Seconds {
			short++
			least = min(least, x.Seconds)
		}
	}
	if short == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of %s are shorter, the shortest %.2f s", short, quantity.Count(good, "trial"), least)
}

// versions are those of all systems, by what has them: of ours once, since all rows are of one program.
func (r *Report) versions() map[string]string {
	list := map[string]string{}
	for system, f := range r.Facts {
		for name, v := range f {
			if name != "trivium" && name != "go" {
				name = system + ", " + name
			}
			list[name] = v
		}
	}
	return list
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
	if r.Lacking != "" {
		l.Items = append(l.Items, say("%s", r.Lacking))
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
				d.Blocks = append(d.Blocks, report.Paragraph{
					report.Text("It counts as measured. To measure it anew, remove its folder "), report.Mono(fmt.Sprintf("%s/%s-r%d", trialsDir, x.cell, one.Repeat)), report.Text(" and repeat the command."),
				})
				blocks = append(blocks, d)
			}
		}
	}
	return blocks
}

// hostFacts are what the machine says of itself.
func (r *Report) hostFacts() (facts report.Facts) {
	var h host.Facts
	if json.Unmarshal(r.Host, &h) == nil && h.OS != "" {
		facts = append(facts, report.Fact{Name: "system", Value: caption("%s, kernel %s", h.OS, h.Kernel)})
		if h.MemoryBytes > 0 {
			facts = append(facts, report.Fact{Name: "memory", Value: caption("%s", quantity.Bytes(h.MemoryBytes))})
		}
		if h.CPULimit > 0 {
			facts = append(facts, report.Fact{Name: "limit of the control group", Value: caption("%.2f cores", h.CPULimit)})
		}
	}
	if r.Frequency != "" {
		facts = append(facts, report.Fact{Name: "processor frequency", Value: caption("%s", r.Frequency)})
	}
	return facts
}
