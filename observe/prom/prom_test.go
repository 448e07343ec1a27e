package prom

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/trivium-ml/trivium/observe"
)

// someHub has a worker with every counter, gauge and distribution set, and a server with none.
func someHub(t testing.TB) *observe.Hub {
	t.Helper()
	hub := observe.NewHub(observe.Options{})
	for rank, role := range []observe.Role{observe.Worker, observe.Server} {
		set := observe.NewSet(observe.Source{Run: "4f2a", Strategy: "local", Role: role, Rank: rank})
		if role == observe.Worker {
			for c := range observe.Counter(observe.NumCounters) {
				set.Add(c, 1500)
			}
			for g := range observe.Gauge(observe.NumGauges) {
				set.Put(g, 0.25)
			}
			set.Put(observe.Loss, math.NaN())
			for d := range observe.Distribution(observe.NumDistributions) {
				for _, v := range []uint64{0, 1, 3, 1 << 20} {
					set.Observe(d, v)
				}
			}
			set.PutWaited([]time.Duration{0, 1500 * time.Millisecond, time.Second})
			if err := set.Evaluate("valid.auc", 0.875, 10); err != nil {
				t.Fatal(err)
			}
		}
		if err := hub.Accept(set.Frame(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return hub
}

func scrape(t testing.TB, hub *observe.Hub) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(hub).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("status %d, %v: %s", w.Code, err, body)
	}
	return string(body)
}

func TestMetrics(t *testing.T) {
	hub := someHub(t)
	other := observe.NewSet(observe.Source{Run: "4f2a", Strategy: "local", Role: observe.Worker, Rank: 2})
	other.PutWaited([]time.Duration{0, 250 * time.Millisecond})
	if err := hub.Accept(other.Frame(time.Second)); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, hub)
	worker := `rank="0",role="worker",run="4f2a",strategy="local"`
	for _, want := range []string{
		"trivium_samples_total{" + worker + "} 1500",
		`trivium_step_phase_seconds_total{phase="wait-barrier",` + worker + "} 1.5e-06",
		`trivium_step_overlapped_seconds_total{phase="push",` + worker + "} 1.5e-06",
		`trivium_wire_bytes_total{dir="out",` + worker + "} 1500",
		`trivium_cpu_seconds_total{kind="user",` + worker + "} 1.5e-06",
		`trivium_cache_reads_total{kind="hit",` + worker + "} 1500",
		`trivium_cache_reads_total{kind="miss",` + worker + "} 1500",
		"trivium_torn_rounds_total{" + worker + "} 1500",
		"trivium_refused_messages_total{" + worker + "} 1500",
		"trivium_loss{" + worker + "} NaN",
		"trivium_learning_rate{" + worker + "} 0.25",
		`trivium_evaluation{kind="valid.auc",` + worker + "} 0.875",
		`trivium_waited_seconds_total{for="1",run="4f2a",strategy="local"} 1.75`,
		`trivium_waited_seconds_total{for="2",run="4f2a",strategy="local"} 1`,
		"trivium_step_duration_seconds_count{" + worker + "} 4",
		"trivium_step_duration_seconds_bucket{" + worker + `,le="4.096e-06"} 3`, // of 0, 1 and 3 ns, and one of 1,048,576
		"trivium_step_duration_seconds_bucket{" + worker + `,le="0.002097152"} 4`,
		`trivium_staleness_clocks_bucket{` + worker + `,le="1"} 2`,
		`trivium_staleness_clocks_bucket{` + worker + `,le="3"} 3`,
		`trivium_staleness_clocks_bucket{` + worker + `,le="+Inf"} 4`,
		"trivium_heartbeat_age_seconds{" + `rank="1",role="server"`,
		`trivium_updates_total{rank="1",role="server",run="4f2a",strategy="local"} 0`,
		"trivium_metrics_incomplete 0",
		"trivium_build_info{goversion=",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s", want)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, `trivium_waited_seconds_total{for="0"`) {
			t.Errorf("a worker for which nobody waited is shown: %s", line)
		}
		if strings.Contains(line, "server") && (strings.HasPrefix(line, "trivium_cpu_seconds_total") || strings.HasPrefix(line, "trivium_samples_total")) {
			t.Errorf("a counter of what others count is shown: %s", line)
		}
		if strings.HasPrefix(line, "trivium_loss") && strings.Contains(line, "server") {
			t.Errorf("a gauge that was never set is shown: %s", line)
		}
	}
}

// TestAnyName: a run may be called anything a folder can, and the page is served all the same.
func TestAnyName(t *testing.T) {
	hub := observe.NewHub(observe.Options{})
	set := observe.NewSet(observe.Source{Run: "a\xff\"\n\\b", Strategy: "lo\xfecal", Role: "work\xffer"})
	if err := set.Evaluate("valid.\xff", 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := hub.Accept(set.Frame(time.Second)); err != nil {
		t.Fatal(err)
	}
	want := `trivium_evaluation{kind="valid.?",rank="0",role="work?er",run="a?\"\n\\b",strategy="lo?cal"} 1`
	if text := scrape(t, hub); !strings.Contains(text, want) {
		t.Errorf("%s\nlacks %s", text, want)
	}
}

// TestLint runs the checks of promtool check metrics over all metrics.
func TestLint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, someHub(t)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestCollectorIsConsistent has the registry compare descriptions with metrics.
func TestCollectorIsConsistent(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(someHub(t))); err != nil {
		t.Fatal(err)
	}
	n, err := testutil.GatherAndCount(registry)
	if err != nil {
		t.Fatal(err)
	}
	if want := 11 + 2*9 + 5*2 + 7 + observe.NumGauges + observe.NumDistributions + 1 + 2 + 2 + 2; n != want {
		t.Errorf("%d metrics, want %d", n, want)
	}
}

// TestEveryNumberIsExported keeps the catalogue and the exporter together.
func TestEveryNumberIsExported(t *testing.T) {
	seen := map[observe.Counter]bool{observe.WallTime: true} // the sum of the phases
	for _, m := range counters {
		for _, p := range m.parts {
			seen[p.counter] = true
		}
	}
	for c := range observe.Counter(observe.NumCounters) {
		if !seen[c] {
			t.Errorf("counter %v is not exported", c)
		}
	}
	if len(gauges) != observe.NumGauges || len(histograms) != observe.NumDistributions {
		t.Errorf("%d of %d gauges, %d of %d distributions", len(gauges), observe.NumGauges, len(histograms), observe.NumDistributions)
	}
}

func TestHistogramBoundsEndBuckets(t *testing.T) {
	for _, m := range histograms {
		for _, bound := range m.bounds {
			if _, hi := observe.BucketBounds(observe.Bucket(bound)); hi != bound {
				t.Errorf("%s: %d lies within a bucket that ends at %d: its count would not be exact", m.name, bound, hi)
			}
		}
	}
}

func BenchmarkScrape(b *testing.B) {
	hub := someHub(b)
	for b.Loop() {
		scrape(b, hub)
	}
}
