package app

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/cluster/meta/etcd"
	"github.com/trivium-ml/trivium/cluster/trust"
)

// TestClusterOnAnEtcd: machines join a cluster whose metadata lie in an etcd that runs already, without TLS or with certificates of its own.
// A second cluster is refused there.
func TestClusterOnAnEtcd(t *testing.T) {
	certificates := func(t *testing.T) trust.Files {
		a, err := trust.OpenAuthority(filepath.Join(t.TempDir(), "ca"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		id, err := a.Identity(trust.Name{Role: "etcd", ID: "0"}, []string{"127.0.0.1"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		files, err := id.Save(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	own := certificates(t)
	flag := []string{"--etcd-tls", own.Cert + "," + own.Key + "," + own.CA}
	for name, c := range map[string]struct {
		files etcd.Files
		flags []string
		wrong []string // flags of a node that cannot join
		want  string
	}{
		"no TLS":      {wrong: flag, want: "this cluster's etcd takes no TLS"},
		"its own TLS": {etcd.Files(own), flag, nil, "this cluster's etcd has certificates of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := etcd.Embed(t.Context(), filepath.Join(dir, "etcd"), etcd.Options{Listen: []string{"127.0.0.1:0"}, Files: c.files})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			var at struct{ Addr, Token string }
			up, _, down := background(t, dir, append([]string{"up", "--listen", "127.0.0.1:0", "--json", "--etcd", strings.Join(store.Endpoints(), ",")}, c.flags...)...)
			defer down()
			if err := json.Unmarshal([]byte(up.await(t, "}\n")), &at); err != nil {
				t.Fatal(err)
			}
			join := []string{"node", "--join", at.Addr, "--token", at.Token, "--id", "a", "--cores", "1"}
			if got := runIn(t, dir, append(slices.Clone(join), c.wrong...)...); got.code != Misused || !strings.Contains(got.err, c.want) {
				t.Errorf("exits with %d: %s, want %q", got.code, got.err, c.want)
			}
			node, _, leave := background(t, dir, append(join, c.flags...)...)
			defer leave()
			node.await(t, "lent to")
			ctx, cancel := context.WithTimeout(t.Context(), joinWait)
			defer cancel()
			args := append([]string{"up", "--listen", "127.0.0.1:0", "--dir", "second", "--etcd", strings.Join(store.Endpoints(), ",")}, c.flags...)
			if got := runWith(ctx, t, dir, Options{}, args...); got.code != Misused || !strings.Contains(got.err, "--etcd: another cluster's coordinator uses it") {
				t.Errorf("a second cluster on it exits with %d: %s%s", got.code, got.out, got.err)
			}
		})
	}
}

// TestOneClusterOnAnEtcd: a second cluster is refused as long as the first has a coordinator, and some seconds more where that was killed. A
// cluster's next coordinator is not, and one that stood still for so long that another cluster came learns it.
func TestOneClusterOnAnEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		defer store.Close()
		must := func(hash string) *claim {
			t.Helper()
			c, err := stake(t.Context(), store, []byte(hash))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		refused := func(when string) {
			t.Helper()
			if _, err := stake(t.Context(), store, []byte("b")); !errors.Is(err, errClaimed) {
				t.Errorf("%s: a second cluster gets %v", when, err)
			}
		}
		stop := func(c *claim) { // as a process that is killed, or stands still
			c.end()
			<-c.ended
		}
		killed := must("a")
		time.Sleep(10 * claimTTL)
		refused("while the first is there")
		stop(killed)
		first := must("a")
		time.Sleep(10 * claimTTL)
		refused("after the first began again")
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		second := must("b")
		stop(second)
		time.Sleep(2 * claimTTL)
		third := must("c")
		second.ended = make(chan struct{})
		go second.keep(t.Context()) // it goes on
		if err := <-second.lost; !errors.Is(err, errClaimed) {
			t.Errorf("one that stood still hears %v", err)
		}
		if err := third.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
