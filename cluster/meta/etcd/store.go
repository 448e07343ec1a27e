// Package etcd keeps a cluster's metadata in etcd: in one that runs already ([Open]), or in one that runs inside this process ([Embed]).
//
//	server, err := etcd.Embed(ctx, dir, etcd.Options{Listen: []string{"10.0.0.1:2379"}, Files: etcd.Files{Cert: ..., Key: ..., CA: ...}})
//	defer server.Close()
//	store := server.Meta("jobs/7/")
//
// and on another machine
//
//	store, closer, err := etcd.Open(ctx, []string{"10.0.0.1:2379"}, tlsConfig, "jobs/7/", log)
//
// Only what must be agreed upon goes in: views, placements, leases. An etcd of the user's own needs nothing but the keys under the
// prefix.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/protocol"
)

// store implements cluster.Meta over etcd's keys with a prefix.
type store struct {
	client *clientv3.Client
	prefix string
}

// Open connects to an etcd, and returns the store of its keys with that prefix. It fails if none of the endpoints, as host:port or URLs,
// answers within ctx; give that a deadline. Close the closer to disconnect.
func Open(ctx context.Context, endpoints []string, t *tls.Config, prefix string, log *slog.Logger) (cluster.Meta, io.Closer, error) {
	if len(endpoints) == 0 {
		return nil, nil, errors.New("etcd: open: there are no endpoints: give one as host:port")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: t, Logger: bridge(log, nil),
		// A peer that is gone without a word is noticed within 3 s.
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("etcd: open %s: %w", strings.Join(endpoints, ", "), err)
	}
	s := &store{client, prefix}
	// The client connects when it is first asked.
	if _, err := s.Get(ctx, "open"); err != nil {
		why := "does it run, is the address right, and has it TLS just if this program has?"
		return nil, nil, errors.Join(fmt.Errorf("etcd: open %s: %w: %s", strings.Join(endpoints, ", "), err, why), client.Close())
	}
	return s, client, nil
}

// translate gives an error of etcd the sentinel that callers know.
func translate(ctx context.Context, what, key string, err error) error {
	if key != "" {
		what = fmt.Sprintf("%s %q", what, key)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("etcd: %s: %w", what, ctx.Err())
	case ctx.Err() != nil:
		return fmt.Errorf("etcd: %s: %w: %w", what, protocol.ErrUnavailable, ctx.Err())
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("etcd: %s: %w", what, cluster.ErrLeaseLost)
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("etcd: %s: %w", what, cluster.ErrCompacted)
	}
	code := status.Code(err)
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		code = e.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted:
		return fmt.Errorf("etcd: %s: %w: %w", what, protocol.ErrUnavailable, err)
	}
	return fmt.Errorf("etcd: %s: %w", what, err)
}

func begin(ctx context.Context, what, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("etcd: %s %q: %w", what, key, err)
	}
	return nil
}

func (s *store) kv(kv *mvccpb.KeyValue, gone bool) cluster.KV {
	out := cluster.KV{Key: strings.TrimPrefix(string(kv.Key), s.prefix), Rev: kv.ModRevision}
	if !gone {
		out.Value, out.Lease = append([]byte{}, kv.Value...), kv.Lease // an empty value comes as nil
	}
	return out
}

// Get implements cluster.Meta.
func (s *store) Get(ctx context.Context, key string) (cluster.KV, error) {
	if err := errors.Join(meta.Valid(key, nil), begin(ctx, "get", key)); err != nil {
		return cluster.KV{Key: key}, err
	}
	r, err := s.client.Get(ctx, s.prefix+key)
	if err != nil {
		return cluster.KV{Key: key}, translate(ctx, "get", key, err)
	}
	if len(r.Kvs) == 0 {
		return cluster.KV{Key: key}, nil
	}
	return s.kv(r.Kvs[0], false), nil
}

// PutIf implements cluster.Meta.
func (s *store) PutIf(ctx context.Context, key string, val []byte, rev int64, l cluster.Lease) (int64, error) {
	if err := errors.Join(meta.Valid(key, val), begin(ctx, "put", key)); err != nil {
		return 0, err
	}
	at := s.prefix + key
	then := clientv3.OpPut(at, string(val), clientv3.WithLease(clientv3.LeaseID(l)))
	if val == nil {
		then = clientv3.OpDelete(at)
	}
	r, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(at), "=", rev)).Then(then).
		Else(clientv3.OpGet(at, clientv3.WithKeysOnly())).Commit()
	switch {
	case err != nil:
		return 0, translate(ctx, "put", key, err)
	case r.Succeeded && val == nil && rev == 0:
		return 0, nil // it was absent, and still is
	case r.Succeeded:
		return r.Header.Revision, nil
	}
	found := int64(0)
	if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		found = kvs[0].ModRevision
	}
	return 0, meta.Conflict(key, rev, found)
}

// Watch implements cluster.Meta. etcd deletes the keys of a lease in one revision: all but the last of them carry the revision before, so
// that a walk that is broken off between them misses none.
func (s *store) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[cluster.KV, error] {
	return func(yield func(cluster.KV, error) bool) {
		last := rev
		fail := func(err error) {
			err = translate(ctx, "watch", prefix, err)
			if errors.Is(err, cluster.ErrCompacted) {
				last = 0
			}
			yield(cluster.KV{Rev: last}, err)
		}
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		at := s.prefix + prefix
		after := rev
		if rev == 0 {
			r, err := s.client.Get(ctx, at, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
			if err != nil {
				fail(err)
				return
			}
			for _, kv := range r.Kvs {
				if last = kv.ModRevision; !yield(s.kv(kv, false), nil) {
					return
				}
			}
			after = r.Header.Revision
		}
		// A watch that is not cancelled stays at the server. Without a leader it would wait and say nothing.
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		defer stop()
		changes := s.client.Watch(watching, at, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFragment(),
			clientv3.WithCreatedNotify())
		for r := range changes {
			if err := r.Err(); err != nil {
				fail(err)
				return
			}
			if r.Created && r.Header.Revision < after {
				fail(fmt.Errorf("the store is at revision %d, so %d is from another: %w", r.Header.Revision, after, rpctypes.ErrCompacted))
				return
			}
			for i, e := range r.Events {
				kv := s.kv(e.Kv, e.Type == clientv3.EventTypeDelete)
				if i+1 < len(r.Events) && r.Events[i+1].Kv.ModRevision == kv.Rev && kv.Value == nil {
					kv.Rev--
				}
				if last = kv.Rev; !yield(kv, nil) {
					return
				}
				if ctx.Err() != nil {
					fail(ctx.Err())
					return
				}
			}
		}
		if err := ctx.Err(); err != nil {
			fail(err)
		} else {
			fail(status.Error(codes.Unavailable, "the connection was closed"))
		}
	}
}

// Grant implements cluster.Meta. etcd counts in seconds: ttl is rounded up, and a lease may live up to a second longer.
func (s *store) Grant(ctx context.Context, ttl time.Duration) (cluster.Lease, error) {
	if ttl <= 0 {
		return 0, fmt.Errorf("etcd: grant: a lease must live longer than 0, got %v", ttl)
	}
	if err := begin(ctx, "grant", "a lease"); err != nil {
		return 0, err
	}
	r, err := s.client.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
	if err != nil {
		return 0, translate(ctx, "grant", "", err)
	}
	return cluster.Lease(r.ID), nil
}

// Keep implements cluster.Meta.
func (s *store) Keep(ctx context.Context, l cluster.Lease) error {
	if err := begin(ctx, "keep", "a lease"); err != nil {
		return err
	}
	if _, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(l)); err != nil {
		return translate(ctx, fmt.Sprintf("keep lease %d", l), "", err)
	}
	return nil
}

// Revoke implements cluster.Meta.
func (s *store) Revoke(ctx context.Context, l cluster.Lease) error {
	if err := begin(ctx, "revoke", "a lease"); err != nil {
		return err
	}
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(l))
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return translate(ctx, fmt.Sprintf("revoke lease %d", l), "", err)
	}
	return nil
}

// Campaign implements cluster.Meta.
func (s *store) Campaign(ctx context.Context, key string, val []byte) (cluster.Term, error) {
	return meta.Campaign(ctx, s, key, val, 0)
}
