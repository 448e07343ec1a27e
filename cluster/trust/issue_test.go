package trust

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/wire/control"
)

// What comes without HTTP: replays, clocks that differ, and every request with one bit flipped.
func TestIssue(t *testing.T) {
	now := time.Now()
	a := must(NewAuthority(now))
	token := Token{must(NewSecret()), a.Hash()}
	i := &Issuer{Authority: a, Secret: token.Secret}
	o := JoinOptions{Name: Name{"node", "1"}, Hosts: []string{"h"}}
	p, finish, err := newRequest(token, o, now)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, i *Issuer, p []byte, now time.Time, field string) {
		t.Helper()
		answer, err := i.issue(p, now, Name{})
		var refusal, told *Refusal
		if !errors.As(err, &refusal) || refusal.Field != field {
			t.Errorf("%s: %v, want field %s", what, err, field)
		}
		if _, _, err := finish(answer); !errors.As(err, &told) || *told != *refusal {
			t.Errorf("%s: the joiner is told %v, the log %v", what, err, refusal)
		}
	}
	for bit := range 8 * len(p) {
		q := bytes.Clone(p)
		q[bit/8] ^= 1 << (bit % 8)
		if _, err := i.issue(q, now, Name{}); err == nil {
			t.Fatalf("with bit %d flipped the request is taken", bit)
		}
	}
	for n := range p {
		if _, err := i.issue(p[:n], now, Name{}); err == nil {
			t.Fatalf("cut to %d bytes the request is taken", n)
		}
	}
	refused("too early", i, p, now.Add(-skew-2*time.Second), "time")
	refused("too late", i, p, now.Add(skew+2*time.Second), "time")
	refused("oversized", i, make([]byte, maxRequest+1), now, "request")

	answer, err := i.issue(p, now, Name{})
	if err != nil {
		t.Fatal(err)
	}
	refused("replayed", i, p, now, "nonce")
	for bit := range 8 * len(answer) {
		q := bytes.Clone(answer)
		q[bit/8] ^= 1 << (bit % 8)
		if _, _, err := finish(q); err == nil {
			t.Fatalf("with bit %d flipped the answer is taken", bit)
		}
	}
	self, _, err := finish(answer)
	if err != nil || self.Name != o.Name {
		t.Fatal(self, err)
	}
	// The answer to one request is none to another.
	_, finishOther, _ := newRequest(token, o, now)
	if _, _, err := finishOther(answer); err == nil || !strings.Contains(err.Error(), "knows the token") {
		t.Errorf("the answer to another request: %v", err)
	}

	// Requests that somebody with the token makes up.
	forge := func(change func(q *request)) []byte {
		p, _, err := newRequest(token, o, now)
		if err != nil {
			t.Fatal(err)
		}
		var q request
		if err := control.Decode("", p, &q); err != nil {
			t.Fatal(err)
		}
		change(&q)
		q.MAC = nil
		q.MAC = must(mac(token.Secret, "join request", q, nil))
		return must(control.Append(nil, q))
	}
	refused("another version", i, forge(func(q *request) { q.Version = 2 }), now, "version")
	refused("short nonce", i, forge(func(q *request) { q.Nonce = q.Nonce[:8] }), now, "nonce")
	refused("no request for a certificate", i, forge(func(q *request) { q.CSR = []byte("x") }), now, "key")
	refused("hostile name", i, forge(func(q *request) { q.ID = "../../x" }), now, "name")
	key := must(rsa.GenerateKey(rand.Reader, 2048))
	csr := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key))
	refused("RSA", i, forge(func(q *request) { q.CSR = csr }), now, "key")

	// Nonces are forgotten when their requests' time is over, and not before.
	i.seen = map[nonce]time.Time{}
	for n := range maxSeen {
		i.seen[nonce{byte(n), byte(n >> 8), byte(n >> 16), 1}] = now
	}
	refused("too many", i, forge(func(*request) {}), now, "nonce")
	sooner := now.Add(2*skew - time.Second) // a request from a clock that is ahead, repeated late, may still be in time
	refused("too many still", i, forge(func(q *request) { q.Unix = sooner.Unix() }), sooner, "nonce")
	later := now.Add(2*skew + time.Second)
	if _, err := i.issue(forge(func(q *request) { q.Unix = later.Unix() }), later, Name{}); err != nil || len(i.seen) != 1 {
		t.Errorf("after their time %d nonces are kept, %v", len(i.seen), err)
	}
}

func TestMessages(t *testing.T) {
	for _, v := range []any{request{}, response{}} {
		if err := control.Check(v); err != nil {
			t.Error(err)
		}
	}
}

func FuzzIssue(f *testing.F) {
	now := time.Unix(1e9, 0)
	a := must(NewAuthority(now))
	// Each of the fuzzing processes has a secret of its own, and so takes nothing that another made.
	token := Token{must(NewSecret()), a.Hash()}
	i := &Issuer{Authority: a, Secret: token.Secret}
	p, finish, err := newRequest(token, JoinOptions{Name: Name{"node", "1"}}, now)
	if err != nil {
		f.Fatal(err)
	}
	answer, err := i.issue(p, now, Name{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Add(answer)
	f.Fuzz(func(t *testing.T, p []byte) {
		if _, err := i.issue(p, now, Name{}); err == nil {
			t.Fatalf("%x is taken", p)
		}
		if self, _, err := finish(p); err == nil && !bytes.Equal(p, answer) {
			t.Fatalf("%x gives %v", p, self)
		}
	})
}
