package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/report"
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
			out.Rows = append(out.Rows, report.Row{Muted: true, Cells: []report.Cell{report.Name(f.system), report.Name(batch.String()), report.Number(f.rate, quantity.Short)}})
		}
	}
	return out, len(out.Rows) > 0
}

// A Claim is one of the paper's, with what this run says of it.
type Claim struct {
	ID        string  `json:"id"`
	Text      string  `json:"claim"`
	Published string  `json:"published"`
	Verdict   string  `json:"verdict"` // holds here, does not hold here, undecided
	Why       string  `json:"why"`
	P         float64 `json:"p,omitempty"` // corrected for all claims that could be judged; 0: this one could not
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
		Name: "claims", Caption: caption("What the paper and the survey say, and what this run says of it. The p beside a comparison is its own; a claim has one, of its comparisons together, and that is corrected by Holm over all claims that could be judged."),
		Columns: []report.Column{{Name: "claim"}, {Name: "here"}, {Name: "what it says"}, {Name: "why"}, {Name: "published evidence"}},
	}
	for _, c := range r.Claims {
		tone := map[string]report.Tone{holds: report.Good, holdsNot: report.Bad, undecided: report.Open}[c.Verdict]
		t.Rows = append(t.Rows, report.Row{Cells: []report.Cell{
			report.Name(c.ID), report.Verdict(tone, c.Verdict), report.Name(c.Text), report.Name(c.Why), report.Name(c.Published),
		}})
	}
	return []report.Block{t}
}

// A rule is what decides a claim: pairs of rows, of which the first must be ahead, in all tables of those tasks.
type rule struct {
	id, text, published string
	tasks               []string // empty: all
	pairs               []pair
	either              bool   // it says that the two differ, whichever is ahead
	same                bool   // it says that they do not: a difference refutes it, and nothing proves it
	often               bool   // it says what is so in most places: more than half of the comparisons, of several models at several links
	settled             string // decided by the publication itself: why
	lacks               string // why nothing here can decide it
	waits               string // a row whose workers' waiting is shown with the reason, as the model grows: see waiting
	fits                string // a row whose time a sample is fitted as a + b/batch, on logistic: shown with the reason
}

// A pair are two rows that a claim compares. For the second, others stands for all ranked rows but the first and those that go its way.
type pair struct {
	ahead, behind string
	by            measure
	shaped        bool     // at shaped links alone
	in            beside   // the table of the second
	tasks         []string // of these alone, on whatever there is of their data; empty: all of the rule's
	index         int      // among those of its rule; see among
}

// mnist are the tasks of Table 3: softmax, and then the networks.
var mnist = []string{"softmax", "mlp1", "mlp2"}

// A measure is what rows are compared by. The zero one is the time to the target.
type measure int

const (
	byTime          measure = iota // to the target
	bySpeed                        // samples a second
	bySamples                      // to the target
	byServing                      // cores that the servers keep busy
	byServingSystem                // seconds of the system that they take in an update
	byServingCalls                 // and their calls that move bytes
	byWorking                      // and the workers
	byFollowing                    // these, of each worker, beside its speed: see follows
)

// of is what the trials of a row took by that measure, where less is ahead, and its name.
func (m measure) of(x *Row, t *Table) ([]float64, string) {
	switch m {
	case bySpeed:
		return inverse(x.Rate.Values), "samples a second"
	case bySamples:
		return x.Samples.Values, "samples to " + t.Target.String()
	case byServing:
		return m.used(x), "busy cores of the servers"
	case byServingSystem:
		return m.used(x), "system time of the servers in an update"
	case byServingCalls:
		return m.used(x), "calls of the servers that move bytes in an update"
	case byWorking:
		return m.used(x), "busy cores of the workers"
	case byFollowing:
		return nil, "busy cores of each worker, beside its speed"
	default:
		return x.Target.Values, "time to " + t.Target.String()
	}
}

const (
	others    = "*"
	noDriver  = "it needs a driver topology (Spark's), which this version does not have"
	noReplica = "it needs TensorFlow's replicas, which this version does not have"
)

// rules are the claims of the paper (C1 to C22) and of the survey (C23, C24).
var rules = []rule{
	{id: "C1", text: "PMLS is fastest on logistic regression", published: "1.10 × MXNet, on other hardware and another algorithm", tasks: []string{"logistic"}, pairs: []pair{{ahead: "server-ssp3-clock10", behind: others}}},
	{id: "C2", text: "Spark lies between", published: "3.3 to 3.6 × below MXNet and PMLS; 13 to 15 × above TensorFlow", lacks: noDriver},
	{id: "C3", text: "TensorFlow is slow because of its abstractions", published: "403 → 443 from batch 100 to 500: 2.2 ms a sample of all workers together; 28 ms a step if that batch is all three workers', 84 if it is each one's, as here", lacks: "it needs TensorFlow at two batches, on logistic", fits: "tensorflow-sync"},
	{id: "C4", text: "MXNet does not depend on the batch", published: "19,277 → 19,283 implies 2 µs a step if that batch is all three workers', 6 if it is each one's, as here", lacks: "it needs MXNet at two batches, on logistic", fits: "mxnet-sync", tasks: []string{"logistic"}, same: true, pairs: []pair{{ahead: "mxnet-sync", behind: "mxnet-sync", by: bySpeed, in: largerBatch}}},
	{id: "C5", text: "Spark is fastest on softmax", published: "1.64 × the next", lacks: noDriver},
	{id: "C6", text: "Spark falls below the others with one and two hidden layers", published: "two: 0.41 to 0.60 ×; one: 1.03 × TensorFlow, 0.3 % below MXNet", lacks: noDriver},
	{id: "C7", text: "the article: Spark lags PMLS and MXNet in both tasks", published: "Table 3", settled: "the paper's own Table 3 contradicts it: 424,600 for Spark on softmax against 259,076; PMLS was not in the second task"},
	{id: "C8", text: "Spark loses most as the model grows", published: "softmax to two layers: ÷46 Spark, ÷7 TensorFlow, ÷14 MXNet", lacks: noDriver},
	{id: "C9", text: "asynchronous beats synchronous", published: "TensorFlow 1.32, 1.15, 1.45 ×; MXNet 1.17, 1.05, 1.15 ×", pairs: []pair{
		{ahead: "server-asp", behind: "server-bsp", by: bySpeed},
		{ahead: "mxnet-async", behind: "mxnet-sync", by: bySpeed},
		{ahead: "tensorflow-async", behind: "tensorflow-sync", by: bySpeed},
		{ahead: "server-asp", behind: "server-bsp"}, // and to the target, where it may not; the others train at more times the rate there: see wholeSteps
	}},
	{id: "C10", text: "MXNet is a little faster than TensorFlow, except on asynchronous networks", published: "softmax 1.95 × and 1.73 ×; else 1.04 and 1.05 sync, 0.95 and 0.83 async", lacks: "it compares two other systems that must both be here", pairs: []pair{
		{ahead: "mxnet-sync", behind: "tensorflow-sync", tasks: mnist},
		{ahead: "mxnet-async", behind: "tensorflow-async", tasks: mnist[:1]},
		{ahead: "tensorflow-async", behind: "mxnet-async", tasks: mnist[1:]}, // the exception
	}},
	{id: "C11", text: "Spark takes most processor and memory, least network", published: "figures 7 to 11, 14, 15", lacks: noDriver},
	{id: "C12", text: "synchronisation costs TensorFlow and MXNet more than Spark", published: "figure 12", lacks: noDriver},
	{id: "C13", text: "the SSP bound changes speed", published: "Table 2", tasks: []string{"logistic", "mlp1", "mlp1-10k"}, either: true, pairs: []pair{{ahead: "server-ssp3", behind: "server-bsp", by: bySpeed}, {ahead: "server-ssp10", behind: "server-ssp1", by: bySpeed}, {ahead: "server-ssp3-slow", behind: "server-bsp-slow", by: bySpeed}}},
	{id: "C14", text: "Spark's speed depends strongly on the number of partitions", published: "text only", lacks: noDriver},
	{id: "C15", text: "the model as a dataset is far slower than at the driver", published: "text only", lacks: noDriver},
	{id: "C16", text: "Spark's processors work mainly on serialisation", published: "text, figure 7", lacks: noDriver},
	{id: "C17", text: "worker processors follow speed; servers' grow with the workers", published: "figure 13, by network system calls", lacks: "it needs a row with servers at several numbers of workers", pairs: slices.Concat(
		growing("server-bsp"), growing("mxnet-sync"), growing("tensorflow-sync"),
	)},
	{id: "C18", text: "MXNet needs less processor for a bigger model", published: "figure 7, unexplained there", lacks: "it needs MXNet on several of MNIST's models", waits: "mxnet-sync", pairs: []pair{
		{ahead: "mxnet-sync", behind: "mxnet-sync", by: byWorking, in: smallerModel},
	}},
	{id: "C19", text: "Spark takes about twice the memory, MXNet the least", published: "figures 8, 14", lacks: noDriver},
	{id: "C20", text: "Spark is best with the full batch", published: "text", lacks: noDriver},
	{id: "C21", text: "dataflow lacks mutable state and fast iterations", published: "text", lacks: noDriver},
	{id: "C22", text: "the network remains the bottleneck; in Spark the processor comes first", published: "text", lacks: noDriver},
	{id: "C23", text: "allreduce often beats parameter servers", published: "text (the survey, of Horovod)", often: true, pairs: []pair{{ahead: "allreduce", behind: "server-bsp", shaped: true}, {ahead: "horovod", behind: "mxnet-sync", shaped: true}}},
	{id: "C24", text: "stale gradients slow convergence; compression pays on slow links", published: "text", pairs: []pair{
		{ahead: "allreduce-topk", behind: "allreduce", shaped: true},
		{ahead: "server-bsp", behind: "server-ssp10", by: bySamples},
		{ahead: "server-bsp", behind: "server-asp", by: bySamples}, // whose steps are as long, a sample
	}},
}

// among are the pairs of rows of a table.
func (x *rule) among(t *Table) (pairs []pair) {
	for i, p := range x.pairs {
		p.index = i
		if len(p.tasks) > 0 && !slices.Contains(p.tasks, strings.TrimSuffix(t.Task, "-10k")) {
			continue
		}
		if p.behind != others {
			pairs = append(pairs, p)
			continue
		}
		for _, y := range t.Rows {
			if y.Ranked && y.System != p.ahead && y.Approx != perSample { // PMLS's way with other clocks, or PMLS, refutes nothing said of PMLS
				p.behind = y.System
				pairs = append(pairs, p)
			}
		}
	}
	return pairs
}

// absent reports whether the row's system was not here: a comparison with it is as good as none, and gives no reason for an open verdict.
func (x *Row) absent() bool { return !x.Ranked && x.Good == 0 && len(x.Trials) == 0 }

// A judged is a comparison that a claim rests on.
type judged struct {
	by      measure
	table   *Table // of the first of its rows
	verdict Verdict
}

// A ruling is what there is to decide a claim by.
type ruling struct {
	list     []judged
	reason   string // what kept the last that is not among them from it
	unranked string // of what would else be: then nothing is known to hold in all tables
	open     int    // how many those are
	part     bool   // a pair is not among them whose systems are both here
}

// judge decides the claims. Each has one p, of what its comparisons say together, and these are corrected together: where single comparisons were,
// a claim would lose its verdict by the number of tables in which others are looked at, however far its own rows are apart.
func (r *Report) judge() {
	rulings := make([]ruling, len(rules))
	var family []float64
	for i := range rules {
		c := r.compared(&rules[i])
		for _, j := range c.list {
			r.Verdicts = append(r.Verdicts, j.verdict)
		}
		if len(c.list) > 0 {
			family = append(family, rules[i].p(&c))
		}
		rulings[i] = c
	}
	corrected := holm(family, len(family))
	for i := range rules {
		p := 1.0
		if len(rulings[i].list) > 0 {
			p, corrected = corrected[0], corrected[1:]
		}
		r.Claims = append(r.Claims, r.claim(&rules[i], &rulings[i], p, len(family)))
	}
}

// compared are the comparisons that a claim rests on, each with its own p. One wants rows that may be ranked, a core for each busy thread, and, of
// claims about topologies, a shaped link.
func (r *Report) compared(x *rule) (out ruling) {
	among := make([]bool, len(x.pairs))
	for _, t := range r.Tables {
		if len(x.tasks) > 0 && !slices.Contains(x.tasks, t.Task) {
			continue
		}
		for _, p := range x.among(t) {
			u := r.beside(t, p.in) // of the second row
			if u == nil {
				continue
			}
			a, b := t.row(p.ahead), u.row(p.behind)
			if a == nil || b == nil || a.absent() || b.absent() {
				continue
			}
			crowded, unshaped, doubtful, where := a.Crowded || b.Crowded, p.shaped && (t.Link.Mbit == 0 || r.unshaped(t)), a, t
			if a.Ranked {
				doubtful, where = b, u
			}
			switch {
			case !doubtful.Ranked:
				out.reason = fmt.Sprintf("%s: %s: %s", where.title(), doubtful.System, doubtful.Why)
				if !crowded && !unshaped {
					out.unranked = out.reason
					out.open++
				}
			case crowded:
				out.reason = fmt.Sprintf("oversubscribed: more busy threads than the %s", quantity.Count(r.Cores, "core"))
			case unshaped && t.Link.Mbit > 0:
				out.reason = fmt.Sprintf("it is judged at shaped links alone, and that of %s was measured to be faster", t.Link)
			case unshaped:
				out.reason = "it is judged at shaped links alone, and these are not: an unshaped loopback hides what topologies differ in"
			case !p.by.known(a, b):
				out.reason = fmt.Sprintf("%s: the %s of %s was not measured", t.title(), p.by.wanted(), a.System)
				out.unranked = out.reason
				out.open++
			default:
				_, of := p.by.of(a, t)
				v := p.by.judge(a, b, t, u)
				v.Name = fmt.Sprintf("%s, %s: %s against %s, %s", x.id, t.title(), a.System, p.against(u), of)
				out.list = append(out.list, judged{p.by, t, v})
				among[p.index] = true
			}
		}
	}
	for i := range x.pairs {
		p := &x.pairs[i]
		out.part = out.part || !among[i] && r.shows(p.ahead) && r.shows(p.behind)
	}
	return out
}

// shows reports whether some table has that system, and it was here.
func (r *Report) shows(system string) bool {
	return slices.ContainsFunc(r.Tables, func(t *Table) bool { x := t.row(system); return x != nil && !x.absent() })
}

// p is that of the claim, before it is corrected. That all comparisons are as it says has the largest of theirs; that one at least refutes it,
// Simes's of those that do; that most are on one side, see atLeast. 1: they say none of that.
func (x *rule) p(c *ruling) float64 {
	var ahead, behind []float64
	for _, j := range c.list {
		switch j.verdict.Outcome {
		case Faster:
			ahead = append(ahead, j.verdict.P)
		case Slower:
			behind = append(behind, j.verdict.P)
		}
	}
	differ, n := slices.Concat(ahead, behind), len(c.list)
	switch all := n + c.open; {
	case x.often && 2*len(ahead) > all:
		return atLeast(all/2+1, ahead, all)
	case x.often && 2*len(behind) >= all:
		return atLeast((all+1)/2, behind, all)
	case x.often:
		return 1
	case x.same:
		return simes(differ, n)
	case !x.either && len(behind) > 0:
		return simes(behind, n)
	case n > 0 && len(differ) == n:
		return slices.Max(differ)
	}
	return 1
}

// claim is the verdict on a claim, of which p is corrected for those of so many.
func (r *Report) claim(x *rule, c *ruling, p float64, claims int) Claim {
	out := Claim{ID: x.id, Text: x.text, Published: x.published, Verdict: undecided, Why: orElse(c.reason, orElse(x.lacks, "its rows were not measured"))}
	if len(c.list) > 0 {
		out.P = p
		if out.Verdict, out.Why = x.decide(c); out.Verdict != undecided && !(p < level) {
			out.Verdict, out.Why = undecided, "so each comparison says by itself, but not beside the other claims: "+out.Why
		}
		if p < 1 {
			out.Why += fmt.Sprintf("; p of the claim %.2g, corrected for %s", p, quantity.Count(claims, "claim"))
		}
	}
	switch text := r.fit(x.fits); {
	case text == "":
	case len(c.list) > 0:
		out.Why += "; two batches also give a line: " + text
	default:
		out.Why = "two batches give a line, and no test: " + text
	}
	if text := r.waiting(x.waits); text != "" {
		out.Why += "; " + text
	}
	if x.settled != "" {
		out.Verdict, out.Why = holdsNot, x.settled
	}
	return out
}

// decide is what the comparisons of a claim say of it, each by itself, and why.
func (x *rule) decide(c *ruling) (verdict, why string) {
	var words []string
	faster, slower, parts := 0, 0, map[measure]bool{}
	models, links := map[string]bool{}, map[int]bool{}
	for _, p := range x.pairs {
		parts[p.by] = true
	}
	for _, j := range c.list {
		v := j.verdict
		delete(parts, j.by)
		models[j.table.Model], links[j.table.Link.Mbit] = true, true
		switch v.Outcome {
		case Faster:
			faster++
		case Slower:
			slower++
		}
		words = append(words, fmt.Sprintf("%s: %.2f × (%.2f to %.2f, p %.2g)", strings.TrimPrefix(v.Name, x.id+", "), v.Ratio, v.Low, v.High, v.P))
	}
	if c.unranked != "" {
		words = append(words, c.unranked)
	}
	why = strings.Join(words, "; ")
	switch {
	case x.either && faster+slower == len(words):
		return holds, why
	case x.often && (len(models) < 2 || len(links) < 2):
		return undecided, fmt.Sprintf("what is often so shows in several models at several rates of the links, and this is %s at %s: %s", quantity.Count(len(models), "model"), quantity.Count(len(links), "rate"), why)
	case x.often:
		n := len(c.list) + c.open
		return often(faster, slower, n), fmt.Sprintf("ahead in %d of %d, behind in %d: %s", faster, n, slower, why)
	case x.same && faster+slower > 0:
		return holdsNot, why
	case x.same:
		return undecided, "no difference is proven, and none is excluded: " + why
	case slower > 0 && !x.either:
		return holdsNot, why
	case faster == len(words) && (c.part || len(parts) > 0):
		why = "only a part of it could be judged: " + why
		if c.reason != "" {
			why += "; of the rest: " + c.reason
		}
		return undecided, why
	case faster == len(words):
		return holds, why
	}
	return undecided, "no difference is proven in all: " + why
}

// often is the verdict on what is said to be so in most of n comparisons, those whose rows may not be ranked among them: undecided, as long
// as those that prove no difference could still tip it.
func often(ahead, behind, n int) string {
	switch {
	case 2*ahead > n:
		return holds
	case 2*behind >= n:
		return holdsNot
	}
	return undecided
}
