package compare

import (
	"fmt"
	"strings"

	"github.com/trivium-ml/trivium/observe/report"
	"github.com/trivium-ml/trivium/observe/svg"
)

// published are the figures of Zhang, Alqahtani and Demirbas (ICCCN 2017), Tables 1 and 3, in samples a second: shown beside ours, on
// other hardware, and never ranked with them.
var published = []figure{
	{"logistic", 0, "Spark", 5883},
	{"logistic", 100, "TensorFlow", 403},
	{"logistic", 500, "TensorFlow", 443},
	{"logistic", 100, "MXNet", 19277},
	{"logistic", 500, "MXNet", 19283},
	{"logistic", 1, "PMLS SSP 3", 21132},
	{"softmax", 0, "Spark", 424600},
	{"softmax", 500, "TensorFlow sync", 113787},
	{"softmax", 500, "TensorFlow async", 149759},
	{"softmax", 500, "MXNet sync", 221853},
	{"softmax", 500, "MXNet async", 259076},
	{"mlp1", 0, "Spark", 24303},
	{"mlp1", 500, "TensorFlow sync", 23485},
	{"mlp1", 500, "TensorFlow async", 27099},
	{"mlp1", 500, "MXNet sync", 24383},
	{"mlp1", 500, "MXNet async", 25644},
	{"mlp2", 0, "Spark", 9133},
	{"mlp2", 500, "TensorFlow sync", 15283},
	{"mlp2", 500, "TensorFlow async", 22206},
	{"mlp2", 500, "MXNet sync", 16122},
	{"mlp2", 500, "MXNet async", 18511},
}

// A figure is a published speed.
type figure struct {
	task   string
	batch  int // 0: full
	system string
	rate   float64
}

// rateOf is the published speed of a system on a task.
func rateOf(task, system string, batch int) float64 {
	for _, f := range published {
		if f.task == task && f.system == system && (f.batch == batch || batch < 0) {
			return f.rate
		}
	}
	return 0
}

// publishedTable is the published counterpart of a table; false: there is none.
func publishedTable(t *Table) (report.Table, bool) {
	out := report.Table{
		Caption: []report.Span{report.Text("Published (Zhang, Alqahtani and Demirbas 2017), other hardware: three workers of an m4.xlarge each. Not ranked with ours.")},
		Columns: []report.Column{{Name: "system"}, {Name: "batch"}, {Name: "speed", Unit: "samples/s"}}, Compact: true,
	}
	if t.Own || strings.HasSuffix(t.Task, "-10k") || t.Workers != 3 {
		return out, false
	}
	for _, f := range published {
		batch := Batch(f.batch)
		if f.batch == 0 {
			batch = -1
		}
		if f.task == t.Task && (batch == t.Batch || f.batch == 1) {
			out.Rows = append(out.Rows, report.Row{Muted: true, Cells: []report.Cell{report.Name(f.system), report.Name(batch.String()), report.Number(f.rate, svg.Short)}})
		}
	}
	return out, len(out.Rows) > 0
}

// A Claim is one of the paper's, with what this run says of it.
type Claim struct {
	ID        string `json:"id"`
	Text      string `json:"claim"`
	Published string `json:"published"`
	Verdict   string `json:"verdict"` // holds here, does not hold here, undecided
	Why       string `json:"why"`
}

const (
	holds     = "holds here"
	holdsNot  = "does not hold here"
	undecided = "undecided"
)

func (r *Report) claimTable() []report.Block {
	if len(r.Claims) == 0 {
		return nil
	}
	t := report.Table{
		Name: "claims", Caption: caption("What the paper and the survey say, and what this run says of it, corrected by Holm over all that could be judged."),
		Columns: []report.Column{{Name: "claim"}, {Name: "what it says"}, {Name: "published evidence"}, {Name: "here"}, {Name: "why"}},
	}
	for _, c := range r.Claims {
		tone := map[string]report.Tone{holds: report.Good, holdsNot: report.Bad, undecided: report.Open}[c.Verdict]
		t.Rows = append(t.Rows, report.Row{Cells: []report.Cell{
			report.Name(c.ID), report.Name(c.Text), report.Name(c.Published), report.Verdict(tone, c.Verdict), report.Name(c.Why),
		}})
	}
	return []report.Block{t}
}

// gap is where the published gap goes: for each pair of systems whose twin exists here, from the peer as shipped to the best topology.
func (r *Report) gap() []report.Block {
	return []report.Block{say("No published pair has both its peers and its twins in this run: %s.", orElse(r.gapWhy(), "there is nothing to draw"))}
}

func (r *Report) gapWhy() string {
	if len(r.Absent) > 0 {
		return fmt.Sprintf("%d systems are not installed", len(r.Absent))
	}
	return "no peer was asked for"
}
