package trust

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// PeerConfig is that of a process which both listens and dials: both ends show their newest certificate of the authority. Whose it is,
// the caller checks, with VerifyName, once it knows whom it wanted.
func (i *Identity) PeerConfig() *tls.Config {
	c := i.ServerConfig()
	c.Certificates, c.GetClientCertificate = nil, i.shown
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.pair.Load(), nil }
	c.InsecureSkipVerify = true // the usual check wants a host. VerifyConnection checks all the rest
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := verify(cs, i.ca, time.Now())
		return err
	}
	return c
}

// encoded is an Identity on its way to a process that is started with it.
type encoded struct {
	Name Name   `json:"name"`
	Cert []byte `json:"cert"` // DER
	CA   []byte `json:"ca"`   // DER
	Key  []byte `json:"key"`  // PKCS #8
}

// Encode returns the identity with its key, as bytes for DecodeIdentity: a secret.
func (i *Identity) Encode() ([]byte, error) {
	pair := i.pair.Load()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("trust: the identity of %s: %w", i.Name, err)
	}
	return json.Marshal(encoded{i.Name, pair.Certificate[0], i.ca.Raw, key})
}

// DecodeIdentity reads what Encode wrote.
func DecodeIdentity(p []byte) (*Identity, error) {
	var e encoded
	if err := json.Unmarshal(p, &e); err != nil {
		return nil, fmt.Errorf("trust: an identity: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(e.Key)
	if err != nil {
		return nil, fmt.Errorf("trust: the identity of %s: its key: %w", e.Name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("trust: the key of an identity cannot sign")
	}
	return newIdentity(e.Name, e.Cert, e.CA, signer)
}
