package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/internal/shell"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/rundir"
)

// networkSection is what travelled, as the transport counted it.
func networkSection(all []*measured) Section {
	t := Table{
		Name: "network", Columns: []Column{
			{Name: "source"},
			{Name: "out", Group: "bytes"},
			{Name: "in", Group: "bytes"},
			{Name: "out and in", Group: "bytes a sample"},
			{Name: "out", Group: "messages"},
			{Name: "in", Group: "messages"},
		},
	}
	travels := false
	for _, m := range all {
		if m.Head.Workers <= 1 && m.Head.Servers == 0 {
			continue
		}
		travels = true
		counted := false
		for _, s := range m.sources {
			out, in := s.last.Counter(observe.BytesOut), s.last.Counter(observe.BytesIn)
			if out+in == 0 {
				continue
			}
			counted = true
			perSample := Missing("no samples here")
			if n := s.last.Counter(observe.Samples); n > 0 {
				perSample = Number(float64(out+in)/float64(n), quantity.Bytes)
			}
			t.Rows = append(t.Rows, Row{Cells: []Cell{
				Name(sourceLabel(all, m, s)), Number(float64(out), quantity.Bytes), Number(float64(in), quantity.Bytes), perSample,
				Number(float64(s.last.Counter(observe.MessagesOut)), Digits(0)), Number(float64(s.last.Counter(observe.MessagesIn)), Digits(0)),
			}})
		}
		if !counted {
			t.Notes = append(t.Notes, "Not counted: "+m.label+".")
		}
	}
	switch {
	case !travels:
		return Section{}
	case len(t.Rows) == 0:
		return Section{Title: "Network", Blocks: []Block{Paragraph{Text("Bytes were not counted in these runs.")}}}
	}
	return Section{Title: "Network", Blocks: []Block{t}}
}

// shownEvents is how many events a page holds; a run directory has them all.
const shownEvents = 200

func eventSection(all []*measured) Section {
	t := Table{Name: "events", Columns: []Column{{Name: "time"}, {Name: "source"}, {Name: "kind"}, {Name: "update"}, {Name: "what happened"}}, Compact: true}
	left, serious := 0, 0
	for _, m := range all {
		for i, e := range m.Events {
			if e.Level != observe.Info {
				serious++
			}
			if len(m.Events)-i > shownEvents/len(all) && e.Level == observe.Info {
				left++ // the newest, and all that warn
				continue
			}
			if len(t.Rows) >= 2*shownEvents {
				left++
				continue
			}
			t.Rows = append(t.Rows, eventRow(all, m, e))
		}
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	if left > 0 {
		t.Notes = append(t.Notes, quantity.Grouped(float64(left), 0)+" older events are in events.jsonl of the run directory.")
	}
	summary := quantity.Count(len(t.Rows), "event")
	if serious > 0 {
		summary += "; warnings and errors: " + quantity.Grouped(float64(serious), 0)
	}
	return Section{Title: "Events", Blocks: []Block{Details{Summary: []Span{Text(summary)}, Open: serious > 0 || len(t.Rows) <= 8, Blocks: []Block{t}}}}
}

func eventRow(all []*measured, m *measured, e observe.Event) Row {
	who := "run"
	if e.Source.Role != "" {
		who = fmt.Sprintf("%s %d", e.Source.Role, e.Source.Rank)
	}
	if len(all) > 1 {
		who = m.label + ": " + who
	}
	kind := Name(e.Kind)
	switch e.Level {
	case observe.Warn:
		kind = Verdict(Warn, e.Kind)
	case observe.Error:
		kind = Verdict(Bad, e.Kind)
	}
	step := Cell{}
	if e.Step >= 0 {
		step = Number(float64(e.Step), Digits(0))
	}
	return Row{Cells: []Cell{Name(e.Time.UTC().Format("15:04:05.000")), Name(who), kind, step, Name(e.Text)}}
}

// setupSection is what was asked for, and where it ran; of several runs, what differs.
func setupSection(all []*measured) Section {
	s := Section{Title: "Setup"}
	first := all[0]
	if len(all) > 1 {
		t := Table{Name: "differences", Caption: []Span{Text("What differs from the first run")}, Columns: []Column{{Name: "run"}, {Name: "key"}, {Name: first.label}, {Name: "here"}}}
		for _, m := range all[1:] {
			for i, d := range rundir.Diff(first.Head.Fields(), m.Head.Fields()) {
				row := Row{Cells: []Cell{Name(""), Words(Mono(d.Key)), Name(orDash(d.A)), Name(orDash(d.B))}}
				if i == 0 {
					row.Cells[0] = Name(m.label)
				}
				t.Rows = append(t.Rows, row)
			}
		}
		s.Blocks = append(s.Blocks, t)
	}
	for _, m := range all {
		facts := headFacts(m.Head)
		if len(all) == 1 {
			s.Blocks = append(s.Blocks, facts, command(m.Head))
			continue
		}
		s.Blocks = append(s.Blocks, Details{Summary: []Span{Text(m.label)}, Blocks: []Block{facts, command(m.Head)}})
	}
	return s
}

func command(h rundir.Head) Block {
	words := slices.Clone(h.Command)
	if len(words) > 0 {
		words[0] = words[0][strings.LastIndexAny(words[0], `/\`)+1:] // where the program lay says nothing
	}
	return Code{Caption: "Command", Text: shell.Words(words...)}
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func headFacts(h rundir.Head) Facts {
	facts := Facts{}
	add := func(name, value string) {
		if value != "" && value != "0" {
			facts = append(facts, Fact{name, []Span{Text(value)}})
		}
	}
	add("model", h.Model)
	add("topology", h.Strategy)
	add("workers", fmt.Sprint(h.Workers))
	add("machines", fmt.Sprint(h.Machines))
	add("servers", fmt.Sprint(h.Servers))
	add("threads a worker", fmt.Sprint(h.Threads))
	add("arithmetic", h.Kernels)
	add("data", h.DataSource)
	add("data checksum", h.DataChecksum)
	for _, n := range h.Notes {
		add("note", n)
	}
	for _, group := range []struct {
		name string
		raw  json.RawMessage
	}{{"", h.Configuration}, {"topology ", h.Options}, {"host ", h.Host}} {
		for _, leaf := range leaves(group.raw) {
			if group.name == "" && (leaf.key == "model" || leaf.key == "version") || strings.HasSuffix(leaf.key, "seed") {
				continue // said above, or below
			}
			add(group.name+leaf.key, leaf.value)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(h.Seeds)) {
		add("seed of "+k, fmt.Sprint(h.Seeds[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(h.Versions)) {
		add(k, h.Versions[k])
	}
	return facts
}

type leaf struct{ key, value string }

// leaves returns the values of a JSON object with their dotted paths, in the order of the paths.
func leaves(raw json.RawMessage) []leaf {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	var out []leaf
	for _, k := range slices.Sorted(maps.Keys(object)) {
		if inner := leaves(object[k]); inner != nil {
			for _, l := range inner {
				out = append(out, leaf{k + "." + l.key, l.value})
			}
			continue
		}
		var text string
		var number float64
		switch {
		case json.Unmarshal(object[k], &text) == nil:
		case strings.HasSuffix(k, "_bytes") && json.Unmarshal(object[k], &number) == nil:
			k, text = strings.TrimSuffix(k, "_bytes"), quantity.Bytes(number)
		default:
			text = string(object[k])
		}
		out = append(out, leaf{strings.ReplaceAll(k, "_", " "), text})
	}
	return out
}

// limitsSection is what a reader should hold against the page, from what is recorded.
func limitsSection(all []*measured) Section {
	l := List{}
	say := func(m *measured, format string, args ...any) {
		item := Paragraph{}
		if len(all) > 1 {
			item = append(item, Strong(m.label), Text(": "))
		}
		l.Items = append(l.Items, append(item, Text(fmt.Sprintf(format, args...))))
	}
	for _, m := range all {
		if m.Result == nil {
			say(m, "The run wrote no result: it is under way, or it ended without a word. Totals are those of the last frames that reached the disk.")
		}
		for _, d := range m.Damage {
			say(m, "%v.", d)
		}
		every, frames, threads := uint32(1), 0, 0
		var dropped, anomalies, throttled, torn, refused uint64
		for _, s := range m.sources {
			every = max(every, s.every)
			frames = max(frames, s.frames)
			dropped += s.last.Counter(observe.Dropped)
			anomalies += s.last.Counter(observe.Anomalies)
			throttled += s.last.Counter(observe.Throttled)
			torn += s.last.Counter(observe.TornRounds)
			refused += s.last.Counter(observe.Refused)
			if s.Role == observe.Worker {
				threads++
			}
		}
		if every > 1 {
			say(m, "One step in %d was kept one by one; loss curves are made of those.", every)
		}
		if dropped > 0 {
			say(m, "Not recorded one by one, since the collector was behind: %s.", quantity.Count(dropped, "step"))
		}
		if anomalies > 0 {
			say(m, "%s longer than what they are part of: phases of those steps are clamped.", quantity.Count(anomalies, "reported wait"))
		}
		if torn > 0 {
			say(m, "Servers had %s of workers that were lost, which others had not: what they added may be in a part of the tables.", quantity.Count(torn, "round"))
		}
		if refused > 0 {
			say(m, "Of what came over the network, %s could not be read, or made no sense.", quantity.Count(refused, "message"))
		}
		if throttled > 0 {
			say(m, "A processor limit held the processes back for %s.", quantity.Seconds(time.Duration(throttled).Seconds()))
		}
		if cores := hostCores(m.Head); cores > 0 && m.Head.Machines <= 1 { // of several, the cores are the coordinator's
			if busy := max(m.Head.Workers, 1)*max(m.Head.Threads, 1) + m.Head.Servers; busy > cores {
				say(m, "Oversubscribed: %d busy threads on %d cores, if all ran on one machine. What is measured then is also the scheduler.", busy, cores)
			}
		}
		if m.total.Seconds > 0 && m.total.Seconds < 5 {
			say(m, "The updates took only %s: the start weighs in every figure.", quantity.Seconds(m.total.Seconds))
		}
		if threads == 0 {
			say(m, "No worker left a record.")
		}
	}
	l.Items = append(l.Items, Paragraph{Text("One run is one sample. Whether another would come out the same, this page cannot know; a comparison repeats.")})
	return Section{Title: "What to hold against this page", Blocks: []Block{l}}
}

func hostCores(h rundir.Head) int {
	var facts struct {
		Cores int `json:"cores"`
	}
	if json.Unmarshal(h.Host, &facts) != nil {
		return 0
	}
	return facts.Cores
}
