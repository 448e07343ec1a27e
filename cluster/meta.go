package cluster

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// Meta is the small, strongly consistent store in which a cluster keeps who belongs to it: in memory, served to child processes on
// their parent's stream, or in etcd. All methods end by their context. A store that does not answer is protocol.ErrUnavailable, and
// then a PutIf may or may not have been applied.
type Meta interface {
	// Get returns the key; Rev 0: it is absent.
	Get(ctx context.Context, key string) (KV, error)
	// PutIf writes val if the key's revision is rev (0: it must be absent), and returns its new one; else protocol.ErrConflict. A nil
	// val deletes the key. With a lease the key goes when the lease ends. val has at most MaxValue bytes.
	PutIf(ctx context.Context, key string, val []byte, rev int64, l Lease) (int64, error)
	// Watch walks the changes of keys with that prefix after revision rev, in their order; rev 0 begins with the keys that are there. A
	// key that is gone has Rev > 0 and a nil Value. The walk ends with ctx, or with an error: then watch again from the Rev that
	// comes with it. That is the last Rev, or 0 with ErrCompacted.
	Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[KV, error]
	// Grant makes a lease. It is to be kept alive by Keep before ttl is over, each time.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// Keep keeps l alive for another ttl; ErrLeaseLost: it has ended.
	Keep(ctx context.Context, l Lease) error
	// Revoke ends l, and with it its keys.
	Revoke(ctx context.Context, l Lease) error
	// Campaign waits until the caller holds key, with val, and holds it until Term.Resign, or until the lease behind it ends.
	Campaign(ctx context.Context, key string, val []byte) (Term, error)
}

// MaxValue is the largest value of a key, in bytes.
const MaxValue = 64 << 10

// A KV is a key with its value and the revision of its last change. Revisions rise over the whole store.
type KV = protocol.MetaKV

// A Lease ends, with the keys that were put under it, when it is not kept alive. 0: none, for ever.
type Lease int64

// A Term is the time for which a campaigner holds a key.
type Term struct {
	Rev    int64           // rises from term to term: a fencing token
	Lost   <-chan struct{} // closed when the term ends against the holder's will
	Resign func(ctx context.Context) error
}

var (
	// ErrLeaseLost: the lease has ended, or never was.
	ErrLeaseLost = protocol.ErrLeaseLost

	// ErrCompacted: the store no longer knows what changed since the revision that a Watch asked for. Watch again from 0, and take what
	// is not among the keys that come for gone.
	ErrCompacted = errors.New("the changes since then are no longer kept")
)
