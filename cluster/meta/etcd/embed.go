package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/trivium-ml/trivium/cluster"
)

// A Server is an etcd inside this process: a cluster of one, that keeps what it is told in a directory.
type Server struct {
	etcd      *embed.Etcd
	client    *clientv3.Client
	failed    *failure
	endpoints []string
	running   sync.WaitGroup
	close     sync.Once
}

// Options of Embed. The zero value works: an etcd for this process alone.
type Options struct {
	Listen []string      // addresses for other machines, as host:port; port 0: any that is free. Endpoints says which
	Files  Files         // with them, who connects must have a certificate of the same authority; without, only loopback may be listened on
	Ready  time.Duration // limit for the start; 0: 30 s
	Log    *slog.Logger  // nil discards
}

// Files are PEM files, since etcd reads them again when they are replaced.
type Files struct{ Cert, Key, CA string }

// Embed starts an etcd that keeps its data in dir, and returns when it answers. Its errors say what is wrong with the directory or the
// addresses, and what to do.
func Embed(ctx context.Context, dir string, o Options) (*Server, error) {
	if o.Ready == 0 {
		o.Ready = 30 * time.Second
	}
	fail := func(err error) (*Server, error) { return nil, fmt.Errorf("etcd: start in %s: %w", dir, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	cfg, err := o.config(dir)
	if err != nil {
		return fail(err)
	}
	for _, addr := range o.Listen {
		if err := free(ctx, addr); err != nil {
			return fail(err)
		}
	}
	if err := check(dir); err != nil {
		return fail(err)
	}
	s := &Server{failed: newFailure()}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(bridge(o.Log, s.failed))

	limit := time.NewTimer(o.Ready)
	defer limit.Stop()
	started, gaveUp, over := make(chan *embed.Etcd), make(chan struct{}), make(chan struct{})
	go func() { // of its own, since etcd ends the goroutine that it fails in
		defer close(over)
		defer func() {
			if r := recover(); r != nil {
				s.failed.set(caught(r))
			}
		}()
		e, err := embed.StartEtcd(cfg)
		if err != nil {
			s.failed.set(err)
			return
		}
		select {
		case started <- e:
		case <-gaveUp:
			e.Close()
		}
	}()
	abandon := func() { // a start cannot be broken off: it closes what it has started when it is done
		close(gaveUp)
		select {
		case <-over:
		case <-time.After(5 * time.Second):
		}
	}
	select {
	case s.etcd = <-started:
	case <-s.failed.done:
		return fail(damaged(dir, s.failed.get()))
	case <-ctx.Done():
		abandon()
		return fail(ctx.Err())
	case <-limit.C:
		abandon()
		return fail(fmt.Errorf("it has not started within %v: is the disk that slow?", o.Ready))
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.etcd.Err():
		s.etcd.Close()
		return fail(err)
	case <-s.failed.done:
		s.etcd.Close()
		return fail(damaged(dir, s.failed.get()))
	case <-ctx.Done():
		s.etcd.Close()
		return fail(ctx.Err())
	case <-limit.C:
		s.etcd.Close()
		return fail(fmt.Errorf("it is not ready within %v: is the disk that slow?", o.Ready))
	}
	for _, l := range s.etcd.Clients {
		s.endpoints = append(s.endpoints, l.Addr().String())
	}
	s.client = v3client.New(s.etcd.Server)
	s.running.Go(func() {
		for err := range s.etcd.Err() { // until Close
			if !s.failed.closing.Load() {
				s.failed.set(err)
			}
		}
	})
	return s, nil
}

func (o *Options) config(dir string) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.Name = "trivium"
	// Nobody else takes part: a member of one has no peers, and needs no port for them. The URL is a name only.
	peer := url.URL{Scheme: "http", Host: "localhost:2380"}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{}, []url.URL{}
	cfg.EnableGRPCGateway = false
	// Alone, it elects itself, and nobody's heartbeat can be late. So leases may be as short as a second.
	cfg.TickMs, cfg.ElectionMs = 50, 250
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, "10000"
	cfg.GRPCKeepAliveMinTime = time.Second // Open's clients ask every 2 s
	withTLS := o.Files != (Files{})
	if withTLS {
		if o.Files.Cert == "" || o.Files.Key == "" || o.Files.CA == "" {
			return nil, fmt.Errorf("TLS needs a certificate, its key and the authority's certificate: got %+v", o.Files)
		}
		// etcd would start, and then not serve.
		if _, err := tls.LoadX509KeyPair(o.Files.Cert, o.Files.Key); err != nil {
			return nil, fmt.Errorf("the certificate %s with the key %s: %w", o.Files.Cert, o.Files.Key, err)
		}
		if text, err := os.ReadFile(o.Files.CA); err != nil {
			return nil, fmt.Errorf("the authority's certificate: %w", err)
		} else if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the authority's certificate: %s holds none", o.Files.CA)
		}
		cfg.ClientTLSInfo = transport.TLSInfo{
			CertFile: o.Files.Cert, KeyFile: o.Files.Key, TrustedCAFile: o.Files.CA, ClientCertAuth: true,
		}
		cfg.TlsMinVersion = "TLS1.3"
	}
	for _, addr := range o.Listen {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("listen on %q: want host:port: %w", addr, err)
		}
		u := url.URL{Scheme: "http", Host: addr}
		if withTLS {
			u.Scheme = "https"
		} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return nil, fmt.Errorf("listen on %s: without certificates everyone who reaches it could change the cluster: give Files, or "+
				"listen on 127.0.0.1", addr)
		}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = append(cfg.ListenClientUrls, u), append(cfg.AdvertiseClientUrls, u)
	}
	return cfg, nil
}

// free says whether an address can be listened on.
func free(ctx context.Context, addr string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w: if another coordinator or etcd runs there, stop it or use it; else choose another address", err)
	}
	return l.Close()
}

// Meta returns the store of the keys with that prefix. It ends with the server.
func (s *Server) Meta(prefix string) cluster.Meta { return &store{s.client, prefix} }

// Endpoints are the addresses that it listens on.
func (s *Server) Endpoints() []string { return s.endpoints }

// Failed is closed when the server cannot go on, as with a full disk. Err says why.
func (s *Server) Failed() <-chan struct{} { return s.failed.done }

// Err says why the server has failed; nil: it has not.
func (s *Server) Err() error {
	if err := s.failed.get(); err != nil {
		return fmt.Errorf("etcd: in %s: %w", s.etcd.Config().Dir, err)
	}
	return nil
}

// Close ends the server, and its stores.
func (s *Server) Close() error {
	var err error
	s.close.Do(func() {
		s.failed.closing.Store(true)
		err = s.client.Close()
		if s.failed.get() != nil {
			// It may wait for what will not come. What it has acknowledged rests on the disk.
			done := make(chan struct{})
			go func() { s.etcd.Close(); close(done) }()
			select {
			case <-done:
				s.running.Wait()
			case <-time.After(2 * time.Second):
			}
			return
		}
		s.etcd.Close()
		s.running.Wait()
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// damaged says what to do about data that etcd does not start from. A disk that is full or must not be written to has damaged none.
func damaged(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: if its data are damaged, move %s away to begin anew (jobs and joined machines are then forgotten; machines join "+
		"again with the token)", err, filepath.Join(dir, "member"))
}
