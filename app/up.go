package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/cluster/meta/etcd"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/transport"
)

// upVerb is a cluster's coordinator.
type upVerb struct {
	Listen    string   `default:"127.0.0.1:7070" placeholder:"ADDR" help:"Where machines and commands reach the coordinator, as host:port (default 127.0.0.1:7070, for this machine alone; :7070 for all)."`
	Advertise string   `placeholder:"HOST" help:"The host by which others reach this machine, where it is not the one of --listen."`
	Dir       string   `default:"cluster" placeholder:"DIR" help:"Where the cluster keeps its state: authority, token, jobs, metadata (default cluster)."`
	Etcd      []string `placeholder:"HOST:PORT" help:"An etcd that runs already; else the coordinator starts one."`
	EtcdTLS   []string `placeholder:"CERT,KEY,CA" help:"Files to speak TLS to that etcd."`
	CA        []string `name:"ca" placeholder:"CERT,KEY" help:"Files of the authority that signs the machines' certificates; else one is made."`
	JSON      bool     `name:"json" help:"Print addresses and token as a JSON object."`
}

func (upVerb) Help() string {
	return "Starts a coordinator, and prints its token. Lend it machines with: PROGRAM node --join ADDR --token TOKEN. Give it jobs with: PROGRAM train ... --on ADDR --token TOKEN. Everything that is not loopback speaks TLS, --etcd only by --etcd-tls."
}

// An invitation is what who joins is told besides its certificate.
type invitation struct {
	Etcd        []string       `json:"etcd"`
	EtcdSpeaks  etcdSecurity   `json:"etcd_speaks"`
	Coordinator transport.Name `json:"coordinator"`
	Addr        string         `json:"addr"` // of the coordinator's port
	Build       string         `json:"build"`
}

// An etcdSecurity is how a cluster's etcd is spoken to: its coordinator's own takes the cluster's certificates, another's what it was set up for.
type etcdSecurity string

const (
	clusterTLS etcdSecurity = "the cluster's TLS"
	plainEtcd  etcdSecurity = "no TLS"
	foreignTLS etcdSecurity = "TLS of its own"
)

// metaPrefix is where a cluster's keys lie in an etcd.
const metaPrefix = "trivium/"

func (v *upVerb) Run(ctx context.Context, s *session) error {
	log := slog.New(slog.NewTextHandler(s.err, nil))
	for first := true; ; first = false {
		err := v.coordinate(ctx, s, log, first)
		if _, out := errors.AsType[*cluster.OutError](err); !out || ctx.Err() != nil {
			return err
		}
		log.Warn("the coordinator begins again, with the jobs that wait", "why", err)
	}
}

// coordinate is one incarnation of the coordinator. The first says how to join.
func (v *upVerb) coordinate(ctx context.Context, s *session, log *slog.Logger, first bool) error {
	up, err := v.prepare(ctx, s, log)
	if up != nil {
		defer up.close(log)
	}
	switch {
	case err != nil && ctx.Err() != nil: // it is asked to end before it has begun
		return nil
	case err != nil:
		return err
	}
	server := apiServer(up.coordinator.Handler(), log)
	done := make(chan error, 1)
	go func() { done <- server.Serve(tls.NewListener(up.listener, up.self.OpenConfig())) }()
	defer server.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if up.etcd != nil {
		go func() {
			select {
			case <-up.etcd.Failed():
				cancel(fmt.Errorf("the metadata store failed: %w", up.etcd.Err()))
			case <-ctx.Done():
			}
		}()
	} else {
		go func() {
			select {
			case err := <-up.claim.lost:
				cancel(misused(fmt.Errorf("--etcd: %w", err)))
			case <-ctx.Done():
			}
		}()
	}
	if first {
		if err := v.greet(s, up); err != nil {
			return err
		}
	}
	if err := up.coordinator.Run(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// apiServer serves a coordinator's API. Whoever reaches its port may connect: none of them holds a connection that asks nothing.
func apiServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: fleet.IdleWait, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// A coordinating process has all that a coordinator is made of.
type coordinating struct {
	host        string
	addr        string // of the API
	token       trust.Token
	authority   *trust.Authority
	self        *trust.Identity
	etcd        *etcd.Server // nil: another's
	claim       *claim       // on that; nil: it is the coordinator's own
	closers     []func() error
	port        transport.Port
	portAddr    string // by which others reach it
	listener    net.Listener
	coordinator *fleet.Coordinator
}

func (u *coordinating) close(log *slog.Logger) {
	for i := len(u.closers) - 1; i >= 0; i-- {
		if err := u.closers[i](); err != nil && !errors.Is(err, net.ErrClosed) {
			log.Warn("not closed in good order", "error", err)
		}
	}
}

// prepare opens everything. What it returns is to be closed, with an error too.
func (v *upVerb) prepare(ctx context.Context, s *session, log *slog.Logger) (*coordinating, error) {
	u := &coordinating{}
	var err error
	if u.listener, err = net.Listen("tcp", v.Listen); err != nil { // before anything is written
		return u, misused(fmt.Errorf("--listen: %w", err))
	}
	u.closers = append(u.closers, u.listener.Close)
	store, endpoints, err := v.given(ctx, u, log)
	if err != nil {
		return u, misused(err)
	}
	if err := v.trust(u); err != nil {
		return u, misconfigured(err)
	}
	_, port, err := net.SplitHostPort(u.listener.Addr().String())
	if err != nil {
		return u, err
	}
	v.Listen = net.JoinHostPort(listenHost(v.Listen), port) // also of the next incarnation
	u.addr = net.JoinHostPort(u.host, port)
	if store == nil {
		if store, endpoints, err = v.meta(ctx, u); err != nil {
			return u, misconfigured(err)
		}
	} else {
		hash := u.authority.Hash()
		if u.claim, err = stake(ctx, store, hash[:]); err != nil {
			return u, misused(fmt.Errorf("--etcd: %w", err))
		}
		u.closers = append(u.closers, u.claim.Close)
	}
	network := transport.TCP{
		Listen: net.JoinHostPort(listenHost(v.Listen), "0"), TLS: u.self.PeerConfig(),
		Verify: func(n transport.Name, cs tls.ConnectionState) error {
			return trust.VerifyName(cs, trust.Name{Role: n.Role, ID: n.ID})
		},
	}
	self := transport.Name{Role: trust.CoordinatorRole, ID: "0", Incarnation: uint64(time.Now().UnixMilli())}
	if u.port, err = network.Open(ctx, self, transport.Options{Log: log}); err != nil {
		return u, err
	}
	u.closers = append(u.closers, u.port.Close)
	b, err := thisBuild()
	if err != nil {
		return u, err
	}
	if u.portAddr, err = withHost(u.port.Addr(), u.host); err != nil {
		return u, err
	}
	extra, err := json.Marshal(invitation{endpoints, v.etcdSecurity(), self, u.portAddr, b.Binary})
	if err != nil {
		return u, err
	}
	u.coordinator, err = fleet.New(fleet.Options{
		Dir: v.Dir, Build: b.Binary, Authority: u.authority, Meta: store, Port: u.port, Addr: u.portAddr, Log: log,
		Issuer: &trust.Issuer{Authority: u.authority, Secret: u.token.Secret, Extra: extra, Log: log},
		Run:    func(ctx context.Context, w *fleet.Work) fleet.Outcome { return s.runWork(ctx, w, u.host) },
	})
	return u, err
}

// trust opens the authority, the token and the coordinator's own certificate.
func (v *upVerb) trust(u *coordinating) (err error) {
	host := listenHost(v.Listen)
	if u.host = v.Advertise; u.host == "" {
		if u.host = host; net.ParseIP(host).IsUnspecified() || host == "" {
			if u.host, err = reachable("192.0.2.1:9"); err != nil { // an address for documentation: anywhere but here
				return fmt.Errorf("--advertise: this machine's own address is not known (%w): give the host by which others reach it", err)
			}
		}
	}
	switch len(v.CA) {
	case 0:
		u.authority, err = trust.OpenAuthority(filepath.Join(v.Dir, "ca"), time.Now())
	case 2:
		u.authority, err = trust.LoadAuthority(v.CA[0], v.CA[1], time.Now())
		err = misused(err) // also of files that it may not read: they are the command's
	default:
		err = fmt.Errorf("--ca: want two files, CERT,KEY; found %d", len(v.CA))
	}
	if err != nil {
		return err
	}
	secret, err := trust.OpenSecret(v.Dir)
	if err != nil {
		return err
	}
	u.token = trust.Token{Secret: secret, CA: u.authority.Hash()}
	u.self, err = u.authority.Identity(fleet.CoordinatorName, []string{u.host, "127.0.0.1", "localhost"}, time.Now())
	return err
}

// etcdSecurity is how nodes are to speak to the metadata store.
func (v *upVerb) etcdSecurity() etcdSecurity {
	switch {
	case len(v.Etcd) == 0:
		return clusterTLS
	case len(v.EtcdTLS) == 0:
		return plainEtcd
	}
	return foreignTLS
}

// etcdTLS reads the files of --etcd-tls; nil without. They are of the etcd's own authority, which knows nothing of the names that this
// cluster's certificates have.
func etcdTLS(files []string) (*tls.Config, error) {
	switch len(files) {
	case 0:
		return nil, nil
	case 3:
		pair, err := tls.LoadX509KeyPair(files[0], files[1])
		if err != nil {
			return nil, fmt.Errorf("--etcd-tls: the certificate %s with the key %s: %w", files[0], files[1], err)
		}
		text, err := os.ReadFile(files[2])
		if err != nil {
			return nil, fmt.Errorf("--etcd-tls: the authority: %w", err)
		}
		authority := x509.NewCertPool()
		if !authority.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--etcd-tls: the authority: %s holds no certificate", files[2])
		}
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: authority}, nil
	}
	return nil, fmt.Errorf("--etcd-tls: want three files, CERT,KEY,CA; found %d", len(files))
}

// given opens the metadata store that is named; nil: none is.
func (v *upVerb) given(ctx context.Context, u *coordinating, log *slog.Logger) (cluster.Meta, []string, error) {
	if len(v.Etcd) == 0 {
		if len(v.EtcdTLS) > 0 {
			return nil, nil, errors.New("--etcd-tls: it is for the etcd that --etcd names, and none is; the coordinator's own speaks the cluster's TLS")
		}
		return nil, nil, nil
	}
	config, err := etcdTLS(v.EtcdTLS)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	store, closer, err := etcd.Open(ctx, v.Etcd, config, metaPrefix, log)
	if err != nil {
		return nil, nil, fmt.Errorf("--etcd: %w", err)
	}
	u.closers = append(u.closers, closer.Close)
	return store, v.Etcd, nil
}

// meta starts a metadata store of its own.
func (v *upVerb) meta(ctx context.Context, u *coordinating) (store cluster.Meta, endpoints []string, err error) {
	at, _, err := net.SplitHostPort(u.listener.Addr().String()) // by number, as etcd wants it; --advertise may be an address of a router
	if err != nil {
		return nil, nil, err
	}
	files, err := u.self.Save(filepath.Join(v.Dir, "identity"))
	if err != nil {
		return nil, nil, err
	}
	u.etcd, err = etcd.Embed(ctx, filepath.Join(v.Dir, "etcd"), etcd.Options{
		Listen: []string{net.JoinHostPort(at, "0")}, Files: etcd.Files(files),
	})
	if err != nil {
		return nil, nil, err
	}
	u.closers = append(u.closers, u.etcd.Close)
	for _, e := range u.etcd.Endpoints() {
		_, port, err := net.SplitHostPort(e)
		if err != nil {
			return nil, nil, err
		}
		endpoints = append(endpoints, net.JoinHostPort(u.host, port))
	}
	return u.etcd.Meta(metaPrefix), endpoints, nil
}

// greet says how to join.
func (v *upVerb) greet(s *session, u *coordinating) error {
	token := u.token.String()
	if v.JSON {
		return json.NewEncoder(s.out).Encode(map[string]string{"addr": u.addr, "token": token, "port": u.portAddr})
	}
	_, err := fmt.Fprintf(s.out, "cluster at %s, state in %s\ntoken %s\n\nlend a machine:  %s node --join %s --token %s\ngive it a job:   %s train MODEL --workers 2 --on %s --token %s\nlook:            %s status --on %s --token %s\n",
		u.addr, v.Dir, token, s.command, u.addr, token, s.command, u.addr, token, s.command, u.addr, token)
	return err
}

func listenHost(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return host
}

// withHost is a transport's address with another host.
func withHost(addr, host string) (string, error) {
	scheme, rest, ok := bytes.Cut([]byte(addr), []byte(":"))
	_, port, err := net.SplitHostPort(string(rest))
	if !ok || err != nil {
		return "", fmt.Errorf("the address %q has no port", addr)
	}
	return string(scheme) + ":" + net.JoinHostPort(host, port), nil
}
