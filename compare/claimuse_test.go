package compare

import (
	"slices"
	"strings"
	"testing"
)

// busyRow is a row of seven repeats whose workers, each, and servers kept about so many cores busy; none: that was not measured. The servers' calls
// are as many as they keep millionths of a core busy.
func busyRow(system string, workers int, speed, each, servers float64) *Row {
	x := &Row{System: system, Workers: workers, Ranked: true, Good: 7}
	var rates []float64
	for n := range 7 {
		more := 1 + float64(n)/100
		rates = append(rates, float64(workers)*speed*more)
		result := Result{Updates: 10, Samples: 1, Window: 2}
		if each+servers > 0 {
			result.PerRole = map[Role]Use{
				WorkerRole: {Processes: workers, User: 2 * float64(workers) * each * more},
				ServerRole: {Processes: 1, User: servers * more, System: servers * more, Calls: &Calls{2_000_000, int64(1e6 * servers * more), 10}},
			}
		}
		x.Trials = append(x.Trials, Repeat{Repeat: n + 1, Result: result})
	}
	x.Trials = append(x.Trials, Repeat{Repeat: 8, Result: Result{Error: "it hangs", Window: 2, PerRole: map[Role]Use{WorkerRole: {User: 1e6}, ServerRole: {User: 1e6, Calls: &Calls{1, 1, 1}}}}})
	x.Rate = spread(rates)
	return x
}

// calling is a row whose servers made that many times the calls; 0: they were not counted.
func calling(x *Row, times float64) *Row {
	for _, one := range x.Trials {
		u := one.Result.PerRole[ServerRole]
		n := u.Calls
		u.Calls, u.CallsUnknown = nil, "not permitted"
		if times > 0 {
			u.Calls, u.CallsUnknown = &Calls{n.All, int64(times * float64(n.Transfers)), n.Updates}, ""
		}
		one.Result.PerRole[ServerRole] = u
	}
	return x
}

// TestClaimOfServersProcessors: servers' processors are to grow with the workers, and each worker's to go with its speed: both are judged, of the next
// larger number of workers at the same batch.
func TestClaimOfServersProcessors(t *testing.T) {
	one := busyRow("mxnet-sync", 1, 100, 0.9, 0.1)
	crowded := busyRow("mxnet-sync", 5, 60, 0.5, 0.6)
	crowded.Crowded = true
	for _, c := range []struct {
		name       string
		two, three *Row // of so many workers
		want       string
		why        []string
	}{
		{"grow, and follow", busyRow("mxnet-sync", 2, 80, 0.7, 0.2), nil, holds, []string{"mlp1, 1 worker, batch 100, loopback: mxnet-sync against itself with 2 workers, busy cores of the servers: 2.00 ×", "system time of the servers in an update: 2.00 ×", "calls of the servers that move bytes in an update: 2.00 ×", "busy cores of each worker, beside its speed: 1.29 ×"}},
		{"grow, and follow what rises", busyRow("mxnet-sync", 2, 120, 1.2, 0.2), nil, holds, []string{"beside its speed: 0.75 ×"}},
		{"grow, by fewer calls", busyRow("mxnet-sync", 2, 80, 0.7, 10), calling(busyRow("mxnet-sync", 3, 70, 0.6, 20), 0.25), holdsNot, []string{"busy cores of the servers: 2.00 ×", "calls of the servers that move bytes in an update: 0.50 ×"}},
		{"calls not counted", busyRow("mxnet-sync", 2, 80, 0.7, 0.2), calling(busyRow("mxnet-sync", 3, 70, 0.6, 0.3), 0), undecided, []string{"mlp1, 2 workers, batch 100 each, loopback: the number of system calls of mxnet-sync was not measured"}},
		{"fall", busyRow("mxnet-sync", 2, 80, 0.7, 0.05), nil, holdsNot, []string{"busy cores of the servers: 0.50 ×"}},
		{"do not follow", busyRow("mxnet-sync", 2, 80, 1.2, 0.2), nil, holdsNot, []string{"beside its speed: 0.75 ×"}},
		{"fall in the end", busyRow("mxnet-sync", 2, 80, 0.7, 0.2), busyRow("mxnet-sync", 3, 70, 0.6, 0.1), holdsNot, []string{"against itself with 2 workers", "mlp1, 2 workers, batch 100 each, loopback: mxnet-sync against itself with 3 workers"}},
		{"no speed to follow", busyRow("mxnet-sync", 2, 100, 0.7, 0.2), nil, undecided, []string{"no difference is proven in all"}},
		{"not measured", busyRow("mxnet-sync", 2, 80, 0, 0), nil, undecided, []string{"mlp1, 1 worker, batch 100, loopback: the processor time of mxnet-sync was not measured"}},
		{"oversubscribed", crowded, nil, undecided, []string{"oversubscribed"}},
		{"one number of workers", nil, nil, undecided, []string{"it needs a row with servers at several numbers of workers"}},
	} {
		r := &Report{Cores: 8}
		// The tables are in no order, and one is of another batch.
		for _, x := range []*Row{c.three, c.two, one} {
			if x != nil {
				r.Tables = append(r.Tables, &Table{Task: "mlp1", Model: "mlp:100", Workers: x.Workers, Batch: 100, Rows: []*Row{x}})
			}
		}
		r.Tables = append(r.Tables, &Table{Task: "mlp1", Model: "mlp:100", Workers: 2, Batch: 750, Rows: []*Row{busyRow("mxnet-sync", 2, 500, 0.1, 0.01)}})
		r.judge()
		x := r.Claims[slices.IndexFunc(r.Claims, func(x Claim) bool { return x.ID == "C17" })]
		if x.Verdict != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, x.Verdict, x.Why, c.want)
		}
		for _, why := range c.why {
			if !strings.Contains(x.Why, why) {
				t.Errorf("%s: %q does not say %q", c.name, x.Why, why)
			}
		}
	}
}

// TestClaimOfBiggerModels: MXNet's workers are to keep fewer cores busy with the next larger model, on the same data.
func TestClaimOfBiggerModels(t *testing.T) {
	for _, c := range []struct {
		name        string
		task, data  string
		small, cost float64 // busy cores of a worker
		want, why   string
	}{
		{"less", "mlp1", "digits", 0.9, 0.7, holds, "mxnet-sync against itself on softmax, busy cores of the workers: 1.29 ×"},
		{"more", "mlp1", "digits", 0.7, 0.9, holdsNot, "busy cores of the workers: 0.78 ×"},
		{"the same", "mlp1", "digits", 0.7, 0.7, undecided, "no difference is proven"},
		{"not the next", "mlp2", "digits", 0.9, 0.7, undecided, "it needs MXNet on several of MNIST's models"},
		{"other data", "mlp1", "mnist", 0.9, 0.7, undecided, "it needs MXNet on several of MNIST's models"},
		{"a tenth", "mlp1-10k", "digits", 0.9, 0.7, undecided, "it needs MXNet on several of MNIST's models"},
	} {
		r := &Report{Cores: 8, Tables: []*Table{
			{Task: "softmax", Model: "softmax", Data: "digits", Workers: 3, Batch: 500, Rows: []*Row{busyRow("mxnet-sync", 3, 100, c.small, 0.1)}},
			{Task: c.task, Model: "mlp:100", Data: c.data, Workers: 3, Batch: 500, Rows: []*Row{busyRow("mxnet-sync", 3, 100, c.cost, 0.1)}},
		}}
		r.judge()
		x := r.Claims[slices.IndexFunc(r.Claims, func(x Claim) bool { return x.ID == "C18" })]
		if x.Verdict != c.want || !strings.Contains(x.Why, c.why) {
			t.Errorf("%s: %s (%s), want %s and %q", c.name, x.Verdict, x.Why, c.want, c.why)
		}
	}
}

// TestWaitingOfBiggerModels: why a bigger model's workers keep fewer cores busy is said by what was measured: of an update, how long it takes, what it
// moves, and what it costs a worker.
func TestWaitingOfBiggerModels(t *testing.T) {
	row := func(rate, micros, bytes float64) *Row {
		return &Row{System: "mxnet-sync", Workers: 3, Effective: 1500, Good: 1, Rate: spread([]float64{rate}), Use: map[Role]PerUse{WorkerRole: {MicrosSample: micros, BytesSample: bytes}}}
	}
	quiet := row(75_000, 4, 0)
	quiet.Use[WorkerRole] = PerUse{MicrosSample: 4, NotCounted: "not permitted"}
	unmeasured := row(75_000, 0, 0)
	for _, c := range []struct {
		name string
		big  *Row
		want string
	}{
		{"waits", row(75_000, 4, 1280), "an update of mxnet-sync takes 10 × as long as on softmax (20 ms and 2 ms), moves 10 × the bytes, and costs a worker 4 × the processor time (2 ms and 500 µs): it computes no less, and waits for a larger part of it"},
		{"computes less", row(75_000, 0.5, 1280), "costs a worker 0.5 × the processor time (250 µs and 500 µs): it computes less"},
		{"computes", row(75_000, 12, 1280), "costs a worker 12 × the processor time (6 ms and 500 µs): it waits for no larger part of it"},
		{"waits hardly more", row(75_000, 9, 1280), "costs a worker 9 × the processor time (4.5 ms and 500 µs): it waits for no larger part of it"},
		{"no bytes", quiet, "(20 ms and 2 ms), and costs a worker"},
		{"not measured", unmeasured, ""},
		{"not there", nil, ""},
	} {
		r := &Report{Tables: []*Table{{Task: "mlp1", Workers: 3, Batch: 500}, {Task: "softmax", Workers: 3, Batch: 500, Rows: []*Row{row(750_000, 1, 128)}}}}
		if c.big != nil {
			r.Tables[0].Rows = []*Row{c.big}
		}
		r.judge()
		x := r.Claims[slices.IndexFunc(r.Claims, func(x Claim) bool { return x.ID == "C18" })]
		if said := strings.Contains(x.Why, "an update of"); said != (c.want != "") || !strings.Contains(x.Why, c.want) {
			t.Errorf("%s: %q, want %q", c.name, x.Why, c.want)
		}
	}
}

// TestFullRunJudgesProcessors: the full run has the tables of both.
func TestFullRunJudgesProcessors(t *testing.T) {
	p := paperPlan(t, Sources{})
	r := newReport(&p, &record{})
	r.Cores = 64
	groups := p.groups()
	for i := range groups {
		g := &groups[i]
		table := r.table(g, &p)
		table.Rows = slices.DeleteFunc(table.Rows, func(x *Row) bool { // others' claims take their time
			return !slices.Contains([]string{"server-bsp", "mxnet-sync", "tensorflow-sync"}, x.System)
		})
		for _, x := range table.Rows {
			model := float64(slices.Index(mnist, g.task.Name)) // a bigger one takes less; more workers take less each, and their servers more
			workers := float64(x.Workers)
			*x = *busyRow(x.System, x.Workers, 100-10*workers, (1-model/10)*(1-workers/10), workers)
		}
	}
	r.judge()
	for id, want := range map[string]int{"C17": 4 * 3 * 3, "C18": 2 * 2} { // four measures, three systems, three steps; two batches, two steps
		x := r.Claims[slices.IndexFunc(r.Claims, func(x Claim) bool { return x.ID == id })]
		n := 0
		for _, v := range r.Verdicts {
			if strings.HasPrefix(v.Name, id+", ") {
				n++
			}
		}
		if x.Verdict != holds || n != want {
			t.Errorf("%s is %s by %d comparisons, want %d: %s", id, x.Verdict, n, want, x.Why)
		}
	}
}
