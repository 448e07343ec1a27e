package cluster_test

import (
	"testing"
	"time"

	"github.com/trivium-ml/trivium/sim"
)

// TestCrowd: what a crowd says while it waits for its last does not grow with the square of its number, apart from what the store tells each
// of all.
func TestCrowd(t *testing.T) {
	const crowd = 100
	pol := seedPolicy
	pol.StartWorkers, pol.MaxWorkers = crowd, crowd
	s := newScene(1, crowd-1, pol, sim.Options{})
	s.add(2 * time.Second)
	if err := s.w.Converges(5*time.Second, func() bool { return len(s.views[1].Members) == crowd && s.agreed() }); err != nil {
		t.Fatal(err)
	}
	if n := s.w.Events(); n > 9*crowd*crowd {
		t.Errorf("%d events in %v", n, s.w.Now())
	}
	if len(s.convicted) > 0 {
		t.Errorf("convicted: %+v", s.convicted)
	}
}
