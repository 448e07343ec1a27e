// Package trust lets the machines of a cluster know one another: it is the cluster's certificate authority, and the token with which a
// machine joins it.
//
// The coordinator has an [Authority], which it makes once, and an [Issuer], which answers joins:
//
//	authority, err := trust.OpenAuthority(dir, time.Now())
//	self, err := authority.Identity(trust.Name{Role: "coordinator", ID: "0"}, []string{"10.0.0.1"}, time.Now())
//	issuer := &trust.Issuer{Authority: authority, Secret: secret, Extra: etcdAddress}
//	mux.Handle("POST /v1/join", issuer)
//	fmt.Println(trust.Token{Secret: secret, CA: authority.Hash()})
//
// A machine that is given the token's text gets an [Identity] for it, with which it speaks TLS 1.3 to all others, both ends known by
// name:
//
//	token, err := trust.ParseToken(text)
//	self, extra, err := trust.Join(ctx, "10.0.0.1:7070", token, trust.JoinOptions{Name: trust.Name{Role: "node", ID: "7"}})
//	go self.Keep(ctx, "10.0.0.1:7070", token, trust.JoinOptions{}, log)
//	listener := tls.NewListener(l, self.PeerConfig())
//
// The joiner knows the coordinator by the hash of its authority in the token; the coordinator knows the joiner by a keyed hash of its
// request under the token's secret. The secret itself never travels.
package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"github.com/trivium-ml/trivium/internal/atomicfile"
)

const (
	// AuthorityLife is how long an authority's certificate is valid: longer than any cluster.
	AuthorityLife = 10 * 365 * 24 * time.Hour
	// NodeLife is how long a machine's certificate is valid. A machine that stays longer renews it: Identity.Keep. The coordinator's is as
	// long as its authority's: it has nobody to join, and the authority's key lies beside it.
	NodeLife = 30 * 24 * time.Hour
	// skew is how much the clocks of a cluster's machines may differ.
	skew = 15 * time.Minute
)

// An Authority is the cluster's certificate authority: who is signed by it belongs to the cluster.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// authorityFile holds the certificate and its key together, so that there is never one without the other.
const authorityFile = "authority.pem"

// OpenAuthority reads the authority in dir, or makes one there if there is none.
func OpenAuthority(dir string, now time.Time) (*Authority, error) {
	path := filepath.Join(dir, authorityFile)
	for {
		text, err := os.ReadFile(path)
		if err == nil {
			if err := private(path); err != nil {
				return nil, err
			}
			return parseAuthority(path, text, text, now)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("trust: the cluster's authority: %w", err)
		}
		a, err := NewAuthority(now)
		if err != nil {
			return nil, err
		}
		key, err := x509.MarshalPKCS8PrivateKey(a.key)
		if err != nil {
			return nil, fmt.Errorf("trust: the authority's key: %w", err)
		}
		text = append(encode("CERTIFICATE", a.cert.Raw), encode("PRIVATE KEY", key)...)
		// Of two that make one at a time, the first one's stays, and both read it.
		if err := create(path, text); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("trust: the cluster's authority: %w", err)
		}
	}
}

// LoadAuthority reads an authority that is kept elsewhere, from PEM files.
func LoadAuthority(certFile, keyFile string, now time.Time) (*Authority, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("trust: the authority's certificate: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("trust: the authority's key: %w", err)
	}
	return parseAuthority(certFile, cert, key, now)
}

func parseAuthority(path string, certText, keyText []byte, now time.Time) (*Authority, error) {
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return nil, fmt.Errorf("trust: the authority in %s: %w", path, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	switch c := pair.Leaf; {
	case !ok:
		return nil, fmt.Errorf("trust: the authority in %s: its key cannot sign", path)
	case !c.IsCA:
		return nil, fmt.Errorf("trust: the authority in %s: the certificate of %q is not one of an authority", path, c.Subject.CommonName)
	case now.After(c.NotAfter):
		return nil, fmt.Errorf("trust: the authority in %s: its certificate ended on %s: move the file away to have a new one made, and join "+
			"all machines again", path, c.NotAfter.Format(time.DateOnly))
	default:
		return &Authority{c, signer}, nil
	}
}

// NewAuthority makes an authority, in memory.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("trust: the authority's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Trivium cluster"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(AuthorityLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("trust: the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("trust: the authority's certificate: %w", err)
	}
	return &Authority{cert, key}, nil
}

// Hash is the SHA-256 of the authority's certificate, by which a Token knows it.
func (a *Authority) Hash() [sha256.Size]byte { return sha256.Sum256(a.cert.Raw) }

// Identity makes a key for a process of the coordinator's own machine, and signs it. Hosts are its addresses: IPs, or names of hosts.
func (a *Authority) Identity(n Name, hosts []string, now time.Time) (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("trust: the key of %s: %w", n, err)
	}
	der, err := a.sign(n, hosts, key.Public(), now)
	if err != nil {
		return nil, err
	}
	return newIdentity(n, der, a.cert.Raw, key)
}

// sign certifies that a key is n's.
func (a *Authority) sign(n Name, hosts []string, key any, now time.Time) ([]byte, error) {
	if err := n.validate(); err != nil {
		return nil, fmt.Errorf("trust: name %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: n.String()}, URIs: []*url.URL{n.uri()},
		NotBefore: now.Add(-skew), NotAfter: now.Add(NodeLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if n.Role == CoordinatorRole {
		t.NotAfter = a.cert.NotAfter
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if hostPattern.MatchString(h) {
			t.DNSNames = append(t.DNSNames, h)
		} else {
			return nil, fmt.Errorf("trust: %.80q is neither an IP address nor the name of a host", h)
		}
	}
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("trust: the certificate of %s: %w", n, err)
	}
	return der, nil
}

// A Name says who a certificate is for. It stands in it as the URI trivium://role/id.
type Name struct{ Role, ID string }

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	hostPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}$`)
)

// String returns role/id.
func (n Name) String() string { return n.Role + "/" + n.ID }

func (n Name) uri() *url.URL { return &url.URL{Scheme: "trivium", Host: n.Role, Path: "/" + n.ID} }

func (n Name) validate() error {
	for _, part := range []string{n.Role, n.ID} {
		if !namePattern.MatchString(part) {
			return fmt.Errorf("%.150q: %.70q has to be 1 to 63 letters, digits, points, dashes and underscores, a letter or digit "+
				"first", n.String(), part)
		}
	}
	return nil
}

// nameOf is the name in a certificate.
func nameOf(c *x509.Certificate) (Name, error) {
	for _, u := range c.URIs {
		if u.Scheme == "trivium" && len(u.Path) > 1 {
			n := Name{u.Host, u.Path[1:]}
			if err := n.validate(); err != nil {
				return n, fmt.Errorf("trust: name %w", err)
			}
			return n, nil
		}
	}
	return Name{}, fmt.Errorf("trust: the certificate of %q has no name of a cluster's member (trivium://role/id) in it", c.Subject.CommonName)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// create writes a file that only its owner may read, whole or not at all. One that is there stays: fs.ErrExist.
func create(path string, text []byte) error { return write(path, text, atomicfile.Options{New: true}) }

// replace writes a file as create does, in the place of one that may be there.
func replace(path string, text []byte) error { return write(path, text, atomicfile.Options{}) }

func write(path string, text []byte, o atomicfile.Options) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.WriteBytes(path, text, o)
}

// private refuses a secret file that others may read.
func private(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("trust: %w", err)
	}
	if runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("trust: %s holds a secret, and others may read or write it (mode %v): see who did, then chmod 600 %s", path,
			st.Mode().Perm(), path)
	}
	return nil
}
