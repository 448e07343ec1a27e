// Package prom serves a hub's latest frames to Prometheus.
//
//	mux.Handle("/metrics", prom.Handler(hub))
//
// One collector reads the hub at each scrape; nothing is registered per worker. Units are base units, counters end in _total, ratios
// go from 0 to 1. Labels are run, strategy, role, rank, the closed sets phase, dir and kind, and for, the rank of a worker that the others of
// the run waited for: never a step, a tensor, or a pair of peers, of which a thousand workers have a million.
package prom

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/trivium-ml/trivium/observe"
)

// Handler serves /metrics of a hub.
func Handler(h *observe.Hub) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(h)) // the first of a new registry: nothing it could be at odds with
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// A collector turns frames into metrics.
type collector struct {
	hub      *observe.Hub
	families []family
	age      *prometheus.Desc
	values   *prometheus.Desc
	waited   *prometheus.Desc
	dropped  *prometheus.Desc
	build    *prometheus.Desc
	version  string
}

// A family is one metric name, and what of a frame it shows.
type family struct {
	desc    *prometheus.Desc
	collect func(f *observe.Frame, d *prometheus.Desc, labels []string, out chan<- prometheus.Metric)
}

var sourceLabels = []string{"run", "strategy", "role", "rank"}

func newCollector(h *observe.Hub) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("trivium_"+name, help, slices.Concat(sourceLabels, labels), nil)
	}
	c := &collector{
		hub:    h,
		age:    desc("heartbeat_age_seconds", "Time since the source was last heard."),
		values: desc("evaluation", "Result of the last evaluation, by split.metric.", "kind"),
		waited: prometheus.NewDesc("trivium_waited_seconds_total", "Time that all workers' reads, and ends of rounds, waited for another worker's rounds.",
			[]string{"run", "strategy", "for"}, nil),
		dropped: prometheus.NewDesc("trivium_metrics_incomplete", "Sinks of metrics that have failed.", nil, nil),
		build:   prometheus.NewDesc("trivium_build_info", "The build that serves these metrics.", []string{"version", "goversion"}, nil),
		version: moduleVersion(),
	}
	add := func(d *prometheus.Desc, collect func(*observe.Frame, *prometheus.Desc, []string, chan<- prometheus.Metric)) {
		c.families = append(c.families, family{d, collect})
	}
	for _, m := range counters {
		labels := []string(nil)
		if m.label != "" {
			labels = []string{m.label}
		}
		add(desc(m.name, m.help, labels...), m.collect)
	}
	for _, m := range gauges {
		add(desc(m.name, m.help), m.collect)
	}
	for _, m := range histograms {
		add(desc(m.name, m.help), m.collect)
	}
	return c
}

func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Describe sends the descriptions of all metrics.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range c.families {
		out <- f.desc
	}
	for _, d := range []*prometheus.Desc{c.age, c.values, c.waited, c.dropped, c.build} {
		out <- d
	}
}

// Collect sends what the hub has now.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	waited := map[[2]string][]time.Duration{} // by run and strategy
	for _, r := range c.hub.Latest() {
		f := &r.Frame
		labels := []string{clean(f.Source.Run), clean(f.Source.Strategy), clean(string(f.Source.Role)), strconv.Itoa(f.Source.Rank)}
		for _, family := range c.families {
			family.collect(f, family.desc, labels, out)
		}
		out <- prometheus.MustNewConstMetric(c.age, prometheus.GaugeValue, r.Age.Seconds(), labels...)
		for _, v := range f.Values {
			out <- prometheus.MustNewConstMetric(c.values, prometheus.GaugeValue, v.Value, slices.Concat(labels, []string{clean(v.Name)})...)
		}
		of := [2]string{labels[0], labels[1]}
		for len(waited[of]) < len(f.Waited) {
			waited[of] = append(waited[of], 0)
		}
		for rank, d := range f.Waited {
			waited[of][rank] += d
		}
	}
	for of, by := range waited {
		for rank, d := range by {
			if d > 0 {
				out <- prometheus.MustNewConstMetric(c.waited, prometheus.CounterValue, d.Seconds(), of[0], of[1], strconv.Itoa(rank))
			}
		}
	}
	out <- prometheus.MustNewConstMetric(c.dropped, prometheus.GaugeValue, float64(len(c.hub.Incomplete())))
	out <- prometheus.MustNewConstMetric(c.build, prometheus.GaugeValue, 1, c.version, runtime.Version())
}

// clean makes a label's value valid UTF-8: names come from a user, such as a run's or a metric's, and from other processes.
func clean(name string) string { return strings.ToValidUTF8(name, "?") }

// scale is what one of a unit is in the base unit.
func scale(u observe.Unit) float64 {
	if u == observe.Nanoseconds {
		return 1e-9
	}
	return 1
}

type counterFamily struct {
	name, help, label string
	of                []observe.Role // who counts it
	parts             []part
}

// A part is one counter of a family, and the value of its label.
type part struct {
	counter observe.Counter
	label   string
}

func one(c observe.Counter) []part { return []part{{c, ""}} }

// collect sends a counter of those who count it, from 0 on, so that a rate sees its first increase; of others it is absent: a flat 0 would say
// that a worker takes no processor time, where its process counts that.
func (m counterFamily) collect(f *observe.Frame, d *prometheus.Desc, labels []string, out chan<- prometheus.Metric) {
	counts := slices.Contains(m.of, f.Source.Role)
	for _, p := range m.parts {
		if !counts && f.Counter(p.counter) == 0 {
			continue
		}
		l := labels
		if m.label != "" {
			l = slices.Concat(labels, []string{p.label})
		}
		v := float64(f.Counter(p.counter)) * scale(p.counter.Metric().Unit)
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, l...)
	}
}

// Who counts: workers and servers are members of training, and processes and drivers take something of their machines.
var (
	workers  = []observe.Role{observe.Worker}
	members  = []observe.Role{observe.Worker, observe.Server}
	drivers  = []observe.Role{observe.Driver}
	machines = []observe.Role{observe.Process, observe.Driver}
)

var counters = []counterFamily{
	{"steps_total", "Steps finished.", "", workers, one(observe.Steps)},
	{"samples_total", "Samples consumed.", "", workers, one(observe.Samples)},
	{"updates_total", "Updates of the parameters that a worker trains, or rounds that a server applied.", "", members, one(observe.Updates)},
	{"step_phase_seconds_total", "Time inside steps, by phase; the phases add up to the wall time.", "phase", workers, byPhase(observe.PhaseTime)},
	{"step_overlapped_seconds_total", "Background work beside the steps, by phase.", "phase", workers, byPhase(observe.OverlapTime)},
	{"wire_bytes_total", "Bytes sent and received.", "dir", members, []part{{observe.BytesOut, "out"}, {observe.BytesIn, "in"}}},
	{"wire_messages_total", "Messages sent and received.", "dir", members, []part{{observe.MessagesOut, "out"}, {observe.MessagesIn, "in"}}},
	{"disk_bytes_total", "Bytes that went to and came from storage.", "dir", machines, []part{{observe.DiskWritten, "out"}, {observe.DiskRead, "in"}}},
	{"cpu_seconds_total", "Processor time.", "kind", machines, []part{{observe.CPUUser, "user"}, {observe.CPUSystem, "system"}}},
	{"cache_reads_total", "Reads of tables, by whether the cache of the process answered.", "kind", workers, []part{{observe.CacheHits, "hit"}, {observe.CacheMisses, "miss"}}},
	{"gc_pause_seconds_total", "Time the garbage collector stopped the process.", "", machines, one(observe.GCPauses)},
	{"throttled_seconds_total", "Time a processor limit held the process back.", "", machines, one(observe.Throttled)},
	{"checkpoints_total", "Checkpoints written.", "", workers, one(observe.Checkpoints)},
	{"restarts_total", "Restarts of the job, after one of its processes was lost; its driver counts them.", "", drivers, one(observe.Restarts)},
	{"torn_rounds_total", "Rounds of lost workers that a server had, and another had not.", "", members, one(observe.TornRounds)},
	{"refused_messages_total", "Messages of tables that could not be read, or made no sense.", "", members, one(observe.Refused)},
	{"steps_dropped_total", "Steps not recorded one by one, since the collector was behind.", "", workers, one(observe.Dropped)},
	{"anomalies_total", "Waits reported longer than what they are part of.", "", workers, one(observe.Anomalies)},
}

func byPhase(counter func(observe.Phase) observe.Counter) []part {
	var out []part
	for _, p := range observe.Phases() {
		out = append(out, part{counter(p), p.String()})
	}
	return out
}

type gaugeFamily struct {
	name, help string
	gauge      observe.Gauge
}

// collect sends a gauge once it has a value: before that it is absent, not zero.
func (m gaugeFamily) collect(f *observe.Frame, d *prometheus.Desc, labels []string, out chan<- prometheus.Metric) {
	if v, ok := f.Gauge(m.gauge); ok {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
}

var gauges = []gaugeFamily{
	{"last_step", "The last finished step.", observe.CurrentStep},
	{"epoch", "The epoch under way, from 0.", observe.CurrentEpoch},
	{"epoch_progress_ratio", "How much of the epoch is done.", observe.EpochProgress},
	{"loss", "Mean loss of the last step.", observe.Loss},
	{"learning_rate", "Learning rate.", observe.LearningRate},
	{"gradient_norm", "Euclidean norm of the mean gradient, where it is clipped by its norm.", observe.GradientNorm},
	{"resident_memory_bytes", "Resident memory.", observe.ResidentBytes},
	{"heap_bytes", "Bytes in heap objects.", observe.HeapBytes},
	{"busy_cores", "Processor cores kept busy.", observe.CPUUse},
	{"worker_clock", "Rounds the worker has finished.", observe.WorkerClock},
	{"worker_lead_clocks", "Rounds ahead of the slowest worker, as far as it has heard.", observe.WorkerLead},
	{"parked_requests", "Reads that wait for the staleness bound.", observe.ParkedRequests},
	{"checkpoint_size_bytes", "Size of the last checkpoint.", observe.CheckpointBytes},
	{"checkpoint_duration_seconds", "Time the last checkpoint took.", observe.CheckpointSeconds},
	{"steps_kept_one_in", "One in so many steps is recorded one by one.", observe.KeptOneIn},
}

type histogramFamily struct {
	name, help   string
	distribution observe.Distribution
	bounds       []uint64 // upper, inclusive, in the distribution's own unit
}

// collect sends a histogram once something was counted.
func (m histogramFamily) collect(f *observe.Frame, d *prometheus.Desc, labels []string, out chan<- prometheus.Metric) {
	h := &f.Distributions[m.distribution]
	if h.Count == 0 {
		return
	}
	unit := scale(m.distribution.Metric().Unit)
	out <- prometheus.MustNewConstHistogram(d, h.Count, float64(h.Sum)*unit, cumulative(h, m.bounds, unit), labels...)
}

// cumulative returns how many values are at most each bound. The bounds end buckets of ours, so the counts are exact.
func cumulative(h *observe.Histogram, bounds []uint64, unit float64) map[float64]uint64 {
	out := make(map[float64]uint64, len(bounds))
	var n uint64
	b := 0
	for _, bound := range bounds {
		for ; b < observe.NumBuckets; b++ {
			if _, hi := observe.BucketBounds(b); hi > bound {
				break
			}
			n += h.Buckets[b]
		}
		// A bound of ours is inclusive: 1,023 is the last of the bucket before 1,024. The label says the round number where values are
		// nanoseconds, and the value itself where they are counts.
		if unit != 1 {
			bound++
		}
		out[float64(bound)*unit] = n
	}
	return out
}

var histograms = []histogramFamily{
	{"step_duration_seconds", "Wall time of a step.", observe.StepTime, octaves(12, 40)}, // 4 µs to 18 minutes
	{"staleness_clocks", "Clocks a read was behind.", observe.Staleness, []uint64{0, 1, 2, 3, 4, 5, 7, 9, 11, 15, 31, 63}},
	{"server_apply_seconds", "Time a server took to apply an update.", observe.ServerApply, octaves(8, 36)},
}

// octaves returns 2^k − 1 for each k in [from, to).
func octaves(from, to int) []uint64 {
	var out []uint64
	for k := from; k < to; k++ {
		out = append(out, 1<<k-1)
	}
	return out
}
