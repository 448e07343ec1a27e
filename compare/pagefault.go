package compare

import (
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/train/processes"
)

// effort is what happens to each system when a process is lost, and what it asks of its user.
func (r *Report) effort() []report.Block {
	var blocks []report.Block
	if len(r.Faults) > 0 {
		first, at := r.Faults[0], ""
		if first.Link.Mbit > 0 {
			at = fmt.Sprintf(" at %s", first.Link)
		}
		table := report.Table{
			Name: "faults", Caption: caption("A process of each row, with what it had started, was killed (SIGKILL), or stood still for %v (SIGSTOP), a second into its training of %s with %s%s.", faultStop, first.Task, quantity.Count(first.Workers, "worker"), at),
			Columns: []report.Column{{Name: "row"}, {Name: "signal"}, {Name: "to a"}, {Name: "outcome"}, {Name: "after", Unit: "s"}, {Name: "the others meanwhile"}, {Name: "what it says"}},
			Notes: []string{
				"After a kill: until all other workers had ended by themselves. Work lost is what was done since the last checkpoint; within a trial no row keeps one.",
				"After a standstill: from its end to the next bytes that worker 0 sent, where it had waited.",
				"Trivium takes a process for dead that says nothing for " + processes.Silence.String() + " (longer on a machine whose own delays are long) and that nobody who is asked hears, and ends the job; outside a comparison, --resume then goes on from its newest checkpoint.",
			},
		}
		last := ""
		for _, f := range r.Faults {
			row := report.Row{}
			if f.System != last {
				row.Heading, last = f.System, f.System
			}
			outcome, after := report.Verdict(report.Open, orElse(f.Error, "not measured")), report.Cell{}
			switch {
			case f.Error != "":
			case r.peer(f.System) && !f.Whole: // what came of it says nothing: the process that trains may have gone on
				f.Others, f.Said = "", ""
				outcome = report.Verdict(report.Open, "not measured: the signal reached the first process alone, and nothing that it had started")
			case f.Signal == "kill" && f.Ended:
				outcome = report.Verdict(report.Good, f.Outcome)
				after = report.Number(f.Seconds, report.Digits(1))
			case f.Signal == "stop" && f.Outcome == "goes on":
				outcome = report.Verdict(report.Good, f.Outcome)
				if f.Seconds > 0 {
					after = report.Number(f.Seconds, report.Digits(3))
				}
			default:
				outcome = report.Verdict(report.Bad, f.Outcome)
			}
			row.Cells = []report.Cell{report.Name(f.System), report.Name(f.Signal), report.Name(string(f.Role)), outcome, after, report.Name(f.Others), report.Name(clip(f.Said, 160))}
			table.Rows = append(table.Rows, row)
		}
		blocks = append(blocks, table)
	} else if !r.Quick {
		blocks = append(blocks, say("Faults were not measured: --faults asks for them."))
	}
	if r.Quick || r.own() { // whose user has a job, and writes no program
		return blocks
	}
	table := report.Table{
		Name: "effort", Caption: caption("What a row asks of its user: lines of a program for the paper's tasks, without blank lines and comments, counted in compare/peers, with what a program takes of another there; and the processes that he starts."),
		Columns: []report.Column{{Name: "row"}, {Name: "lines of code"}, {Name: "processes to start"}, {Name: "command"}},
		Notes:   []string{"What the harness asks of other systems' programs (a Spec is read, snapshots are written) is in one file beside them, and is not counted."},
	}
	for _, e := range r.Efforts {
		command := report.Cell{}
		if e.Command != "" {
			command = report.Words(report.Mono(e.Command))
		}
		lines := report.Number(float64(e.Lines), report.Digits(0))
		if e.NoCount != "" {
			lines = report.Missing(e.NoCount)
		}
		table.Rows = append(table.Rows, report.Row{Cells: []report.Cell{report.Name(e.System), lines, report.Name(e.Processes), command}})
	}
	if len(table.Rows) > 0 {
		blocks = append(blocks, table)
	}
	return blocks
}

// peer reports whether that row is another system's.
func (r *Report) peer(system string) bool {
	return slices.ContainsFunc(r.Tables, func(t *Table) bool { x := t.row(system); return x != nil && x.Peer })
}

// clip is s in at most n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s …", printable(s[:n]))
}
