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
	"github.com/trivium-ml/trivium/wire/control"
)

func TestFramesRoundTrip(t *testing.T) {
	q := request{
		Op: opPutIf, ID: 1 << 60, Key: "k", HasValue: true, Rev: -1, Lease: 1 << 62, TTL: time.Second, Limit: time.Minute,
	}
	var q2 request
	if err := q2.parse(coded(t, q)); err != nil || q2 != q {
		t.Errorf("%+v came back as %+v, %v", q, q2, err)
	}
	a := answer{ID: 7, Code: 2, Text: "no", Key: "k", HasValue: true, Rev: 3, Lease: 1 << 62}
	var a2 answer
	if err := a2.parse(coded(t, a)); err != nil || a2 != a {
		t.Errorf("%+v came back as %+v, %v", a, a2, err)
	}
}

func TestErrorsTravel(t *testing.T) {
	for _, want := range []error{protocol.ErrConflict, protocol.ErrUnavailable, cluster.ErrLeaseLost, cluster.ErrCompacted} {
		var a, b answer
		a.fail(fmt.Errorf("meta: put %q: %w", "k", want))
		if err := b.parse(coded(t, a)); err != nil {
			t.Fatal(err)
		}
		err := b.err(protocol.Name{ID: "parent"})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), `put "k"`) || !strings.Contains(err.Error(), "parent") {
			t.Errorf("%v came back as %v", want, err)
		}
	}
	var a, b answer
	a.fail(errors.New("\xff" + strings.Repeat("ü", 10*maxText))) // no UTF-8, and cut within a rune
	if err := b.parse(coded(t, a)); err != nil {
		t.Fatal(err)
	}
	if err := b.err(protocol.Name{}); err == nil || len(err.Error()) > maxText+100 {
		t.Errorf("a long error of no kind came back as %.100v", err)
	}
}

// FuzzRequest: what is read without an error is what append writes, once more.
func FuzzRequest(f *testing.F) {
	f.Add(coded(f, request{Op: opWatch, ID: 1, Key: "k", Rev: 3}))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, p []byte) {
		var q, again request
		if q.parse(p) != nil {
			return
		}
		if q.Op >= opEnd || len(q.Key) > MaxKey {
			t.Fatalf("%+v", q)
		}
		if err := again.parse(coded(t, q)); err != nil || again != q {
			t.Fatalf("%+v came back as %+v, %v", q, again, err)
		}
	})
}

// FuzzAnswer: what is read without an error is what append writes, once more.
func FuzzAnswer(f *testing.F) {
	f.Add(coded(f, answer{ID: 1, Key: "k", Rev: 3, HasValue: true}))
	f.Add(coded(f, answer{Code: 1, Text: "no"}))
	f.Fuzz(func(t *testing.T, p []byte) {
		var a, again answer
		if a.parse(p) != nil {
			return
		}
		_ = a.err(protocol.Name{})
		if err := again.parse(coded(t, a)); err != nil || again != a {
			t.Fatalf("%+v came back as %+v, %v", a, again, err)
		}
		if !bytes.Equal(coded(t, again), coded(t, a)) {
			t.Fatal("two codings")
		}
	})
}

// coded is a message as it travels.
func coded(t testing.TB, message any) []byte {
	t.Helper()
	p, err := control.Append(nil, message)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestFields: every field of a message has a number.
func TestFields(t *testing.T) {
	if err := errors.Join(control.Check(request{}), control.Check(answer{})); err != nil {
		t.Error(err)
	}
}

// TestFramesOutOfBounds: what is larger than it may be is refused with the bound, as is what says nothing.
func TestFramesOutOfBounds(t *testing.T) {
	long := control.Bytes(strings.Repeat("k", MaxKey+1))
	for _, c := range []struct {
		into interface{ parse(p []byte) error }
		from any
		want string
	}{
		{new(request), request{}, "operation from 1 to 9, got 0"},
		{new(request), request{Op: opEnd}, "operation from 1 to 9, got 10"},
		{new(request), request{Op: opGet, Key: long}, "at most 1024 bytes, got 1025"},
		{new(answer), answer{Code: -1}, "code from 0 to 5, got -1"},
		{new(answer), answer{Code: len(sentinels) + 1}, "code from 0 to 5, got 6"},
		{new(answer), answer{Text: strings.Repeat("x", maxText+1)}, "at most 2048 bytes, got 2049"},
		{new(answer), answer{Key: long}, "at most 1024 bytes, got 1025"},
	} {
		if err := c.into.parse(coded(t, c.from)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+.99v: error %v, want %q", c.from, err, c.want)
		}
	}
	if err := new(request).parse(nil); err == nil || !strings.HasPrefix(err.Error(), "meta: control: a request: ") {
		t.Errorf("no bytes: %v", err)
	}
}
