package meta_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/protocol"
)

// A failing store is slow to keep a lease, once, and then gives no answer any more.
type failing struct {
	cluster.Meta
	kept int
}

func (f *failing) Keep(ctx context.Context, l cluster.Lease) error {
	switch f.kept++; f.kept {
	case 1:
		time.Sleep(2 * time.Second)
	case 2:
	default:
		return protocol.ErrUnavailable
	}
	return f.Meta.Keep(ctx, l)
}

// Watch hears nothing, since the store is out of reach.
func (*failing) Watch(ctx context.Context, _ string, rev int64) iter.Seq2[cluster.KV, error] {
	return func(yield func(cluster.KV, error) bool) {
		<-ctx.Done()
		yield(cluster.KV{Rev: rev}, ctx.Err())
	}
}

// TestLostInTime: a holder that no longer reaches the store knows that its term is lost before another's begins.
func TestLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		store := meta.NewMemory(meta.Options{})
		defer store.Close()
		first, err := meta.Campaign(ctx, &failing{Meta: store}, "leader", []byte("first"), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		second, err := store.Campaign(ctx, "leader", []byte("second"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-first.Lost:
		default:
			t.Error("two hold the key")
		}
		<-first.Lost
		if err := second.Resign(ctx); err != nil {
			t.Error(err)
		}
	})
}
