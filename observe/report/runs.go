package report

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/observe/rundir"
	"github.com/trivium-ml/trivium/observe/svg"
)

// Options are what a report of runs may be told besides.
type Options struct {
	Title string // empty: the model's name, and what it was trained under
}

// maxRuns is how many runs a page sets side by side: the palette has as many colours.
const maxRuns = svg.Hues

// Runs makes the page of one run, or of several side by side, from what they left on disk alone. A run may be unfinished or damaged:
// the page then says what is missing.
func Runs(runs []*rundir.Run, o Options) (*Page, error) {
	if len(runs) == 0 {
		return nil, errors.New("report: no run to report on")
	}
	if len(runs) > maxRuns {
		return nil, fmt.Errorf("report: %d runs; a page has room for %d side by side", len(runs), maxRuns)
	}
	all := make([]*measured, len(runs))
	for i, r := range runs {
		m, err := gather(r)
		if err != nil {
			return nil, err
		}
		m.hue = i + 1
		all[i] = m
	}
	nameRuns(all)
	p := &Page{Title: o.Title, Contents: true}
	if p.Title == "" {
		p.Title = title(all)
	}
	p.Subtitle = subtitle(all)
	p.Lead = lead(all)
	for _, s := range []Section{
		resultSection(all), lossSection(all), phaseSection(all), stalenessSection(all), machineSection(all), networkSection(all),
		eventSection(all), setupSection(all), limitsSection(all),
	} {
		if len(s.Blocks) > 0 {
			p.Sections = append(p.Sections, s)
		}
	}
	p.Footer = []Span{Text("Made from run directories alone. Times are in UTC. Phases, counters and units: see the glossary of the manual.")}
	return p, nil
}

// measured is a run with what its files add up to.
type measured struct {
	*rundir.Run
	label   string
	hue     int
	sources []*source
	total   rundir.Result // the recorded one, or what the last frames say
	begin   float64       // seconds from the run's start to its first step
}

// A source is what one thread or process reported.
type source struct {
	observe.Source
	last       observe.Frame
	frames     int
	cpu        curve // busy cores over seconds
	resident   curve // bytes over seconds
	loss       curve // over seconds
	samples    curve // loss, over the source's own samples
	staleness  map[uint16]uint64
	every      uint32  // the largest k of the kept steps
	first      float64 // seconds at which the first kept step began; negative: none
	scores     []score
	lastScores map[string]int64
}

// A score is an evaluation.
type score struct {
	name  string
	at    float64 // seconds
	step  int64
	value float64
}

func gather(r *rundir.Run) (*measured, error) {
	m := &measured{Run: r, begin: -1}
	var last []observe.Frame
	for _, s := range r.Sources {
		src := &source{Source: s, staleness: map[uint16]uint64{}, first: -1, lastScores: map[string]int64{}}
		for f, err := range r.Frames(s) {
			if err != nil {
				return nil, err
			}
			src.frame(&f)
		}
		for step, err := range r.Steps(s) {
			if err != nil {
				return nil, err
			}
			src.step(step)
		}
		if src.first >= 0 && (m.begin < 0 || src.first < m.begin) {
			m.begin = src.first
		}
		m.sources = append(m.sources, src)
		last = append(last, src.last)
	}
	if r.Result != nil {
		m.total = *r.Result
	} else {
		m.total = rundir.Summarise(last...)
	}
	return m, nil
}

func (s *source) frame(f *observe.Frame) {
	at := f.At.Seconds()
	s.frames++
	if v, ok := f.Gauge(observe.CPUUse); ok {
		s.cpu.add(at, v)
	}
	if v, ok := f.Gauge(observe.ResidentBytes); ok {
		s.resident.add(at, v)
	}
	for _, v := range f.Values {
		if before, ok := s.lastScores[v.Name]; ok && before == v.Step {
			continue
		}
		s.lastScores[v.Name] = v.Step
		if len(s.scores) < 1<<16 {
			s.scores = append(s.scores, score{v.Name, at, v.Step, v.Value})
		}
	}
	s.last = *f
}

func (s *source) step(step observe.Step) {
	start := step.Start.Seconds()
	if s.first < 0 {
		s.first = start
	}
	s.every = max(s.every, step.Every)
	at := start + step.Wall().Seconds()
	s.loss.add(at-s.first, step.Loss)
	s.samples.add(float64(step.Step)+1, step.Loss)
	s.staleness[step.StalenessMax]++
}

// of returns the sources in a role.
func (m *measured) of(role observe.Role) []*source {
	var out []*source
	for _, s := range m.sources {
		if s.Role == role {
			out = append(out, s)
		}
	}
	return out
}

// nameRuns labels runs by the shortest of what tells them apart.
func nameRuns(all []*measured) {
	for _, label := range []func(*measured) string{
		func(m *measured) string { return m.Head.Strategy },
		topology,
		func(m *measured) string { return topology(m) + ", " + m.Head.Model },
		func(m *measured) string { return m.Head.Name },
	} {
		seen := map[string]bool{}
		for _, m := range all {
			m.label = label(m)
			seen[m.label] = true
		}
		if len(seen) == len(all) {
			return
		}
	}
	for i, m := range all {
		m.label += " (" + strconv.Itoa(i+1) + ")"
	}
}

// topology is a strategy with its size.
func topology(m *measured) string {
	s := m.Head.Strategy
	if m.Head.Workers > 1 {
		s += ", " + quantity.Count(m.Head.Workers, "worker")
	}
	if m.Head.Servers > 0 {
		s += ", " + quantity.Count(m.Head.Servers, "server")
	}
	return s
}

func title(all []*measured) string {
	models := map[string]bool{}
	for _, m := range all {
		models[m.Head.Model] = true
	}
	model := strings.Join(slices.Sorted(maps.Keys(models)), ", ")
	if len(all) == 1 {
		return model + " under " + topology(all[0])
	}
	return model + ": " + quantity.Count(len(all), "run") + " side by side"
}

func subtitle(all []*measured) string {
	m := all[0]
	parts := []string{m.Head.Start.UTC().Format("2 January 2006 15:04")}
	if len(all) == 1 {
		parts = append(parts, m.Head.Name)
	}
	if v := m.Head.Versions["trivium"]; v != "" {
		parts = append(parts, "trivium "+v)
	}
	return strings.Join(parts, " · ")
}
