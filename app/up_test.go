package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/transport"
)

// TestCertificatesOfAnEtcd: the files by which an etcd is spoken to are those of its own authority, whatever names are in them.
func TestCertificatesOfAnEtcd(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	secret, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err, keyErr); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	write(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	write(t, dir, "empty.pem", "")
	in := func(name string) string { return filepath.Join(dir, name) }
	config, err := etcdTLS([]string{in("cert.pem"), in("key.pem"), in("cert.pem")})
	if err != nil || len(config.Certificates) != 1 || config.RootCAs == nil {
		t.Errorf("%+v, %v", config, err)
	}
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{in("cert.pem"), in("key.pem")}, "want three files, CERT,KEY,CA; found 2"},
		{[]string{in("cert.pem"), in("cert.pem"), in("cert.pem")}, "cert.pem"},
		{[]string{in("cert.pem"), in("key.pem"), in("empty.pem")}, "empty.pem holds no certificate"},
		{[]string{in("cert.pem"), in("key.pem"), in("none.pem")}, "none.pem"},
	} {
		if _, err := etcdTLS(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.files, err, c.want)
		}
	}
}

// smallPayload is a job of one worker with those metrics, as train gives it to a cluster.
func smallPayload(t *testing.T, metrics ...string) json.RawMessage {
	t.Helper()
	job := trivium.Job{
		Version: trivium.JobVersion, Model: "softmax", Data: trivium.Data{Source: "digits", Rows: 300}, Batch: 100, Epochs: 1,
		Optimizer: trivium.OptimizerSpec{Name: "sgd", Rate: 0.1}, Metrics: metrics,
	}
	encoded, err := job.Encode()
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(submission{Job: encoded, Topology: alone})
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// TestJobWithoutARunDirectory: a job of a cluster whose run directory cannot be written trains, and who gave it is told where its model is,
// also where what it printed is lost.
func TestJobWithoutARunDirectory(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	write(t, dir, jobRuns, "") // no folder
	t.Setenv("TMPDIR", temp)
	payload := smallPayload(t)
	launcher := launch.NewGoroutines(func(ctx context.Context, c launch.Child) error { return work(ctx, c, Options{}, nil, nil) })
	defer launcher.Close()
	printed := new(tape)
	out := newSession(nil, nil, Options{}).runWork(t.Context(), &fleet.Work{
		Job: fleet.Job{ID: "job-1", Threads: 1, Spec: fleet.Spec{Payload: payload}}, Nodes: []fleet.Lent{{Offer: fleet.Offer{Addr: "127.0.0.1"}}},
		Launcher: launcher, Dir: dir, Log: printed,
	}, "127.0.0.1")
	if out.Code != Done || !strings.Contains(out.Why, "its model is in "+temp) || !strings.Contains(out.Why, "on the coordinator's machine") {
		t.Errorf("%+v", out)
	}
	if !strings.Contains(printed.String(), "the model goes to "+temp) {
		t.Errorf("it prints %s", printed)
	}
}

// TestOwnMetricOnCluster: a coordinator knows its program's own metrics, as the workers do.
func TestOwnMetricOnCluster(t *testing.T) {
	payload := smallPayload(t, "misses")
	launcher := launch.NewGoroutines(func(ctx context.Context, c launch.Child) error { return work(ctx, c, ownOptions(), nil, nil) })
	defer launcher.Close()
	printed := new(tape)
	out := newSession(nil, nil, ownOptions()).runWork(t.Context(), &fleet.Work{
		Job: fleet.Job{ID: "job-1", Threads: 1, Spec: fleet.Spec{Payload: payload}}, Nodes: []fleet.Lent{{Offer: fleet.Offer{Addr: "127.0.0.1"}}},
		Launcher: launcher, Dir: t.TempDir(), Log: printed,
	}, "127.0.0.1")
	if out.Code != Done || !strings.Contains(printed.String(), "test.misses") {
		t.Errorf("%+v: %s", out, printed)
	}
}

// TestJobCallsItsRun: a coordinator is told how a job's run is called, also where nobody has named it, so that status has it.
func TestJobCallsItsRun(t *testing.T) {
	dir := t.TempDir()
	launcher := launch.NewGoroutines(func(ctx context.Context, c launch.Child) error { return work(ctx, c, Options{}, nil, nil) })
	defer launcher.Close()
	var called []string
	out := newSession(nil, nil, Options{}).runWork(t.Context(), &fleet.Work{
		Job: fleet.Job{ID: "job-1", Threads: 1, Spec: fleet.Spec{Payload: smallPayload(t)}}, Nodes: []fleet.Lent{{Offer: fleet.Offer{Addr: "127.0.0.1"}}},
		Launcher: launcher, Dir: dir, Log: new(tape), Called: func(run string) { called = append(called, run) },
	}, "127.0.0.1")
	made, err := os.ReadDir(filepath.Join(dir, jobRuns))
	if err != nil || len(made) != 1 || out.Code != Done {
		t.Fatalf("%+v; it made %v, %v", out, made, err)
	}
	if !slices.Equal(called, []string{made[0].Name()}) {
		t.Errorf("its run is called %q, want %q once", called, made[0].Name())
	}
}

// TestWhyInOneLine: whatever a job failed of, status has a line for it.
func TestWhyInOneLine(t *testing.T) {
	w := &fleet.Work{Job: fleet.Job{Spec: fleet.Spec{Payload: json.RawMessage(`{"job": {"version": 9}, "name": "a/b"}`)}}, Log: new(tape)}
	out := newSession(nil, nil, Options{}).runWork(t.Context(), w, "127.0.0.1")
	if out.Code != Misused || strings.Contains(out.Why, "\n") || !strings.Contains(out.Why, "found 9; want the name of a folder") {
		t.Errorf("%+v", out)
	}
}

// TestUpInterruptedEarly: a coordinator that is asked to end while it starts ends, and no flag is wrong.
func TestUpInterruptedEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := runWith(ctx, t, t.TempDir(), Options{}, "up", "--listen", "127.0.0.1:0")
	if got.code != Done || got.err != "" {
		t.Errorf("exits with %d: %s%s", got.code, got.out, got.err)
	}
}

// TestUpLeavesNothing: a coordinator that cannot listen, or does not reach the etcd that it is given, has made no folder.
func TestUpLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for flags, want := range map[string]string{
		"--listen " + taken.Addr().String():                               "--listen: ",
		"--listen 127.0.0.1:0 --etcd 127.0.0.1:1 --etcd-tls none,none,ca": "--etcd-tls: the certificate none",
		"--listen 127.0.0.1:0 --etcd-tls cert,key,ca":                     "--etcd-tls: it is for the etcd that --etcd names",
	} {
		dir := t.TempDir()
		got := runIn(t, dir, append([]string{"up"}, strings.Fields(flags)...)...)
		if got.code != Misused || !strings.Contains(got.err, want) {
			t.Errorf("%s: exits with %d: %s%s", flags, got.code, got.out, got.err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: it leaves %v, %v", flags, left, err)
		}
	}
}

// callers are a listener of connections that a test has made.
type callers chan net.Conn

func (c callers) Accept() (net.Conn, error) {
	if conn, ok := <-c; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (c callers) Close() error {
	close(c)
	return nil
}

func (c callers) Addr() net.Addr { return &net.UnixAddr{Name: "callers", Net: "pipe"} }

// TestStrangers: who reaches a coordinator's port and has no certificate is answered, and holds no connection: neither with a body that
// comes byte by byte, whatever it is for, nor with answers that it does not read, nor with one that asks nothing more.
func TestStrangers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		defer time.Sleep(time.Minute) // two that close a pipe wait for each other, and no longer
		authority, err := trust.NewAuthority(time.Now())
		must(err)
		self, err := authority.Identity(fleet.CoordinatorName, nil, time.Now())
		must(err)
		port, err := transport.NewMemory().Open(t.Context(), transport.Name{Role: trust.CoordinatorRole, ID: "0", Incarnation: 1}, transport.Options{})
		must(err)
		defer port.Close()
		c, err := fleet.New(fleet.Options{Dir: dir, Build: "this", Authority: authority, Issuer: &trust.Issuer{Authority: authority}, Port: port})
		must(err)
		l := make(callers)
		server := apiServer(c.Handler(), slog.New(slog.DiscardHandler))
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(tls.NewListener(l, self.OpenConfig())) })
		defer serving.Wait()
		defer server.Close()
		for _, k := range []struct {
			what, line string
			body       int // of which one byte a second comes
			times      int // that it asks
			deaf       bool
			want       string // the answer, "": any
			limit      time.Duration
		}{
			{"a body that trickles", "POST /v1/join", 1000, 1, false, "", 11 * time.Second},
			{"a body that nobody wants", "POST /v1/status", 1000, 1, false, "", 11 * time.Second},
			{"a body without a certificate", "POST /v1/sent", 1000, 1, false, "", 11 * time.Second},
			{"answers that nobody reads", "GET /v1/status", 0, 1000, true, "", 20 * time.Second},
			{"nothing more", "GET /v1/status", 0, 1, false, "401 Unauthorized", 2 * time.Minute},
		} {
			near, far := net.Pipe()
			l <- far
			conn := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
			must(conn.Handshake())
			began := time.Now()
			var asking sync.WaitGroup
			asking.Go(func() {
				for range k.times {
					if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n", k.line, k.body); err != nil {
						return
					}
				}
				for range k.body {
					time.Sleep(time.Second)
					if _, err := conn.Write([]byte{0}); err != nil {
						return
					}
				}
			})
			answer := make([]byte, 100)
			if k.deaf {
				_, _ = conn.Read(answer) // the first, and no other
			} else {
				answer, _ = io.ReadAll(conn) // until it is closed
			}
			asking.Wait()
			if took := time.Since(began); took > k.limit || !strings.Contains(string(answer), k.want) {
				t.Errorf("%s: closed after %v with %q", k.what, took, answer)
			}
			_ = near.Close()
		}
	})
}

// goneLauncher starts nothing: its machine is gone.
type goneLauncher struct{ launch.Launcher }

func (goneLauncher) Start(context.Context, launch.Spec) (*launch.Process, error) {
	return nil, fmt.Errorf("fleet: start worker/0: %w", &fleet.MachineLostError{ID: "a", Why: io.EOF})
}

// TestMachineGoneBeforeTheStart: a job whose machine goes before its workers run there fails as one whose machine goes later.
func TestMachineGoneBeforeTheStart(t *testing.T) {
	w := &fleet.Work{
		Job: fleet.Job{ID: "job-1", Threads: 1, Spec: fleet.Spec{Payload: smallPayload(t)}}, Nodes: []fleet.Lent{{Offer: fleet.Offer{Addr: "127.0.0.1"}}},
		Launcher: goneLauncher{}, Dir: t.TempDir(), Log: new(tape),
	}
	out := newSession(nil, nil, Options{}).runWork(t.Context(), w, "127.0.0.1")
	if out.Code != Lost || !strings.Contains(out.Why, "the machine a is lost") {
		t.Errorf("%+v", out)
	}
}
