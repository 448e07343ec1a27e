package trust

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var coordinator = Name{CoordinatorRole, "0"}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A coordinator that answers joins, as in the package's comment.
type clusterOf struct {
	authority *Authority
	self      *Identity
	issuer    *Issuer
	token     Token
	addr      string
	log       bytes.Buffer // the issuer writes it before it answers
}

func newCluster(t *testing.T, role string) *clusterOf {
	t.Helper()
	now := time.Now()
	c := &clusterOf{authority: must(NewAuthority(now))}
	c.token = Token{must(NewSecret()), c.authority.Hash()}
	c.self = must(c.authority.Identity(Name{role, "0"}, []string{"127.0.0.1"}, now))
	c.issuer = &Issuer{
		Authority: c.authority, Secret: c.token.Secret, Extra: []byte("etcd=10.0.0.1:2379"), Log: slog.New(slog.NewTextHandler(&c.log, nil)),
	}
	mux := http.NewServeMux()
	mux.Handle("POST /v1/join", c.issuer)
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.TLS = c.self.OpenConfig()
	s.StartTLS()
	t.Cleanup(s.Close)
	c.addr = s.Listener.Addr().String()
	return c
}

func TestJoin(t *testing.T) {
	c := newCluster(t, CoordinatorRole)
	token, err := ParseToken(" " + strings.ToUpper(c.token.String()) + "\n")
	if err != nil || token != c.token {
		t.Fatalf("%v, %v", token, err)
	}
	self, extra, err := Join(t.Context(), c.addr, token, JoinOptions{Name: Name{"node", "7"}, Hosts: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	if string(extra) != "etcd=10.0.0.1:2379" || self.Name != (Name{"node", "7"}) || time.Until(self.Expires()) < NodeLife-time.Hour {
		t.Errorf("%q, %+v", extra, self)
	}
	if got := c.self.Expires(); !got.Equal(c.issuer.Authority.cert.NotAfter) {
		t.Errorf("the coordinator's own certificate ends at %v", got)
	}
	if !strings.Contains(c.log.String(), "joined") {
		t.Errorf("the coordinator's log: %s", &c.log)
	}
	// What it got is good for both ends of a connection.
	for _, ends := range [][2]*Identity{{c.self, self}, {self, c.self}} {
		for _, by := range []Name{ends[0].Name, {}} {
			if err := handshake(t, ends[0].ServerConfig(), ends[1].ClientConfig(by), ends[1].Name); err != nil {
				t.Errorf("%s to %s known by %q: %v", ends[1].Name, ends[0].Name, by, err)
			}
		}
	}
}

func TestJoinRefused(t *testing.T) {
	c, other := newCluster(t, CoordinatorRole), newCluster(t, CoordinatorRole)
	impostor := newCluster(t, "node") // signed by its authority, but no coordinator
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.TLS = c.self.OpenConfig()
	web.StartTLS()
	defer web.Close()
	node := JoinOptions{Name: Name{"node", "1"}}
	wrong := c.token
	wrong.Secret[0] ^= 1
	hours := func(n time.Duration) func() time.Time {
		return func() time.Time { return time.Now().Add(n * time.Hour) }
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err = errors.Join(err, gone.Close()); err != nil {
		t.Fatal(err)
	}
	member, err := tls.Listen("tcp", "127.0.0.1:0", c.self.ServerConfig()) // another port of the cluster: it wants a certificate
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	go func() {
		for {
			accepted, err := member.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, accepted); _ = accepted.Close() }()
		}
	}()
	for _, k := range []struct {
		name  string
		addr  string
		token Token
		o     JoinOptions
		want  string
		field string // of the refusal; "": there is none
		here  bool   // the joiner finds it itself
	}{
		{"wrong secret", c.addr, wrong, node, "take the one that its coordinator prints", "token", false},
		{"another cluster's token", c.addr, other.token, node, "the token is of another cluster", "token", true},
		{"no coordinator", impostor.addr, impostor.token, node, "the server is node/0: want a coordinator", "", true},
		{"coordinator's name", c.addr, c.token, JoinOptions{Name: Name{CoordinatorRole, "1"}}, "nobody becomes a coordinator", "name", false},
		{"bad name", c.addr, c.token, JoinOptions{Name: Name{"node", "a/b"}}, `refused: name: "node/a/b": "a/b" has to be 1 to 63 letters, digits`, "name", true},
		{"bad host", c.addr, c.token, JoinOptions{Name: node.Name, Hosts: []string{"a b"}}, `"a b" is neither an IP`, "hosts", false},
		{"many hosts", c.addr, c.token, JoinOptions{Name: node.Name, Hosts: make([]string, 17)}, "at most 16", "hosts", false},
		{"clock", c.addr, c.token, JoinOptions{Name: node.Name, Now: hours(1)}, "the joiner's clock differs by", "time", false},
		{"clock far behind", c.addr, c.token, JoinOptions{Name: node.Name, Now: hours(-1)}, "this machine's clock says", "time", true},
		{"clock years ahead", c.addr, c.token, JoinOptions{Name: node.Name, Now: hours(11 * 365 * 24)}, "this machine's clock says", "time", true},
		{"not TLS", plain.Listener.Addr().String(), c.token, node, "is this a coordinator's address?", "", true},
		{"another service", web.Listener.Addr().String(), c.token, node, "is this a coordinator's address?", "", true},
		{"a member's port", member.Addr().String(), c.token, node, "is this a coordinator's address?", "", true},
		{"nobody there", gone.Addr().String(), c.token, node, "connection refused: does a coordinator run there, and is this its port?", "", true},
		{"no port", "127.0.0.1", c.token, node, "host:port", "", true},
	} {
		_, _, err := Join(t.Context(), k.addr, k.token, k.o)
		if err == nil || !strings.Contains(err.Error(), k.want) || !strings.HasPrefix(err.Error(), "trust: ") {
			t.Errorf("%s: error %v, want %q", k.name, err, k.want)
		}
		var refusal *Refusal
		if errors.As(err, &refusal); k.field != "" && (refusal == nil || refusal.Field != k.field) {
			t.Errorf("%s: %v, want field %s", k.name, err, k.field)
		}
		if !k.here && !strings.Contains(c.log.String(), "join refused: "+k.field) {
			t.Errorf("%s: the coordinator's log has no word of it: %s", k.name, &c.log)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Join(over, c.addr, c.token, node); !errors.Is(err, context.Canceled) {
		t.Errorf("a join that was cancelled: %v", err)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, _, err := Join(late, c.addr, c.token, node); err == nil || !strings.Contains(err.Error(), "is this a coordinator's address?") {
		t.Errorf("a join that nobody answers: %v", err)
	}
	if strings.Contains(c.log.String(), "level=INFO") {
		t.Errorf("somebody joined: %s", &c.log)
	}
}

// TestLives: nobody's certificate is longer valid than the authority that signs it.
func TestLives(t *testing.T) {
	now := time.Now()
	old := must(NewAuthority(now.Add(NodeLife/2 - AuthorityLife)))
	for _, role := range []string{"node", CoordinatorRole} {
		if got := must(old.Identity(Name{role, "0"}, nil, now)).Expires(); !got.Equal(old.cert.NotAfter) {
			t.Errorf("a %s's certificate ends at %v, the authority's at %v", role, got, old.cert.NotAfter)
		}
	}
}

func handshake(t *testing.T, server, client *tls.Config, want Name) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		s := tls.Server(conn, server)
		if err = s.Handshake(); err == nil {
			if want != (Name{}) {
				err = VerifyName(s.ConnectionState(), want)
			}
			_, werr := s.Write([]byte("x"))
			err = errors.Join(err, werr)
		}
		done <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if client.ServerName == "" {
		client.ServerName = "127.0.0.1"
	}
	s := tls.Client(conn, client)
	if err = s.Handshake(); err == nil {
		_, err = s.Read(make([]byte, 1)) // a refused certificate is told here
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if v := s.ConnectionState().Version; v != tls.VersionTLS13 {
			t.Errorf("TLS version %#x", v)
		}
	}
	conn.Close()
	return errors.Join(err, <-done)
}

func TestHandshakeRefused(t *testing.T) {
	now := time.Now()
	past := now.Add(-2 * NodeLife)
	a, other := must(NewAuthority(past)), must(NewAuthority(now))
	server := must(a.Identity(coordinator, []string{"127.0.0.1"}, now))
	node := must(a.Identity(Name{"node", "1"}, nil, now))
	expired := must(a.Identity(Name{"node", "2"}, []string{"127.0.0.1"}, past))
	stranger := must(other.Identity(Name{"node", "1"}, []string{"127.0.0.1"}, now))
	noCert := &tls.Config{RootCAs: server.pool()}
	for _, c := range []struct {
		name           string
		server, client *tls.Config
		peer           Name
		want           string
	}{
		{"expired server, by name", expired.ServerConfig(), node.ClientConfig(expired.Name), Name{}, "expired"},
		{"expired server, by host", expired.ServerConfig(), node.ClientConfig(Name{}), Name{}, "expired"},
		{"expired client", server.ServerConfig(), expired.ClientConfig(coordinator), Name{}, "expired"},
		{"another authority's client", server.ServerConfig(), stranger.ClientConfig(coordinator), Name{}, "authority"},
		{"another authority's server, by name", stranger.ServerConfig(), node.ClientConfig(stranger.Name), Name{}, "authority"},
		{"another authority's server, by host", stranger.ServerConfig(), node.ClientConfig(Name{}), Name{}, "authority"},
		{"wrong host", node.ServerConfig(), server.ClientConfig(Name{}), Name{}, "127.0.0.1"},
		{"wrong name", server.ServerConfig(), node.ClientConfig(Name{"node", "9"}), Name{}, "the server is coordinator/0: want node/9"},
		{"wrong client", server.ServerConfig(), node.ClientConfig(coordinator), Name{"node", "9"}, "the peer is node/1"},
		{"no certificate", server.ServerConfig(), noCert, Name{}, "certificate"},
		{"TLS 1.2", server.ServerConfig(), func() *tls.Config {
			c := node.ClientConfig(coordinator)
			c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
			return c
		}(), Name{}, "version"},
	} {
		if err := handshake(t, c.server, c.client, c.peer); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if err := handshake(t, server.OpenConfig(), noCert, Name{}); err != nil {
		t.Errorf("who has no certificate yet is not let in to join: %v", err)
	}
	if err := handshake(t, server.OpenConfig(), stranger.ClientConfig(coordinator), Name{}); err == nil {
		t.Error("who shows another authority's certificate is let in")
	}
}

func TestFiles(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "new"), time.Now()
	// Several at a time make one authority and one secret.
	var group sync.WaitGroup
	var hashes [8][32]byte
	var secrets [8]Secret
	for i := range hashes {
		group.Go(func() {
			hashes[i] = must(OpenAuthority(dir, now)).Hash()
			secrets[i] = must(OpenSecret(dir))
		})
	}
	group.Wait()
	for i := range hashes {
		if hashes[i] != hashes[0] || secrets[i] != secrets[0] {
			t.Fatal("there are two authorities or secrets")
		}
	}
	a := must(OpenAuthority(dir, now))
	self := must(a.Identity(coordinator, []string{"::1", "example.org"}, now))
	files, err := self.Save(filepath.Join(dir, "self"))
	if err != nil {
		t.Fatal(err)
	}
	pair := must(tls.LoadX509KeyPair(files.Cert, files.Key))
	if name, err := nameOf(pair.Leaf); err != nil || name != self.Name || !pair.Leaf.NotAfter.Equal(self.Expires()) {
		t.Fatal(name, pair.Leaf.NotAfter, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(must(os.ReadFile(files.CA))) {
		t.Fatalf("%s holds no certificate", files.CA)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	if err := handshake(t, server, self.ClientConfig(coordinator), coordinator); err != nil {
		t.Error(err)
	}
	if _, err := self.Save(filepath.Join(dir, "self")); err != nil {
		t.Errorf("save once more: %v", err)
	}
	err = filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err == nil && !st.IsDir() {
			if st.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", path, st.Mode())
			}
			if strings.HasPrefix(st.Name(), ".") {
				t.Errorf("%s was left behind", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	late := x509.VerifyOptions{Roots: pool, CurrentTime: now.Add(2 * AuthorityLife), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := pair.Leaf.Verify(late); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an identity that has expired: %v", err)
	}
	path := filepath.Join(dir, authorityFile)
	if _, err := LoadAuthority(path, path, now); err != nil {
		t.Errorf("an authority from files: %v", err)
	}
	if _, err := LoadAuthority(files.Cert, files.Key, now); err == nil || !strings.Contains(err.Error(), "is not one of an authority") {
		t.Errorf("a machine's certificate for an authority: %v", err)
	}
	if _, err := OpenAuthority(dir, now.Add(2*AuthorityLife)); err == nil || !strings.Contains(err.Error(), "ended on") {
		t.Errorf("an authority that has expired: %v", err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		os.Chmod(path, mode)
		if _, err := OpenAuthority(dir, now); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("with mode %v: %v", mode, err)
		}
	}
	os.Chmod(path, 0o644)
	if _, err := OpenAuthority(dir, now); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("an authority that others can read: %v", err)
	}
	os.Chmod(path, 0o600)
	os.WriteFile(path, []byte("garbage"), 0o600)
	if _, err := OpenAuthority(dir, now); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged authority: %v", err)
	}
	os.WriteFile(filepath.Join(dir, "secret"), []byte("short"), 0o600)
	if _, err := OpenSecret(dir); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged secret: %v", err)
	}
}

// A certificate without a name of a cluster's member is nobody's.
func TestNameless(t *testing.T) {
	a := must(NewAuthority(time.Now()))
	node := must(a.Identity(Name{"node", "1"}, nil, time.Now()))
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	key := node.pair.Load().PrivateKey
	der := must(x509.CreateCertificate(rand.Reader, tmpl, a.cert, node.pair.Load().Leaf.PublicKey, a.key))
	server := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	if err := handshake(t, server, node.ClientConfig(coordinator), Name{}); err == nil || !strings.Contains(err.Error(), "trivium://role/id") {
		t.Errorf("%v", err)
	}
	if _, err := PeerName(tls.ConnectionState{}); err == nil {
		t.Error("a connection without a certificate has a name")
	}
}
