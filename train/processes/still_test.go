package processes

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// TestHandshakeWaits: a worker waits for a driver on its host that stands still as long as the workers have to find one another.
func TestHandshakeWaits(t *testing.T) {
	for _, c := range []struct {
		n    Network
		want time.Duration
	}{{Network{Dir: "d"}, joinWait}, {Network{Listen: "10.0.0.1:0"}, 0}} {
		if got := c.n.Options(nil).Handshake; got != c.want {
			t.Errorf("%+v: %v, want %v", c.n, got, c.want)
		}
	}
}

// A stillNetwork is one whose driver answers nobody.
type stillNetwork struct{ transport.Network }

func (n stillNetwork) Open(ctx context.Context, self transport.Name, o transport.Options) (transport.Port, error) {
	p, err := n.Network.Open(ctx, self, o)
	return stillPort{p, o.Handshake}, err
}

type stillPort struct {
	transport.Port
	limit time.Duration
}

func (p stillPort) Stream(name string, o transport.StreamOptions) (transport.Stream, error) {
	s, err := p.Port.Stream(name, o)
	return stillStream{s, p.limit}, err
}

type stillStream struct {
	transport.Stream
	limit time.Duration
}

func (s stillStream) Send(ctx context.Context, _ transport.Name, _ transport.Frame) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

// TestDriverStandsStill: a worker whose driver stands still for too long before it has said hello says so; one that is itself to end does not.
func TestDriverStandsStill(t *testing.T) {
	for limit, want := range map[time.Duration]bool{time.Hour: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			memory := transport.NewMemory()
			driver, err := memory.Open(t.Context(), transport.Name{Job: "test", Role: "driver", ID: "0"}, transport.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer driver.Close()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			err = Work(ctx, &Assignment{Workers: 1, Driver: driver.Name(), DriverAddr: driver.Addr()}, Options{Network: stillNetwork{memory}})
			if err == nil || strings.Contains(err.Error(), "the driver stands still") != want {
				t.Errorf("%v, want that it stands still: %v", err, want)
			}
			if took, most := time.Since(began), min(limit, joinWait); took != most {
				t.Errorf("it took %v, want %v", took, most)
			}
		})
	}
}

// TestHelloAfterAPause: a driver that stood still while its workers started blames none of them: those that it has not heard yet have their
// time, from then on.
func TestHelloAfterAPause(t *testing.T) {
	for late, lost := range map[time.Duration]bool{100 * time.Second: false, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			memory := transport.NewMemory()
			waits := Topology{Name: "waits", Bare: true, New: func(train.Env, json.RawMessage) (trivium.Strategy, error) {
				return trains(func(context.Context) (trivium.Result, error) { return trivium.Result{Reason: trivium.Finished}, nil }), nil
			}}
			d := &Driver{
				Run: "test", Job: &trivium.Job{
					Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits"}, Batch: 1, Epochs: 1, Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 1},
				}, Topology: waits, Workers: 2, Threads: 1,
				Launcher: launch.NewGoroutines(func(ctx context.Context, c launch.Child) error {
					var a Assignment
					if err := json.Unmarshal(c.Config, &a); err != nil {
						return err
					}
					if a.Index == 1 {
						select {
						case <-time.After(late):
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					return Work(ctx, &a, Options{Network: memory, Topologies: Topologies{waits}})
				}),
				Started: func(index, _ int, _ string) {
					if index == 0 {
						time.Sleep(70 * time.Second)
					}
				},
			}
			defer d.Launcher.Close()
			var err error
			if d.Port, err = memory.Open(t.Context(), transport.Name{Job: "test", Role: "driver", ID: "0"}, transport.Options{}); err != nil {
				t.Fatal(err)
			}
			defer d.Port.Close()
			began := time.Now()
			if _, err = d.Train(t.Context()); (err != nil) != lost {
				t.Errorf("a worker that starts after %v: %v", late, err)
			}
			if took := time.Since(began); took > 3*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}
