package trust

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"
)

// An Identity is a process's certificate and key, and the authority that it and its peers are signed by.
type Identity struct {
	Name Name

	pair atomic.Pointer[tls.Certificate] // Keep replaces it
	ca   *x509.Certificate
}

// Expires is when its certificate ends.
func (i *Identity) Expires() time.Time { return i.pair.Load().Leaf.NotAfter }

func newIdentity(n Name, der, caDER []byte, key crypto.Signer) (*Identity, error) {
	fail := func(err error) (*Identity, error) { return nil, fmt.Errorf("trust: the certificate of %s: %w", n, err) }
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		return fail(fmt.Errorf("its authority's: %w", err))
	}
	if err := cert.CheckSignatureFrom(ca); err != nil {
		return fail(err)
	}
	if public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return fail(errors.New("it is for another key"))
	}
	if got, err := nameOf(cert); err != nil {
		return fail(err)
	} else if got != n {
		return fail(fmt.Errorf("it is for %s", got))
	}
	i := &Identity{Name: n, ca: ca}
	// The authority's goes with it, for those who know no more of it than its hash.
	i.pair.Store(&tls.Certificate{Certificate: [][]byte{der, caDER}, PrivateKey: key, Leaf: cert})
	return i, nil
}

// ServerConfig is that of a server whose clients must have a certificate of the same authority. Who they are, PeerName says. It shows
// the certificate of now, also once Keep has a newer one: PeerConfig shows the newest.
func (i *Identity) ServerConfig() *tls.Config {
	c := i.OpenConfig()
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c
}

// OpenConfig is that of a server that lets clients without a certificate in, so that they can join. One that they have must be of the
// same authority.
func (i *Identity) OpenConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*i.pair.Load()}, ClientCAs: i.pool(),
		ClientAuth: tls.VerifyClientCertIfGiven,
	}
}

// ClientConfig is that of a client which shows its newest certificate, and knows the server by its name, whatever address it has. With
// the empty Name it knows it by the host that it connects to, which must be in the server's certificate.
func (i *Identity) ClientConfig(server Name) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS13, GetClientCertificate: i.shown, RootCAs: i.pool()}
	if server != (Name{}) {
		// The usual check wants a host. VerifyConnection checks all the rest.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			n, err := verify(cs, i.ca, time.Now())
			if err == nil && n != server {
				err = fmt.Errorf("trust: the server is %s: want %s", n, server)
			}
			return err
		}
	}
	return c
}

// shown is the newest certificate, for a server that asks for one.
func (i *Identity) shown(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return i.pair.Load(), nil
}

func (i *Identity) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(i.ca)
	return p
}

// PeerName says who is at the other end of a connection whose certificate has been verified, as with this package's configurations.
func PeerName(cs tls.ConnectionState) (Name, error) {
	if len(cs.PeerCertificates) == 0 {
		return Name{}, errors.New("trust: the peer has shown no certificate")
	}
	return nameOf(cs.PeerCertificates[0])
}

// VerifyName says whether it is want who is at the other end.
func VerifyName(cs tls.ConnectionState, want Name) error {
	n, err := PeerName(cs)
	if err == nil && n != want {
		err = fmt.Errorf("trust: the peer is %s by its certificate: want %s", n, want)
	}
	return err
}

// verify checks that the peer's certificate is signed by ca and valid now, and returns its name.
func verify(cs tls.ConnectionState, ca *x509.Certificate, now time.Time) (Name, error) {
	if len(cs.PeerCertificates) == 0 {
		return Name{}, errors.New("trust: the peer has shown no certificate")
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	leaf := cs.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return Name{}, fmt.Errorf("trust: the certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	return nameOf(leaf)
}

// Files are where Save has written an identity, in PEM.
type Files struct{ Cert, Key, CA string }

// Save writes the identity into dir, for libraries that read files, such as etcd's. Only the owner may read them.
func (i *Identity) Save(dir string) (Files, error) {
	f, pair := files(dir), i.pair.Load()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err == nil {
		err = errors.Join(
			replace(f.Key, encode("PRIVATE KEY", key)),
			replace(f.CA, encode("CERTIFICATE", i.ca.Raw)),
			// Last: what it needs is there.
			replace(f.Cert, append(encode("CERTIFICATE", pair.Certificate[0]), encode("CERTIFICATE", i.ca.Raw)...)),
		)
	}
	if err != nil {
		return f, fmt.Errorf("trust: save the identity of %s: %w", i.Name, err)
	}
	return f, nil
}

func files(dir string) Files {
	return Files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
}
