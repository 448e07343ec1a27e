package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/trivium-ml/trivium/wire/control"
)

// An Issuer answers requests to join with certificates. Its methods may be called from any goroutine.
type Issuer struct {
	Authority *Authority
	Secret    Secret
	Extra     []byte           // what who joins is told besides, such as the address of the metadata store
	Accept    func(Name) error // has the last word, but on renewals; nil: all names. Those of coordinators are refused before
	Log       *slog.Logger     // refusals and joins; nil discards

	lock sync.Mutex
	seen map[nonce]time.Time // when each came
}

type nonce = [16]byte

const (
	messageVersion = 1
	maxSeen        = 1 << 16  // joins within twice the skew: 2 MiB of nonces
	maxHosts       = 16       // of one machine
	maxRequest     = 16 << 10 // bytes
	maxResponse    = 1 << 20
	// CoordinatorRole is that of who issues: nobody gets it by joining.
	CoordinatorRole = "coordinator"
)

// request asks for a certificate. MAC is the keyed hash of all the rest under the token's secret.
type request struct {
	Version int      `cbor:"1,keyasint"`
	Role    string   `cbor:"2,keyasint"`
	ID      string   `cbor:"3,keyasint"`
	Hosts   []string `cbor:"4,keyasint,omitempty"`
	CSR     []byte   `cbor:"5,keyasint"` // a certificate request (PKCS #10), which proves that the joiner has the key
	Nonce   []byte   `cbor:"6,keyasint"`
	Unix    int64    `cbor:"7,keyasint"` // the joiner's time in seconds
	MAC     []byte   `cbor:"8,keyasint,omitempty"`
}

// response is the certificate, or what is wrong with the request. The MAC covers the request's besides, and so answers this request only.
type response struct {
	Version int    `cbor:"1,keyasint"`
	Field   string `cbor:"2,keyasint,omitempty"`
	Text    string `cbor:"3,keyasint,omitempty"`
	Cert    []byte `cbor:"4,keyasint,omitempty"`
	CA      []byte `cbor:"5,keyasint,omitempty"`
	Extra   []byte `cbor:"6,keyasint,omitempty"`
	MAC     []byte `cbor:"7,keyasint,omitempty"`
}

// A Refusal says why a machine may not join: the coordinator does, or the machine itself, before it has asked.
type Refusal struct {
	Field string // of the request: version, token, time, nonce, name, hosts, key
	Text  string
}

func (e *Refusal) Error() string { return "trust: join refused: " + e.Field + ": " + e.Text }

func refuse(field, format string, args ...any) error {
	return &Refusal{field, fmt.Sprintf(format, args...)}
}

// mac is the keyed hash of what v's fields are, under the purpose.
func mac(s Secret, purpose string, v any, more []byte) ([]byte, error) {
	p, err := control.Append(nil, v)
	if err != nil {
		return nil, fmt.Errorf("trust: join: %w", err)
	}
	h := hmac.New(sha256.New, s[:])
	for _, part := range [][]byte{[]byte(purpose), {0}, p, more} {
		h.Write(part)
	}
	return h.Sum(nil), nil
}

// issue answers a request of who has shown the certificate of holder, or none. The response is to be sent in any case: with an error, it
// tells the joiner what the error tells the log.
func (i *Issuer) issue(p []byte, now time.Time, holder Name) ([]byte, error) {
	q, n, err := i.check(p, now, holder)
	r := response{Version: messageVersion}
	if err == nil {
		r.CA, r.Extra = i.Authority.cert.Raw, i.Extra
		r.Cert, err = i.certify(q, n, now)
	}
	if err == nil {
		r.MAC, err = mac(i.Secret, "join response", r, q.MAC)
	}
	if err != nil {
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			refusal = &Refusal{"issuer", "it cannot sign: see the coordinator's log"}
		}
		r = response{Version: messageVersion, Field: refusal.Field, Text: refusal.Text}
	}
	answer, codeErr := control.Append(nil, r)
	if codeErr != nil {
		return nil, errors.Join(err, fmt.Errorf("trust: join: %w", codeErr))
	}
	return answer, err
}

// check reads a request, and refuses what comes from outside before it does anything else.
func (i *Issuer) check(p []byte, now time.Time, holder Name) (q request, n Name, err error) {
	if len(p) > maxRequest {
		return q, n, refuse("request", "it has %d bytes, and at most %d may come", len(p), maxRequest)
	}
	if err := control.Decode("join request", p, &q); err != nil {
		return q, n, refuse("request", "%v", err)
	}
	if q.Version != messageVersion {
		return q, n, refuse("version", "the coordinator's program speaks version %d, the joiner's %d", messageVersion, q.Version)
	}
	said := q.MAC
	q.MAC = nil
	want, err := mac(i.Secret, "join request", q, nil)
	if err != nil {
		return q, n, err
	}
	if !hmac.Equal(said, want) {
		return q, n, refuse("token", "it is not this cluster's, or no longer: take the one that its coordinator prints")
	}
	q.MAC = said
	n = Name{q.Role, q.ID}
	renews := n == holder // it is in already
	if d := time.Unix(q.Unix, 0).Sub(now); d.Abs() > skew {
		return q, n, refuse("time", "the joiner's clock differs by %v from the coordinator's, and at most %v is allowed: set the clocks",
			d.Round(time.Second), skew)
	}
	if len(q.Nonce) != len(nonce{}) {
		return q, n, refuse("nonce", "it has %d bytes, want %d", len(q.Nonce), len(nonce{}))
	}
	if err := i.once(nonce(q.Nonce), now); err != nil {
		return q, n, err
	}
	if err := n.validate(); err != nil {
		return q, n, refuse("name", "%v", err)
	}
	if n.Role == CoordinatorRole {
		err = errors.New("nobody becomes a coordinator by joining")
	} else if i.Accept != nil && !renews {
		err = i.Accept(n)
	}
	if err != nil {
		return q, n, refuse("name", "%s: %v", n, err)
	}
	if len(q.Hosts) > maxHosts {
		return q, n, refuse("hosts", "there are %d, and at most %d may be", len(q.Hosts), maxHosts)
	}
	return q, n, nil
}

// once refuses a request that was seen before. Older ones than are remembered are refused by their time.
func (i *Issuer) once(c nonce, now time.Time) error {
	i.lock.Lock()
	defer i.lock.Unlock()
	if i.seen == nil {
		i.seen = map[nonce]time.Time{}
	}
	if _, ok := i.seen[c]; ok {
		return refuse("nonce", "this very request came before: somebody repeats it")
	}
	if len(i.seen) >= maxSeen {
		for c, at := range i.seen {
			if now.Sub(at) > 2*skew {
				delete(i.seen, c)
			}
		}
		if len(i.seen) >= maxSeen {
			return refuse("nonce", "%d machines have joined within %v: come again later", len(i.seen), 2*skew)
		}
	}
	i.seen[c] = now
	return nil
}

func (i *Issuer) certify(q request, n Name, now time.Time) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(q.CSR)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, refuse("key", "the certificate request: %v", err)
	}
	if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, refuse("key", "it is of kind %v: want ECDSA over P-256", csr.PublicKeyAlgorithm)
	}
	der, err := i.Authority.sign(n, q.Hosts, csr.PublicKey, now)
	if err != nil {
		return nil, refuse("hosts", "%v", err)
	}
	return der, nil
}

// ServeHTTP answers POST /v1/join, which must be over TLS with Identity.OpenConfig.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	log := i.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "join with POST", http.StatusMethodNotAllowed)
		return
	}
	p, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		log.Warn("join refused", "from", r.RemoteAddr, "error", err)
		http.Error(w, fmt.Sprintf("a request to join has at most %d bytes", maxRequest), http.StatusRequestEntityTooLarge)
		return
	}
	now := time.Now()
	var holder Name
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		holder, _ = PeerName(*r.TLS) // one without a name is nobody's
	}
	answer, err := i.issue(p, now, holder)
	w.Header().Set("Content-Type", contentType)
	if err != nil {
		log.Warn("join refused", "from", r.RemoteAddr, "error", err)
		w.WriteHeader(http.StatusForbidden)
	} else {
		log.Info("joined", "from", r.RemoteAddr)
	}
	_, _ = w.Write(answer) // who has gone meanwhile does not read it
}

const contentType = "application/cbor"

// JoinOptions of Join. Name is required.
type JoinOptions struct {
	Name  Name
	Hosts []string         // this machine's addresses, under which others connect to it: IPs, or names of hosts
	Now   func() time.Time // nil: time.Now

	holder  *Identity         // whose certificate is shown, and renewed; nil: there is none
	carrier http.RoundTripper // nil: the network
}

// Join asks the coordinator at addr, a host and port, for a certificate, and returns it with what the coordinator tells besides.
func Join(ctx context.Context, addr string, t Token, o JoinOptions) (*Identity, []byte, error) {
	fail := func(err error) (*Identity, []byte, error) {
		var refusal *Refusal
		if errors.As(err, &refusal) { // what is around it of HTTP says nothing more
			return nil, nil, refusal
		}
		return nil, nil, fmt.Errorf("trust: join %s as %s: %w", addr, o.Name, err)
	}
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	p, finish, err := newRequest(t, o, now())
	if err != nil {
		return fail(err)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fail(fmt.Errorf("want an address as host:port: %w", err))
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+"/v1/join", bytes.NewReader(p))
	if err != nil {
		return fail(err)
	}
	q.Header.Set("Content-Type", contentType)
	config := t.ClientConfig(CoordinatorRole, now)
	if o.holder != nil {
		config.GetClientCertificate = o.holder.shown
	}
	if o.carrier == nil {
		o.carrier = &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	}
	client := http.Client{
		Transport: o.carrier,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("it sends us elsewhere, which no coordinator does")
		},
	}
	r, err := client.Do(q)
	if err != nil {
		return fail(strange(err))
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(r.Body, maxResponse))
	if err != nil {
		return fail(err)
	}
	if kind := r.Header.Get("Content-Type"); kind != contentType {
		return fail(fmt.Errorf("it answers %s with %.80q: is this a coordinator's address?", r.Status, answer))
	}
	self, extra, err := finish(answer)
	if err != nil {
		return fail(err)
	}
	return self, extra, nil
}

const (
	// keepEvery is how often Keep looks at the clock. A timer of days would stand still with a machine that sleeps.
	keepEvery = time.Hour
	// renewWait bounds what Keep waits for the coordinator's answer.
	renewWait = time.Minute
)

// Keep renews the certificate when a third of its life is left, until ctx ends: it joins again, with what it joined with, and shows the
// certificate that it has. A time that fails is logged, and followed by the next one an hour later.
func (i *Identity) Keep(ctx context.Context, addr string, t Token, o JoinOptions, log *slog.Logger) {
	o.Name, o.holder = i.Name, i
	for {
		select {
		case <-time.After(keepEvery):
		case <-ctx.Done():
			return
		}
		leaf := i.pair.Load().Leaf
		if time.Until(leaf.NotAfter) > leaf.NotAfter.Sub(leaf.NotBefore)/3 {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, renewWait)
		newer, _, err := Join(asking, addr, t, o)
		cancel()
		switch {
		case err == nil:
			i.pair.Store(newer.pair.Load())
			log.Info("certificate renewed", "name", i.Name.String(), "until", i.Expires().Format(time.DateOnly))
		case ctx.Err() == nil:
			log.Warn("certificate not renewed", "name", i.Name.String(), "ends", leaf.NotAfter.Format(time.DateTime), "error", err)
		}
	}
}

// strange says of an address that was asked for a certificate what may be wrong with it.
func strange(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok { // it repeats the address
		err = u.Err
	}
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	op, _ := errors.AsType[*net.OpError](err)
	hungUp := op != nil && op.Op == "remote error" // as crypto/tls has it: another port of the cluster wants a certificate first
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: does a coordinator run there, and is this its port?", err)
	case noTLS, hungUp, errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: is this a coordinator's address?", err)
	}
	return err
}

// newRequest makes a key and the request for its certificate. finish turns the response into the identity.
func newRequest(t Token, o JoinOptions, now time.Time) (p []byte, finish func(answer []byte) (*Identity, []byte, error), err error) {
	if err := o.Name.validate(); err != nil {
		return nil, nil, refuse("name", "%v", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, err
	}
	q := request{
		Version: messageVersion, Role: o.Name.Role, ID: o.Name.ID, Hosts: slices.Clone(o.Hosts), CSR: csr, Nonce: make([]byte, 16),
		Unix: now.Unix(),
	}
	if _, err := rand.Read(q.Nonce); err != nil {
		return nil, nil, err
	}
	if q.MAC, err = mac(t.Secret, "join request", q, nil); err != nil {
		return nil, nil, err
	}
	p, err = control.Append(nil, q)
	return p, func(answer []byte) (*Identity, []byte, error) {
		var r response
		if err := control.Decode("join response", answer, &r); err != nil {
			return nil, nil, err
		}
		if r.Field != "" {
			return nil, nil, &Refusal{r.Field, r.Text}
		}
		said := r.MAC
		r.MAC = nil
		if want, err := mac(t.Secret, "join response", r, q.MAC); err != nil || !hmac.Equal(said, want) {
			return nil, nil, errors.Join(errors.New("the answer is not from one who knows the token"), err)
		}
		if sha256.Sum256(r.CA) != t.CA {
			return nil, nil, errors.New("the answer has another authority than the token")
		}
		self, err := newIdentity(o.Name, r.Cert, r.CA, key)
		return self, r.Extra, err
	}, err
}
