package traintest

import (
	"strings"
	"testing"

	"github.com/trivium-ml/trivium/observe"
)

// produced are the numbers of the catalogue, each with the topologies in whose runs Produced wants it. What no topology produces by itself
// has a reason instead, after a dash.
var produced = map[string]string{
	"steps": "local allreduce average server", "samples": "local allreduce average server", "updates": "local allreduce average server",
	"step_time":      "local allreduce average server",
	"wire_bytes.out": "allreduce average server", "wire_bytes.in": "allreduce average server",
	"wire_messages.out": "allreduce average server", "wire_messages.in": "allreduce average server",
	"cpu_time.user": "- observe/host", "cpu_time.system": "- observe/host", "gc_pause_time": "- observe/host", "throttled_time": "- observe/host",
	"disk_bytes.in": "- observe/host", "disk_bytes.out": "- observe/host",
	"steps_dropped": "- where the collector is behind", "anomalies": "- where what waited was not told right",
	"checkpoints":      "local allreduce average server",
	"restarts":         "- the driver of a job that is restarted",
	"torn_rounds":      "- where the others go on without a lost worker, and here they end",
	"messages_refused": "- where somebody sends what makes no sense",

	"phase_time.load": "local allreduce average server", "phase_time.compute": "local allreduce average server",
	"phase_time.apply":     "local allreduce average",
	"phase_time.serialise": "- a strategy that encodes on the training thread; here push has it",
	"phase_time.push":      "allreduce server", "phase_time.pull": "allreduce server",
	"phase_time.wait-barrier": "allreduce", "phase_time.wait-stale": "server",
	"phase_time.other":     "server",
	"overlapped_time.push": "server",
	"overlapped_time.load": "- one that loads beside the steps", "overlapped_time.compute": "- one that computes beside the steps",
	"overlapped_time.serialise": "- one that encodes beside the steps", "overlapped_time.pull": "- one whose reads go on beside the steps",
	"overlapped_time.wait-barrier": "- waiting beside the steps is not waiting", "overlapped_time.wait-stale": "- waiting beside the steps is not waiting",
	"overlapped_time.apply": "- one that applies beside the steps", "overlapped_time.other": "- what nobody timed is not known to overlap",

	"step": "local allreduce average server", "epoch": "local allreduce average server", "epoch_progress": "local allreduce average server",
	"loss": "local allreduce average server", "learning_rate": "local allreduce average server",
	"gradient_norm":   "local allreduce average", // with clip_norm
	"resident_memory": "- observe/host", "heap_memory": "- observe/host", "cpu_use": "- observe/host",
	"cache_reads.hit": "server", "cache_reads.miss": "server",
	"worker_clock": "server", "worker_lead": "server", "parked_requests": "server",
	"checkpoint_size": "local allreduce average server", "checkpoint_time": "local allreduce average server",
	"steps_kept_one_in": "local allreduce average server",

	"step_duration": "local allreduce average server", "staleness": "server", "server_apply": "server",
}

// Produced checks that a short run under a topology, with clip_norm where it may be and checkpoints, has produced each number that is to come
// from it: counters and distributions of one of its processes, of which hubs are, are not 0, gauges have a value.
func Produced(t *testing.T, topology string, hubs ...*observe.Hub) {
	t.Helper()
	var frames []observe.Frame
	for _, hub := range hubs {
		hub.Collect(true)
		for _, r := range hub.Latest() {
			frames = append(frames, r.Frame)
		}
	}
	wanted, known := 0, map[string]bool{}
	check := func(name string, has func(f *observe.Frame) bool) {
		t.Helper()
		known[name] = true
		from, ok := produced[name]
		if !ok {
			t.Errorf("nobody says which topology produces %s", name)
		}
		if strings.HasPrefix(from, "- ") {
			return
		}
		for word := range strings.FieldsSeq(from) {
			if word != topology {
				continue
			}
			wanted++
			found := false
			for i := range frames {
				found = found || has(&frames[i])
			}
			if !found {
				t.Errorf("%s: none of %d processes has %s", topology, len(frames), name)
			}
		}
	}
	for c := range observe.Counter(observe.NumCounters) {
		check(c.String(), func(f *observe.Frame) bool { return f.Counter(c) > 0 })
	}
	for g := range observe.Gauge(observe.NumGauges) {
		check(g.String(), func(f *observe.Frame) bool { _, ok := f.Gauge(g); return ok })
	}
	for d := range observe.Distribution(observe.NumDistributions) {
		check(d.String(), func(f *observe.Frame) bool { return f.Distributions[d].Count > 0 })
	}
	if wanted == 0 {
		t.Errorf("no number is wanted of %s", topology)
	}
	for name := range produced {
		if !known[name] {
			t.Errorf("%s is not in the catalogue", name)
		}
	}
}
