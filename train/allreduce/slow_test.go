package allreduce_test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/blob"
	"github.com/trivium-ml/trivium/checkpoint"
	"github.com/trivium-ml/trivium/observe"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/train/allreduce"
	"github.com/trivium-ml/trivium/transport"
)

// slowLinks is a network in memory on which each worker sends so many bytes a second.
type slowLinks struct {
	transport.Network
	bytesPerSec float64
}

// Open implements transport.Network.
func (n slowLinks) Open(ctx context.Context, self transport.Name, o transport.Options) (transport.Port, error) {
	p, err := n.Network.Open(ctx, self, o)
	return slowPort{p, n.bytesPerSec}, err
}

type slowPort struct {
	transport.Port
	bytesPerSec float64
}

// Stream implements transport.Port.
func (p slowPort) Stream(name string, o transport.StreamOptions) (transport.Stream, error) {
	s, err := p.Port.Stream(name, o)
	return &slowStream{Stream: s, bytesPerSec: p.bytesPerSec}, err
}

type slowStream struct {
	transport.Stream
	bytesPerSec float64
	mu          sync.Mutex
	free        time.Time // when the link has sent all before
}

// Send implements transport.Stream.
func (s *slowStream) Send(ctx context.Context, to transport.Name, f transport.Frame) error {
	s.mu.Lock()
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(float64(len(f.Payload)) / s.bytesPerSec * 1e9))
	time.Sleep(time.Until(s.free))
	s.mu.Unlock()
	return s.Stream.Send(ctx, to, f)
}

// codecEvents are rank 0's of kind codec and of kind collective, and its last notice.
func codecEvents(c *crew) (parts, sums []string) {
	for _, e := range c.hubs[0].Events() {
		switch e.Kind {
		case "codec":
			parts = append(parts, e.Text)
		case "collective":
			sums = append(sums, e.Text)
		}
	}
	return parts, sums
}

// TestAuto: on slow links auto encodes what of the gradient its codec makes faster, says so with what was predicted, and learns what a run without it does.
func TestAuto(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for two seconds, and trains over slow links")
	}
	job := digits()
	job.Model, job.Epochs = buckets(), 3
	losses, took := map[string]float64{}, map[string]time.Duration{}
	for _, codec := range []string{"", "auto:topk:12000"} { // which fits half of a long part, and not of the last layers
		c := &crew{n: 2, o: allreduce.Options{Compress: codec}, network: slowLinks{transport.NewMemory(), 10e6}}
		var begin time.Time
		c.env.Watch.Begin = func(train.Progress) { begin = time.Now() }
		got, err := c.Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "rank 1", c.results[1], got)
		losses[codec], took[codec] = got.Metrics["test.loss"], time.Since(begin)
		if codec == "" {
			continue
		}
		part := regexp.MustCompile(`^parts of (\d+) bytes, of which there are \d+, are summed (as it is|by topk:12000): predicted ([0-9.]+[mµ]?s) as they are, ` +
			`(?:predicted ([0-9.]+[mµ]?s)|not predicted) by topk:12000$`)
		parts, sums := codecEvents(c)
		encoded, lens := map[int]bool{}, map[int]bool{} // bytes
		for _, text := range parts[:len(parts)-1] {
			m := part.FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("event %q", text)
			}
			n, _ := strconv.Atoi(m[1])
			lens[n] = true
			plain, _ := time.ParseDuration(m[3])
			coded, err := time.ParseDuration(m[4]) // of the last layers there is no prediction
			if short := n == 4*(10+200+20+6000+300); (err != nil) != short {
				t.Errorf("%q: is there a prediction: %v", text, err == nil)
			}
			gain := float64(plain) / float64(coded)
			if pays := err == nil && gain > 1.2; pays != (m[2] != "as it is") && !(math.Abs(gain-1.2) <= 0.001) {
				t.Errorf("%q: a sum is to be encoded where that takes a sixth off", text)
			}
			if m[2] != "as it is" {
				encoded[n] = true
			}
		}
		if len(lens) != 3 {
			t.Errorf("parts of %v bytes: %q", lens, parts)
		}
		if len(encoded) == 0 { // beside six other programs on two cores top-k takes as long as it saves
			t.Skipf("what else runs here keeps the codec from paying: %q", parts)
		}
		if all := regexp.MustCompile(`^topk:12000 encodes \d+ of the gradient's \d+ parts: their sums are predicted to take [0-9.]+ms in place of [0-9.]+ms$`); !all.MatchString(parts[len(parts)-1]) {
			t.Errorf("notice %q", parts[len(parts)-1])
		}
		sum := regexp.MustCompile(`^sum of (\d+) bytes among 2 workers, [a-z-]+( of topk:12000)?: (?:[0-9.]+[mµ]?s|too short to measure) in the median of \d+, predicted [0-9.]+[mµ]?s$`)
		const facts = 4 * 5 // bytes that ride with the last part
		for _, text := range sums {
			m := sum.FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("event %q", text)
			}
			n, _ := strconv.Atoi(m[1])
			if is := encoded[n] || encoded[n-facts]; is != (m[2] != "") {
				t.Errorf("%q: was it to be encoded: %v", text, is)
			}
		}
		if len(sums) < len(lens) {
			t.Errorf("the run tells of its sums %q", sums)
		}
	}
	t.Log(losses, took)
	if !(losses["auto:topk:12000"] < 1.05*losses[""]) {
		t.Errorf("test loss %v with auto, %v without", losses["auto:topk:12000"], losses[""])
	}
}

// TestAutoFindsNone: where no sum becomes clearly faster, as in memory, or workers share memory, whatever their links are, a run under auto has the bits
// of one without a codec, keeps nothing, and says so.
func TestAutoFindsNone(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second, twice")
	}
	job := digits()
	job.Model, job.Epochs = buckets(), 1
	want, err := (&crew{n: 2}).Train(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]struct {
		env     train.Env
		network transport.Network
		codec   string
		say     string
	}{
		"fast links":    {network: transport.NewMemory(), codec: "auto:topk:0.1", say: "topk:0.1 encodes nothing: it is predicted to make no sum clearly faster"},
		"shared memory": {env: train.Env{MayShareMemory: true}, network: slowLinks{transport.NewMemory(), 10e6}, codec: "auto", say: "bf16 encodes nothing: the workers share memory"},
	} {
		v.env.Blob = blob.Dir(t.TempDir())
		c := &crew{env: v.env, n: 2, o: allreduce.Options{Compress: v.codec}, network: v.network}
		got, err := c.Train(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		parts, sums := codecEvents(c)
		if v.env.MayShareMemory && !strings.Contains(strings.Join(sums, "; "), "shared memory") {
			t.Logf("%s: the workers can share none here: %q", name, sums)
			continue
		}
		if len(parts) == 0 || parts[len(parts)-1] != v.say {
			t.Errorf("%s: the run says %q, want %q last", name, parts, v.say)
		}
		if !slices.Equal(got.Params.Flat, want.Params.Flat) {
			t.Errorf("%s: the run ends with other bits than without a codec", name)
		}
		saved, _, err := checkpoint.Latest(t.Context(), v.env.Blob)
		if err != nil {
			t.Fatal(err)
		}
		if saved.Codecs != nil || slices.Contains(saved.Optimizer.Names, "residual") {
			t.Errorf("%s: the checkpoint has %q", name, saved.Optimizer.Names)
		}
	}
}

// TestAutoResumes: what a codec dropped under auto, of some parts, counts in full in a run that goes on without a codec, that encodes other parts, or with more
// workers on other links; and what was dropped of all parts counts under auto.
func TestAutoResumes(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second or two, several times")
	}
	const half = "auto:topk:4000" // of the long parts, on slow links
	slow := slowLinks{transport.NewMemory(), 10e6}
	job := digits()
	job.Model, job.Steps, job.Optimizer = buckets(), 3, trivium.OptimizerSpec{Name: "sgd", Rate: 0.5}
	dropped := map[string]*checkpoint.Checkpoint{}
	for _, codec := range []string{half, "topk:0.05"} {
		store := blob.Dir(t.TempDir())
		c := &crew{env: train.Env{Blob: store}, n: 2, o: allreduce.Options{Compress: codec}, network: slow}
		if _, err := c.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		var err error
		if dropped[codec], _, err = checkpoint.Latest(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		if parts, _ := codecEvents(c); codec == half && strings.Contains(strings.Join(parts, "; "), "encodes nothing") {
			t.Skipf("what else runs here keeps the codec from paying: %q", parts)
		}
		if !slices.Equal(dropped[codec].Optimizer.Names, []string{"residual"}) || len(dropped[codec].Codecs) != 2 {
			t.Fatalf("%s: the checkpoint has %q, of %d workers", codec, dropped[codec].Optimizer.Names, len(dropped[codec].Codecs))
		}
	}
	for i, v := range []struct {
		before  string
		after   string
		n       int
		network transport.Network
	}{
		{half, "", 2, nil},
		{half, "auto:f16", 2, slow}, // all parts, of which some kept nothing
		{half, "auto:f16", 3, nil},
		{"topk:0.05", "auto:f16", 2, slow},
	} {
		what := fmt.Sprintf("%d: %s, then %q with %d workers", i, v.before, v.after, v.n)
		more := *job
		more.Steps++
		var ends [2][]float32 // with what was dropped, and without
		saved := *dropped[v.before]
		kept := slices.Clone(saved.Optimizer.Slots[0])
		for k := range ends {
			if k == 1 {
				empty := *saved.Optimizer
				empty.Slots = [][]float32{make([]float32, len(kept))}
				saved.Codecs, saved.Optimizer = nil, &empty
			}
			env := train.Env{Resume: &saved}
			env.Watch.Notice = func(level observe.Level, text string) {
				if level == observe.Warn && strings.Contains(text, "dropped") {
					t.Errorf("%s: %s", what, text)
				}
			}
			c := &crew{env: env, n: v.n, o: allreduce.Options{Compress: v.after}, network: v.network}
			r, err := c.Train(t.Context(), &more)
			if err != nil {
				t.Fatal(err)
			}
			ends[k] = r.Params.Flat
		}
		rounding := 4e-3 / float64(job.Batch) // of gradients up to 4 or so in half precision, twice
		moved := 0
		for i, d := range kept {
			want := -0.5 * float64(d) / float64(job.Batch)
			if found := float64(ends[0][i] - ends[1][i]); found-want > rounding+2e-3*max(want, -want) || want-found > rounding+2e-3*max(want, -want) {
				t.Fatalf("%s: cell %d: what was dropped moved it by %v, want %v", what, i, found, want)
			}
			if max(want, -want) > 20*rounding {
				moved++
			}
		}
		if moved < 20 {
			t.Errorf("%s: %d cells had much dropped", what, moved)
		}
	}
}
