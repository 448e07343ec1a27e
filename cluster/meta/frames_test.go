package meta

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/protocol"
)

func TestFramesRoundTrip(t *testing.T) {
	q := request{
		op: opPutIf, id: 1 << 60, key: "k", hasValue: true, rev: -1, lease: 1 << 62, ttl: time.Second, limit: time.Minute,
	}
	var q2 request
	if err := q2.parse(q.append(nil)); err != nil || q2 != q {
		t.Errorf("%+v came back as %+v, %v", q, q2, err)
	}
	a := answer{id: 7, code: 2, text: "no", key: "k", hasValue: true, rev: 3, lease: 1 << 62}
	var a2 answer
	if err := a2.parse(a.append(nil)); err != nil || a2 != a {
		t.Errorf("%+v came back as %+v, %v", a, a2, err)
	}
}

func TestErrorsTravel(t *testing.T) {
	for _, want := range []error{protocol.ErrConflict, protocol.ErrUnavailable, cluster.ErrLeaseLost, cluster.ErrCompacted} {
		var a, b answer
		a.fail(fmt.Errorf("meta: put %q: %w", "k", want))
		if err := b.parse(a.append(nil)); err != nil {
			t.Fatal(err)
		}
		err := b.err(protocol.Name{ID: "parent"})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), `put "k"`) || !strings.Contains(err.Error(), "parent") {
			t.Errorf("%v came back as %v", want, err)
		}
	}
	var a, b answer
	a.fail(errors.New(strings.Repeat("x", 10*maxText)))
	if err := b.parse(a.append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := b.err(protocol.Name{}); err == nil || len(err.Error()) > maxText+100 {
		t.Errorf("a long error of no kind came back as %.100v", err)
	}
}

// FuzzRequest: what is read without an error is what append writes, once more.
func FuzzRequest(f *testing.F) {
	f.Add((&request{op: opWatch, id: 1, key: "k", rev: 3}).append(nil))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, p []byte) {
		var q, again request
		if q.parse(p) != nil {
			return
		}
		if q.op >= opEnd || len(q.key) > MaxKey {
			t.Fatalf("%+v", q)
		}
		if err := again.parse(q.append(nil)); err != nil || again != q {
			t.Fatalf("%+v came back as %+v, %v", q, again, err)
		}
	})
}

// FuzzAnswer: what is read without an error is what append writes, once more.
func FuzzAnswer(f *testing.F) {
	f.Add((&answer{id: 1, key: "k", rev: 3, hasValue: true}).append(nil))
	f.Add((&answer{code: 1, text: "no"}).append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		var a, again answer
		if a.parse(p) != nil {
			return
		}
		_ = a.err(protocol.Name{})
		if err := again.parse(a.append(nil)); err != nil || again != a {
			t.Fatalf("%+v came back as %+v, %v", a, again, err)
		}
		if !bytes.Equal(again.append(nil), a.append(nil)) {
			t.Fatal("two codings")
		}
	})
}
