package trust

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRenewal: where a name is taken, who shows the certificate of that name gets a new one, and nobody else does.
func TestRenewal(t *testing.T) {
	c := newCluster(t, CoordinatorRole)
	o := JoinOptions{Name: Name{"node", "7"}}
	self, _, err := Join(t.Context(), c.addr, c.token, o)
	if err != nil {
		t.Fatal(err)
	}
	other := must(c.authority.Identity(Name{"node", "8"}, nil, time.Now()))
	c.issuer.Accept = func(n Name) error { return errors.New("it is lent already") }
	for _, k := range []struct {
		name   Name
		holder *Identity
		taken  bool
	}{
		{o.Name, self, true},
		{o.Name, nil, false},
		{o.Name, other, false},
		{coordinator, c.self, false},
	} {
		newer, _, err := Join(t.Context(), c.addr, c.token, JoinOptions{Name: k.name, holder: k.holder})
		refusal, _ := errors.AsType[*Refusal](err)
		if k.taken && (err != nil || newer.Name != k.name) || !k.taken && (refusal == nil || refusal.Field != "name") {
			t.Errorf("a certificate of %s for %+v: %v, want it given: %v", k.name, k.holder, err, k.taken)
		}
	}
}

// doorOf carries requests to a handler, of one that shows its certificate if it has one.
type doorOf struct {
	http.Handler
	shown *Identity
}

func (d *doorOf) RoundTrip(r *http.Request) (*http.Response, error) {
	r.TLS = &tls.ConnectionState{}
	if d.shown != nil {
		leaf := d.shown.pair.Load().Leaf
		r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{leaf}, [][]*x509.Certificate{{leaf}}
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// meet has two that hold these configurations meet, and says what each end has against it.
func meet(server, client *tls.Config) error {
	near, far := net.Pipe()
	limit := time.Now().Add(time.Minute) // two that both write wait for each other
	said := make(chan error, 1)
	go func() {
		s := tls.Server(far, server)
		err := errors.Join(far.SetDeadline(limit), s.Handshake())
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		said <- errors.Join(err, far.Close())
	}()
	c := tls.Client(near, client)
	err := errors.Join(near.SetDeadline(limit), c.Handshake())
	if err == nil {
		_, err = c.Read(make([]byte, 1)) // a refused certificate is told here
	}
	return errors.Join(err, near.Close(), <-said)
}

// TestKeep: a machine that is lent for longer than its certificate lives hears those who come later, and they hear it, by the
// configurations that it began with. An hour in which the coordinator is away, as it renews, costs nothing.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		a := must(NewAuthority(begun))
		token := Token{must(NewSecret()), a.Hash()}
		issuer := &Issuer{Authority: a, Secret: token.Secret}
		var asked []time.Duration
		door := &doorOf{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked = append(asked, time.Since(begun)/time.Hour); len(asked) == 2 {
				http.Error(w, "away", http.StatusBadGateway)
				return
			}
			issuer.ServeHTTP(w, r)
		})}
		o := JoinOptions{Name: Name{"node", "old"}, Hosts: []string{"127.0.0.1"}, carrier: door}
		old, _, err := Join(t.Context(), "pipe:1", token, o)
		if err != nil {
			t.Fatal(err)
		}
		issuer.Accept = func(Name) error { return errors.New("it is lent already") }
		door.shown = old
		config, byHost := old.PeerConfig(), old.ClientConfig(Name{})
		byHost.ServerName = "localhost"
		ctx, cancel := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		keeping.Go(func() { old.Keep(ctx, "pipe:1", token, o, slog.New(slog.NewTextHandler(t.Output(), nil))) })
		time.Sleep(time.Minute)
		for range 5 {
			time.Sleep(NodeLife / 2)
			late := must(a.Identity(Name{"node", "late"}, []string{"localhost"}, time.Now()))
			for _, c := range []struct {
				what           string
				server, client *tls.Config
			}{
				{"it hears", config, late.PeerConfig()},
				{"it speaks", late.PeerConfig(), config},
				{"it speaks to a host", late.ServerConfig(), byHost},
			} {
				if err := meet(c.server, c.client); err != nil {
					t.Errorf("%s after %v: %v", c.what, time.Since(begun), err)
				}
			}
		}
		cancel()
		keeping.Wait()
		const third = NodeLife / 3 / time.Hour
		if want := []time.Duration{0, 2 * third, 2*third + 1, 4*third + 1, 6*third + 1}; !slices.Equal(asked, want) {
			t.Errorf("it asked after so many hours: %d, want %d", asked, want)
		}
		if got := old.pair.Load().Leaf.IPAddresses; len(got) != 1 {
			t.Errorf("its addresses are %v", got)
		}
	})
}
