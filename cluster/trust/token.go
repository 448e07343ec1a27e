package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Secret is what who joins must know.
type Secret [16]byte

// A Token is what a machine needs in order to join: the secret, and the hash of the authority, by which it knows that it speaks to the
// cluster that it was invited to.
type Token struct {
	Secret Secret
	CA     [sha256.Size]byte // Authority.Hash
}

// A token's text: a prefix, then secret, hash and their CRC-32 in base 32, lower case. Letters and digits only, so that a click marks
// all of it, and upper or lower case do not matter.
const (
	tokenPrefix = "trivium1"
	tokenBytes  = 16 + sha256.Size + 4
)

var tokenCode = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// String returns the token's text, which is secret.
func (t Token) String() string {
	p := append(append(make([]byte, 0, tokenBytes), t.Secret[:]...), t.CA[:]...)
	p = binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
	return tokenPrefix + tokenCode.EncodeToString(p)
}

// ParseToken reads a token's text. Its error says what is wrong with the text, and does not repeat it.
func ParseToken(text string) (Token, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	want := len(tokenPrefix) + tokenCode.EncodedLen(tokenBytes)
	again := "copy it again from where the coordinator printed it"
	code, ok := strings.CutPrefix(s, tokenPrefix)
	switch {
	case s == "":
		return Token{}, errors.New("trust: the token is empty: " + again)
	case !ok:
		return Token{}, fmt.Errorf("trust: a token begins with %s, and this text does not: %s", tokenPrefix, again)
	case len(s) != want:
		return Token{}, fmt.Errorf("trust: a token has %d characters, and this one has %d: %s", want, len(s), again)
	}
	if i := strings.IndexAny(code, "\r\n"); i >= 0 { // the decoder would skip it
		return Token{}, fmt.Errorf("trust: character %d of the token is a line break: %s", len(tokenPrefix)+i+1, again)
	}
	p, err := tokenCode.DecodeString(code)
	var at base32.CorruptInputError
	if errors.As(err, &at) {
		return Token{}, fmt.Errorf("trust: character %d of the token is %q, which none has: %s", len(tokenPrefix)+int(at)+1, code[at], again)
	} else if err != nil {
		return Token{}, fmt.Errorf("trust: the token: %w: %s", err, again)
	}
	if crc32.ChecksumIEEE(p[:tokenBytes-4]) != binary.BigEndian.Uint32(p[tokenBytes-4:]) || tokenCode.EncodeToString(p) != code {
		return Token{}, errors.New("trust: a character of the token is wrong (its checksum does not fit): " + again)
	}
	return Token{Secret(p[:16]), [sha256.Size]byte(p[16:48])}, nil
}

// NewSecret draws a secret.
func NewSecret() (s Secret, err error) {
	if _, err := rand.Read(s[:]); err != nil {
		return s, fmt.Errorf("trust: a new secret: %w", err)
	}
	return s, nil
}

// OpenSecret reads the secret in dir, or draws one and keeps it there, so that a token outlives the coordinator's process.
func OpenSecret(dir string) (Secret, error) {
	path := filepath.Join(dir, "secret")
	for {
		text, err := os.ReadFile(path)
		if err == nil {
			if err := private(path); err != nil {
				return Secret{}, err
			}
			if len(text) != len(Secret{}) {
				return Secret{}, fmt.Errorf("trust: %s has %d bytes, want %d: remove it to have a new secret drawn, and a new token printed", path,
					len(text), len(Secret{}))
			}
			return Secret(text), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Secret{}, fmt.Errorf("trust: the cluster's secret: %w", err)
		}
		s, err := NewSecret()
		if err != nil {
			return s, err
		}
		if err := create(path, s[:]); err != nil && !errors.Is(err, fs.ErrExist) {
			return s, fmt.Errorf("trust: the cluster's secret: %w", err)
		}
	}
}

// ClientConfig is that of a client without a certificate, which knows the server by the token's hash of its authority, and by its role, and
// the time by now.
func (t Token) ClientConfig(role string, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Time: now,
		// The usual check wants an authority that this machine knows, and it knows the hash of one. VerifyConnection does it all.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			var found [sha256.Size]byte
			for _, c := range cs.PeerCertificates {
				if found = sha256.Sum256(c.Raw); found == t.CA {
					n, err := verify(cs, c, now())
					if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired { // or to come
						return refuse("time", "the coordinator's certificate is valid from %s to %s, and this machine's clock says %s: set the clocks",
							instant(invalid.Cert.NotBefore), instant(invalid.Cert.NotAfter), instant(now()))
					}
					if err == nil && n.Role != role {
						err = fmt.Errorf("trust: the server is %s: want a %s", n, role)
					}
					return err
				}
			}
			return refuse("token", "the server's authority has the hash %x, the token's has %x: the token is of another cluster, or somebody stands "+
				"between", found[:8], t.CA[:8])
		},
	}
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func newSerial() (*big.Int, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("trust: a serial number: %w", err)
	}
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:]), nil
}
