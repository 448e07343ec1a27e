package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// A deafStore is a metadata store that takes requests and answers none.
type deafStore struct{ cluster.Meta }

func (deafStore) Get(ctx context.Context, key string) (cluster.KV, error) {
	<-ctx.Done()
	return cluster.KV{Key: key}, ctx.Err()
}

func (deafStore) Grant(ctx context.Context, _ time.Duration) (cluster.Lease, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func (deafStore) Watch(ctx context.Context, _ string, _ int64) iter.Seq2[cluster.KV, error] {
	return func(func(cluster.KV, error) bool) { <-ctx.Done() }
}

// TestNotLetIn: a machine that nobody lets into the group says what it waited for, in place of waiting for ever.
func TestNotLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		port, err := transport.NewMemory().Open(ctx, transport.Name{Role: fleet.NodeRole, ID: "a", Incarnation: 1}, transport.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer port.Close()
		_, err = enter(ctx, deafStore{}, port, "tcp:192.0.2.7:9", "here", nil)
		for _, want := range []string{"does not answer", "not let in within 1m30s", "tcp:192.0.2.7:9"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	})
}

// TestSpare: a machine for which a cluster has no room asks about no firewall.
func TestSpare(t *testing.T) {
	const want = "not let in within 1m30s: the cluster has as many machines as it may, at most 255"
	if err := spare(fmt.Errorf("cluster: %w: does a firewall", cluster.ErrFull)); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestNodeBackOff: a machine waits longer each time that it is not taken. One that was lent in between begins anew.
func TestNodeBackOff(t *testing.T) {
	var v nodeVerb
	for i, c := range []struct {
		taken bool
		want  time.Duration
	}{{false, 1}, {false, 3}, {false, 7}, {true, 1}, {false, 3}, {false, 7}, {false, 15}, {false, 30}, {false, 30}} {
		if c.taken {
			v.taken()
		}
		if v.backOff(); v.wait != c.want*time.Second {
			t.Errorf("%d: it waits %v, want %v", i, v.wait, c.want*time.Second)
		}
	}
}

// TestSocketsOfAMachine: the sockets of a job's processes are in folders that go with who made them, here and at the coordinator.
func TestSocketsOfAMachine(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	sockets, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	in := ""
	launcher := housed{launch.NewGoroutines(func(ctx context.Context, c launch.Child) error {
		var a processes.Assignment
		if err := json.Unmarshal(c.Config, &a); err != nil {
			return err
		}
		in = a.Network.Dir
		return work(ctx, c, Options{}, nil, nil)
	}), sockets.Path}
	out := newSession(nil, nil, Options{}).runWork(t.Context(), &fleet.Work{
		Job: fleet.Job{ID: "job-1", Threads: 1, Spec: fleet.Spec{Payload: smallPayload(t)}}, Nodes: []fleet.Lent{{Offer: fleet.Offer{Addr: "127.0.0.1"}}},
		Launcher: launcher, Dir: t.TempDir(), Log: new(tape),
	}, "127.0.0.1")
	if err := errors.Join(launcher.Close(), sockets.Close()); err != nil || out.Code != Done || in != sockets.Path {
		t.Errorf("%+v, %v; its sockets were in %s, want %s", out, err, in, sockets.Path)
	}
	if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
