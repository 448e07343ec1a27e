package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/transport/transporttest"
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

// place is a process with a port in memory.
type place struct {
	t      *testing.T
	net    transport.Network
	meta   cluster.Meta
	policy cluster.Policy
}

func worker(id int, incarnation uint64) protocol.Name {
	return protocol.Name{Job: "j", Role: "worker", ID: fmt.Sprint(id), Incarnation: incarnation}
}

// open opens a port and its control stream.
func (p place) open(n protocol.Name) (transport.Port, transport.Stream) {
	p.t.Helper()
	port, err := p.net.Open(p.t.Context(), n, transport.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := port.Stream("cluster", transport.StreamOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return port, s
}

func (p place) join(n protocol.Name) (*cluster.Membership, transport.Port, error) {
	port, s := p.open(n)
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	m, err := cluster.Join(ctx, p.meta, s, cluster.Member{Name: n, Addr: port.Addr()}, p.policy)
	if err != nil {
		_ = port.Close()
	}
	return m, port, err
}

// next walks to the first view of that size.
func next(t *testing.T, views func() (cluster.View, error, bool), size int) cluster.View {
	t.Helper()
	for {
		v, err, ok := views()
		if !ok || err != nil {
			t.Fatalf("views ended, %v, want one of %d", err, size)
		}
		if len(v.Members) == size {
			return v
		}
	}
}

func TestJoinLeaveClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		p := place{t, transport.NewMemory(), store, cluster.Policy{StartWorkers: 3}}
		type joined struct {
			m    *cluster.Membership
			port transport.Port
			err  error
		}
		all := make(chan joined, 3)
		for i := range 3 {
			go func() {
				m, port, err := p.join(worker(i, 1))
				all <- joined{m, port, err}
			}()
		}
		var members []joined
		for range 3 {
			j := <-all
			if j.err != nil {
				t.Fatal(j.err)
			}
			members = append(members, j)
		}
		walks := make([]func() (cluster.View, error, bool), 0, 3)
		for _, j := range members {
			w, stop := pull(j.m)
			defer stop()
			walks = append(walks, w)
			if v := next(t, w, 3); v.Epoch != 1 {
				t.Errorf("the first view has epoch %d, want 1", v.Epoch)
			}
		}
		s, err := members[0].m.Status(t.Context())
		if err != nil || len(s.Members) != 3 || s.Budget != 250*time.Millisecond || s.Epoch != 1 {
			t.Errorf("status %+v, %v: want 3 members, epoch 1, 250 ms", s, err)
		}
		if err := members[0].m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err, ok := walks[0](); ok {
			t.Errorf("views go on after Leave: %v", err)
		}
		began := time.Now()
		next(t, walks[1], 2)
		if err := members[1].m.Close(); err != nil {
			t.Error(err)
		}
		v := next(t, walks[2], 1)
		if v.Epoch != 3 || time.Since(began) > 50*time.Millisecond {
			t.Errorf("after Leave and Close: view %d after %v, want 3 at once", v.Epoch, time.Since(began))
		}
		// The last one may leave too: the view is empty then.
		if err := members[2].m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		for _, j := range members {
			_ = j.port.Close()
		}
		for kv, err := range store.Watch(timeout(t, time.Second), "group/j/present/", 0) {
			if err == nil && kv.Value != nil {
				t.Errorf("%s is still there", kv.Key)
			}
		}
		_ = store.Close()
	})
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// pull turns Views into a func.
func pull(m *cluster.Membership) (func() (cluster.View, error, bool), func()) {
	type pair struct {
		v   cluster.View
		err error
	}
	ch, quit := make(chan pair), make(chan struct{})
	go func() {
		defer close(ch)
		for v, err := range m.Views() {
			select {
			case ch <- pair{v, err}:
			case <-quit:
				return
			}
		}
	}()
	return func() (cluster.View, error, bool) { p, ok := <-ch; return p.v, p.err, ok }, func() { close(quit) }
}

func TestJoinRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		p := place{t, transport.NewMemory(), store, cluster.Policy{}}
		m, port, err := p.join(worker(1, 5))
		if err != nil {
			t.Fatal(err)
		}
		other := place{t, transport.NewMemory(), store, cluster.Policy{}} // the same name, elsewhere
		_, _, err = other.join(worker(1, 5))
		var refused *cluster.RefusedError
		if !errors.As(err, &refused) || refused.Field != "Incarnation" {
			t.Errorf("a second process of the same name: %v, want a RefusedError of Incarnation", err)
		}
		_, _, err = p.join(worker(1, 4))
		if !errors.As(err, &refused) || refused.Field != "Incarnation" || !strings.Contains(err.Error(), "younger") {
			t.Errorf("an older incarnation: %v, want a RefusedError of Incarnation", err)
		}
		_, _, err = p.join(worker(1, 6))
		if !errors.As(err, &refused) || refused.Field != "ID" {
			t.Errorf("a second process of one ID: %v, want a RefusedError of ID", err)
		}
		_, s := p.open(worker(2, 1))
		if _, err := cluster.Join(t.Context(), store, s, cluster.Member{Name: worker(3, 1)}, cluster.Policy{}); err == nil {
			t.Error("a stream of another name was taken")
		}
		_, err = cluster.Join(t.Context(), store, s, cluster.Member{}, cluster.Policy{MinWorkers: 9, MaxWorkers: 3, Budget: 1, ViewLimit: -1})
		for _, want := range []string{"MaxWorkers is 3, below MinWorkers 9", "Budget is 1ns", "ViewLimit is -1"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a bad policy: %v, want %q in it", err, want)
			}
		}
		shrink := p
		shrink.policy.MinWorkers, shrink.policy.StartWorkers = 2, 2
		_ = s.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_ = port.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		port, s = p.open(worker(7, 1))
		_, err = cluster.Join(ctx, store, s, cluster.Member{Addr: port.Addr()}, cluster.Policy{StartWorkers: 2, Group: "other"})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 2 newcomers") {
			t.Errorf("alone of two: %v", err)
		}
		_ = port.Close()
		_ = store.Close()
	})
}

// TestJoinFull: a newcomer for whom the group has no room is told so.
func TestJoinFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		p := place{t, transport.NewMemory(), store, cluster.Policy{MaxWorkers: 1}}
		m, port, err := p.join(worker(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.join(worker(2, 1)); !errors.Is(err, cluster.ErrFull) || !strings.Contains(err.Error(), "view 1 has 1 members, 1 wait") {
			t.Errorf("%v, want ErrFull", err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_ = port.Close()
		_ = store.Close()
	})
}

// TestJoinUnheard: a newcomer that waits for others whom it does not hear names them, the first of many.
func TestJoinUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		ended := make(chan error)
		for i := range 7 {
			go func() { // on a network of its own
				_, _, err := place{t, transport.NewMemory(), store, cluster.Policy{StartWorkers: 7}}.join(worker(i, 1))
				ended <- err
			}()
			time.Sleep(time.Millisecond)
		}
		const want = "1 of 7 newcomers are there; not heard: j/worker/1#1, j/worker/2#1, j/worker/3#1, j/worker/4#1 and 2 more)"
		if err := <-ended; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		for range 6 {
			<-ended
		}
		_ = store.Close()
	})
}

// gather joins n members at once, and walks each to the view of all.
func gather(t *testing.T, p place, n int) ([]*cluster.Membership, []func() (cluster.View, error, bool), func()) {
	t.Helper()
	type joined struct {
		i    int
		m    *cluster.Membership
		port transport.Port
		err  error
	}
	p.policy.StartWorkers = n
	all := make(chan joined, n)
	for i := range n {
		go func() {
			m, port, err := p.join(worker(i, 1))
			all <- joined{i, m, port, err}
		}()
	}
	members := make([]*cluster.Membership, n)
	ports := make([]transport.Port, n)
	for range n {
		j := <-all
		if j.err != nil {
			t.Fatal(j.err)
		}
		members[j.i], ports[j.i] = j.m, j.port
	}
	var walks []func() (cluster.View, error, bool)
	var stops []func()
	for _, m := range members {
		w, stop := pull(m)
		walks, stops = append(walks, w), append(stops, stop)
		next(t, w, n)
	}
	return members, walks, func() {
		for i, m := range members {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			stops[i]()
			_ = ports[i].Close()
		}
	}
}

// A carrier stops before the view changes, and all members get the one fate that the proposer made of what they said.
func TestPrepareAndDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		asked := make(chan cluster.Change, 64)
		p := place{t, transport.NewMemory(), store, cluster.Policy{
			Prepare: func(ctx context.Context, c cluster.Change) ([]byte, error) {
				asked <- c
				select {
				case <-time.After(300 * time.Millisecond): // until the step's end
					return fmt.Appendf(nil, "step %d", 40+c.Epoch), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
			Decide: func(c cluster.Change, reports [][]byte) []byte {
				return fmt.Appendf(nil, "%v: %s", c.Stay, reports)
			},
		}}
		members, walks, end := gather(t, p, 3)
		began := time.Now()
		s, err := members[2].Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rank := s.Rank
		if err := members[2].Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d < 300*time.Millisecond || d > 400*time.Millisecond {
			t.Errorf("the leaver was out after %v, want the carriers' 300 ms", d)
		}
		reports := []string{"step 41", "step 41", "step 41"}
		reports[rank] = ""
		stay := [][]int{{1, 2}, {0, 2}, {0, 1}}[rank]
		want := fmt.Sprintf("%v: %s", stay, reports)
		for _, w := range walks[:2] {
			if v := next(t, w, 2); string(v.Fate) != want {
				t.Errorf("the fate is %q, want %q", v.Fate, want)
			}
		}
		if n := len(asked); n != 3 {
			t.Errorf("carriers were asked %d times, want once each", n)
		}
		end()
		_ = store.Close()
	})
}

// TestDied: what a launcher says of a member's end, once or twice, is proof to all, also to that member, should it live.
func TestDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		forgot := make(chan protocol.Name, 100)
		p := place{t, transport.NewMemory(), store, cluster.Policy{Forget: func(n protocol.Name) { forgot <- n }}}
		members, walks, end := gather(t, p, 3)
		if why := members[0].Why(worker(1, 1)); why != "" {
			t.Errorf("a living one is taken for lost: %s", why)
		}
		began := time.Now()
		for range 2 {
			members[0].Died(worker(1, 1), errors.New("exit status 3"))
		}
		for _, at := range []int{0, 2} {
			if v := next(t, walks[at], 2); v.Epoch != 2 {
				t.Errorf("member %d goes on in view %d, want 2", at, v.Epoch)
			}
			if why := members[at].Why(worker(1, 1)); !strings.Contains(why, "exit status 3") {
				t.Errorf("member %d took it for lost because: %q", at, why)
			}
		}
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("the view without it came after %v", d)
		}
		_, err, ok := walks[1]() // it lives, and learns that it is out
		var out *cluster.OutError
		if !ok || !errors.As(err, &out) || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("who was reported dead sees %v, want an OutError with the reason", err)
		}
		time.Sleep(3 * time.Second)
		end()
		if a, b := <-forgot, <-forgot; a != worker(1, 1) || b != a {
			t.Errorf("forgotten: %v and %v, want it, at both others", a, b)
		}
		_ = store.Close()
	})
}

// What a carrier suspects is probed at once: if it lives, nothing happens.
func TestSuspectTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		members, walks, end := gather(t, place{t, transport.NewMemory(), store, cluster.Policy{}}, 6)
		for i, m := range members {
			m.Suspect(worker((i+1)%6, 1), errors.New("no answer to a push in 2s"))
		}
		members[0].Suspect(worker(77, 1), nil) // nobody
		time.Sleep(5 * time.Second)
		if s, err := members[3].Status(t.Context()); err != nil || s.Epoch != 1 || s.Pending || s.Budget != 250*time.Millisecond {
			t.Errorf("status %+v, %v", s, err)
		}
		go end()
		if v, err, ok := walks[5](); ok && err == nil && len(v.Members) == 6 {
			t.Errorf("another view of six: %v", v)
		}
		time.Sleep(time.Second)
		_ = store.Close()
	})
}

// TestComeAndGo: a member that stays keeps no goroutine for those who came and went.
func TestComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := place{t, transport.NewMemory(), meta.NewMemory(meta.Options{}), cluster.Policy{}}
		port, s := p.open(worker(0, 1))
		stays, err := cluster.Join(t.Context(), p.meta, s, cluster.Member{Addr: port.Addr()}, cluster.Policy{Forget: port.Forget})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := transporttest.Goroutines()
		for i := range 100 {
			m, other, err := p.join(worker(1, uint64(i+1)))
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				err = m.Leave(t.Context())
			} else {
				err = m.Close()
			}
			if err := errors.Join(err, other.Close()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if n := transporttest.Goroutines(); n > before {
			t.Errorf("%d goroutines, %d before 100 came and went", n, before)
		}
		if err := errors.Join(stays.Close(), port.Close(), p.meta.(*meta.Memory).Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestViewsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := meta.NewMemory(meta.Options{})
		m, port, err := place{t, transport.NewMemory(), store, cluster.Policy{}}.join(worker(0, 1))
		if err != nil {
			t.Fatal(err)
		}
		for v, err := range m.Views() {
			if err != nil || v.Self != 0 || v.Epoch != 1 {
				t.Errorf("view %v, %v", v, err)
			}
			break
		}
		for _, err := range m.Views() {
			if err == nil {
				t.Error("Views was walked twice")
			}
		}
		_ = m.Close()
		_ = m.Close()
		if err := m.Leave(t.Context()); err == nil {
			t.Error("Leave after Close said nothing")
		}
		if _, err := m.Status(t.Context()); err == nil {
			t.Error("Status after Close said nothing")
		}
		m.Suspect(worker(1, 1), nil)
		_ = port.Close()
		_ = store.Close()
	})
}
