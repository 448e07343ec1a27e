package server

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium/ps"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// TestLanesFor: what is slow one way gets lanes, the more the longer it takes; what is as fast as memory none.
func TestLanesFor(t *testing.T) {
	for _, c := range []struct {
		oneWay time.Duration
		rate   float64
		want   int
	}{
		{0, 1e8, 1},
		{500 * time.Microsecond, 1e8, 1},
		{13400 * time.Microsecond, 94e6, 8}, // 420 kB of each of three workers at 750 Mbit/s
		{100 * time.Millisecond, 1e8, 16},
		{time.Hour, 1, 16},
		{100 * time.Millisecond, 2e9, 1},
	} {
		if got := lanesFor(c.oneWay, c.rate); got != c.want {
			t.Errorf("%v at %.0f MB/s: %d lanes, want %d", c.oneWay, c.rate/1e6, got, c.want)
		}
	}
}

// TestLooks: only jobs whose bits and speed are the better for it, or the same, look at their links.
func TestLooks(t *testing.T) {
	env := func(workers int, memory bool) *train.Env {
		return &train.Env{Peers: make([]transport.Name, workers), MayShareMemory: memory}
	}
	bsp := Options{Mode: ps.BSP}
	for _, c := range []struct {
		name  string
		o     Options
		env   *train.Env
		exact bool
		want  bool
	}{
		{"bsp", bsp, env(2, false), false, true},
		{"bsp on one machine", bsp, env(2, true), false, false},
		{"bsp, exact", bsp, env(2, false), true, false},
		{"one worker", bsp, env(1, false), false, false},
		{"lanes given", Options{Mode: ps.BSP, Lanes: 1}, env(2, false), false, false},
		{"a codec", Options{Mode: ps.BSP, Compress: "f16"}, env(2, false), false, false},
		{"ssp", Options{Mode: ps.SSP}, env(2, false), false, false},
	} {
		if got := c.o.looks(c.env, c.exact); got != c.want {
			t.Errorf("%s: looks: %v", c.name, got)
		}
	}
}

// TestServing: workers that hold shards are on as many hosts as can be, in the same order everywhere.
func TestServing(t *testing.T) {
	env := &train.Env{}
	for i := range 5 {
		env.Peers = append(env.Peers, transport.Name{Role: "worker", ID: string(rune('0' + i))})
	}
	for _, c := range []struct {
		hosts [][]int
		n     int
		want  string
	}{
		{nil, 2, "01"},
		{[][]int{{0, 1, 2}, {3, 4}}, 1, "0"},
		{[][]int{{0, 1, 2}, {3, 4}}, 2, "03"},
		{[][]int{{0, 1, 2}, {3, 4}}, 5, "03142"},
		{[][]int{{0, 2}, {1}, {3, 4}}, 4, "0132"},
	} {
		got := ""
		env.Hosts = c.hosts
		for _, n := range serving(env, c.n) {
			got += n.ID
		}
		if got != c.want {
			t.Errorf("%d servers on %v: %s, want %s", c.n, c.hosts, got, c.want)
		}
	}
}

// FuzzLook: bytes are a look, which is written as it was read, or an error.
func FuzzLook(f *testing.F) {
	f.Add(look{lanes: 4, oneWay: time.Millisecond, rate: 1e8}.append(nil))
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		l, err := readLook(p)
		if err != nil {
			return
		}
		if again, err := readLook(l.append(nil)); l.lanes < 1 || l.lanes > MaxLanes || l.oneWay < 0 || err != nil || again != l && l.rate == l.rate {
			t.Errorf("%v is read again as %v, %v", l, again, err)
		}
	})
}
