package cluster

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/transport"
	"github.com/trivium-ml/trivium/wire/control"
)

func name(id int) protocol.Name {
	return protocol.Name{Job: "j", Role: "worker", ID: fmt.Sprint(id), Incarnation: 1}
}

func someRecord() *record {
	return &record{
		Epoch: 7, By: name(1), Fate: []byte("copy bucket 3"),
		Members: []Member{{Name: name(1), Addr: "unix:/a", Info: map[string]string{"host": "h", "cores": "2"}}, {Name: name(4)}},
		Gone:    []gone{{name(2), silent, "silent for 250ms"}, {name(3), left, "it asked to leave"}},
		Flaps:   []flap{{"worker", "2", 3}},
	}
}

func bodies() []protocol.Body {
	return []protocol.Body{
		&beat{9, ask}, &probe{3, 5}, &vouch{3, 5}, &accusation{3, 5, dead, "exit status 1"}, &wish{4},
		&proposal{Round: 513, Change: Change{Epoch: 3, Stay: []int{0, 2, 200}, Joins: []protocol.Name{name(9)}}},
		&proposal{Round: 1, Change: Change{Epoch: 1, Stay: []int{}}},
		&vote{3, 513, []int{0, 1}, []byte("whole")}, &announcement{someRecord(), 44}, &knock{2}, &refusal{"ID", "it is taken"}, &bye{1},
	}
}

// Every field that is sent has a number.
func TestMessagesNumbered(t *testing.T) {
	for _, b := range bodies()[1:] { // a beat is not coded so
		if err := control.Check(b); err != nil {
			t.Error(err)
		}
	}
	if err := control.Check(presence{}); err != nil {
		t.Error(err)
	}
}

// What is out of bounds is refused, whoever sent it.
func TestMessagesBounded(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	many := make([]int, MaxWorkers+1)
	rec := func(change func(r *record)) *announcement {
		r := someRecord()
		change(r)
		return &announcement{r, 1}
	}
	for _, b := range []protocol.Body{
		&probe{1, -1}, &vouch{1, MaxWorkers + 1}, &accusation{1, -3, dead, ""}, &accusation{1, 1, dead, long}, &refusal{"ID", long},
		&proposal{Change: Change{Stay: many}}, &proposal{Change: Change{Stay: []int{-1}}}, &proposal{Change: Change{Joins: []protocol.Name{{ID: long}}}},
		&vote{Heard: []int{1 << 40}}, &vote{Report: []byte(long)}, &announcement{nil, 1}, &announcement{someRecord(), -1},
		rec(func(r *record) { r.Fate = []byte(long) }), rec(func(r *record) { r.Members = make([]Member, MaxWorkers+1) }),
		rec(func(r *record) { r.Members[0].Addr = long }), rec(func(r *record) { r.Members[0].Info = map[string]string{"a": long} }),
		rec(func(r *record) { r.Gone = make([]gone, MaxWorkers+1) }), rec(func(r *record) { r.Gone[0].Why = long }),
		rec(func(r *record) { r.Flaps = make([]flap, maxFlaps+1) }), rec(func(r *record) { r.By.Job = long }),
	} {
		kind, head, err := encode(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode(kind, head); err == nil {
			t.Errorf("%T was accepted: %.80v", b, got)
		}
	}
}

// Every message comes out of a frame as it went in.
func TestMessagesRoundTrip(t *testing.T) {
	var c codec
	for _, want := range bodies() {
		var f transport.Frame
		if err := c.Encode(want, &f); err != nil {
			t.Fatal(err)
		}
		if f.Priority != transport.Control {
			t.Errorf("%T is not a Control frame", want)
		}
		got, kept, err := c.Decode(&transport.Event{Kind: f.Kind, Key: f.Key, Head: f.Head, Payload: f.Payload})
		if err != nil || kept {
			t.Errorf("%T: %v, kept %v", want, err, kept)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%T: got %+v, want %+v", want, got, want)
		}
	}
}

func TestBeatsCostNoAllocation(t *testing.T) {
	var c codec
	b := protocol.Body(&beat{9, ask})
	f := transport.Frame{}
	ev := transport.Event{Kind: kindBeat}
	ev.Op, ev.Chunk = 9, ask
	if n := testing.AllocsPerRun(100, func() {
		_ = c.Encode(b, &f)
		_, _, _ = c.Decode(&ev)
	}); n != 0 {
		t.Errorf("a beat costs %v allocations", n)
	}
}

// FuzzDecode: no bytes make the decoders panic, and what they accept is coded back to what they would accept again.
func FuzzDecode(f *testing.F) {
	for _, b := range bodies() {
		kind, head, err := encode(nil, b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, head)
	}
	f.Add(uint8(0), presence{Member{Name: name(1), Addr: "a"}, 5}.encode())
	f.Fuzz(func(t *testing.T, kind uint8, head []byte) {
		if p, err := decodePresence(head); err == nil {
			if again, err := decodePresence(p.encode()); err != nil || !reflect.DeepEqual(p, again) {
				t.Errorf("presence %+v comes back as %+v, %v", p, again, err)
			}
		}
		b, err := decode(kind, head)
		if err != nil {
			return
		}
		_, again, err := encode(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		c, err := decode(kind, again)
		if err != nil || !reflect.DeepEqual(b, c) {
			t.Errorf("%+v comes back as %+v, %v", b, c, err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	_, head, _ := encode(nil, &announcement{someRecord(), 44})
	for cut := range head {
		if _, err := decode(kindAnnouncement, head[:cut]); err == nil {
			t.Errorf("%d of %d bytes were accepted", cut, len(head))
		}
	}
	newer := slices.Clone(someRecord().encode())
	newer[0]++
	if _, err := decodeRecord(newer); err == nil || !strings.Contains(err.Error(), "another version of this program") {
		t.Errorf("a record of the next version: %v", err)
	}
	if _, err := decode(99, nil); err == nil {
		t.Error("a frame of kind 99 was accepted")
	}
	var c codec
	ev := transport.Event{Kind: kindBeat}
	ev.Chunk = 77
	if _, _, err := c.Decode(&ev); err == nil {
		t.Error("a beat with flags 77 was accepted")
	}
}

func TestKeys(t *testing.T) {
	k := makeKeys("a/b")
	if k.view() != "group/a%2fb/view" {
		t.Errorf("view is at %q", k.view())
	}
	n := protocol.Name{Role: "wor/ker", ID: "1%2", Incarnation: 12}
	role, id, incarnation, ok := k.parse(k.present(n))
	if !ok || role != n.Role || id != n.ID || incarnation != 12 {
		t.Errorf("%q is read as %q, %q, %d, %v", k.present(n), role, id, incarnation, ok)
	}
	for _, bad := range []string{"", "group/a%2fb/view", "group/a%2fb/died/worker/1/1", k.present(n) + "x", k.present(n) + "/1"} {
		if _, _, _, ok := k.parse(bad); ok {
			t.Errorf("%q was read as a presence", bad)
		}
	}
}

// The spread's percentile against a sorted list: never below, and at most an eighth above.
func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 10, 999, 1000, 5000, 20000} {
		var s spread
		var all []time.Duration
		for i := range n {
			gap := time.Duration(math.Exp(rng.NormFloat64())*20*float64(time.Millisecond)) + time.Millisecond
			all = append(all, gap)
			s.add(time.Duration(i)*time.Millisecond, gap)
		}
		slices.Sort(all)
		want := all[n-1-n/1000]
		if got := s.high(); got < want || float64(got) > 1.126*float64(want) {
			t.Errorf("of %d gaps the 99.9th percentile is %v, want %v or up to an eighth more", n, got, want)
		}
	}
	var s spread
	s.add(0, time.Second)
	s.add(59*time.Second, 20*time.Millisecond)
	if s.high() < time.Second {
		t.Errorf("after 59 s, a second's gap is forgotten")
	}
	s.add(61*time.Second, 20*time.Millisecond)
	if s.high() > 25*time.Millisecond {
		t.Errorf("after 61 s, a second's gap is remembered: %v", s.high())
	}
	s.turn(time.Hour)
	if s.total != 0 {
		t.Errorf("after an hour %d gaps are left", s.total)
	}
	for b := 32; b < buckets-1; b++ {
		if got := bucketOf(upper(b) - time.Microsecond); got != b {
			t.Errorf("the end of bucket %d is in bucket %d", b, got)
		}
	}
}

// The accrual in whole numbers, against the formula of Hayashibara et al. 2004, section 4.
func TestPhi(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const heartbeat = 20 * time.Millisecond
	for range 200 {
		var g gaps
		var last []float64
		for range 1 + rng.IntN(200) {
			gap := time.Duration(float64(heartbeat) * (1 + 0.5*rng.NormFloat64()))
			g.add(gap)
			last = append(last, float64(max(gap/time.Microsecond, 0)))
		}
		last = last[max(len(last)-len(g.ring), 0):]
		mean, variance := 0.0, 0.0
		for _, x := range last {
			mean += x / float64(len(last))
		}
		for _, x := range last {
			variance += (x - mean) * (x - mean) / float64(len(last))
		}
		sigma := max(math.Sqrt(variance), float64(heartbeat/time.Microsecond)/4)
		for silence := time.Duration(0); silence < 200*time.Millisecond; silence += 3 * time.Millisecond {
			want := -math.Log10(math.Erfc((float64(silence/time.Microsecond)-mean)/sigma/math.Sqrt2) / 2)
			if got := g.unlikely(silence, heartbeat); got != (want >= 8) && !(math.Abs(want-8) <= 0.05) {
				t.Fatalf("phi after %v is %v: unlikely says %v", silence, want, got)
			}
		}
	}
}

func TestFlaps(t *testing.T) {
	r := &record{}
	for i := range 3 * maxFlaps {
		r.setFlaps("worker", fmt.Sprintf("%03d", i), 1+uint64(i%2))
	}
	if len(r.Flaps) != maxFlaps || !slices.IsSortedFunc(r.Flaps, func(a, b flap) int { return strings.Compare(a.ID, b.ID) }) {
		t.Errorf("%d entries, sorted or not: %v", len(r.Flaps), r.Flaps)
	}
	id := r.Flaps[7].ID
	r.setFlaps("worker", id, 5)
	if r.flaps("worker", id) != 5 || r.flaps("server", id) != 0 {
		t.Error("a count is not found again")
	}
	r.setFlaps("worker", id, 0)
	if r.flaps("worker", id) != 0 || len(r.Flaps) != maxFlaps-1 {
		t.Error("a count of 0 is kept")
	}
	m := &Machine{policy: Policy{}.withDefaults()}
	var waits []time.Duration
	for n := range uint64(8) {
		waits = append(waits, m.backOff(n+1)/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{1, 2, 4, 8, 16, 32, 60, 60}, waits); diff != "" {
		t.Errorf("back-off in seconds: %s", diff)
	}
}

// A record of the largest group with the longest members fits the store.
func TestRecordFits(t *testing.T) {
	long := strings.Repeat("x", 200)
	self := Member{Name: protocol.Name{Job: "j", ID: long, Incarnation: 1}, Addr: long}
	if err := (Policy{}).withDefaults().validate(self); err != nil {
		t.Fatal(err)
	}
	self.Info = map[string]string{"a": long}
	if err := (Policy{}).withDefaults().validate(self); err == nil || !strings.Contains(err.Error(), "want at most 512") {
		t.Errorf("a member of 600 bytes: %v", err)
	}
	r := &record{Fate: bytes.Repeat([]byte{1}, maxFate)}
	for range 64 {
		r.Members = append(r.Members, Member{Name: self.Name, Addr: long})
	}
	if n := len(r.encode()); n > MaxValue {
		t.Errorf("a view of 64 takes %d bytes", n)
	}
}

// Once a group is at rest, a tick allocates nothing.
func TestTickCostsNoAllocation(t *testing.T) {
	m := restful(t, 8)
	now := 10 * time.Second
	tick := protocol.Event(protocol.Timer{ID: tickTimer})
	var from []protocol.Event
	for r := 1; r < 8; r++ {
		from = append(from, protocol.Message{From: name(r), Body: &beat{Epoch: 1}})
	}
	sent := 0
	if n := testing.AllocsPerRun(40, func() {
		now += 20 * time.Millisecond
		for _, f := range from {
			m.Step(now, f)
		}
		sent += len(m.Step(now, tick))
	}); n != 0 {
		t.Errorf("a tick costs %v allocations", n)
	}
	if sent < 41*4 {
		t.Errorf("%d commands in 41 ticks, want three beats and a timer each", sent)
	}
}

func TestSameHost(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"unix:/tmp/a", "unix:/tmp/b", true},
		{"memory:a", "memory:b", true},
		{"tcp:127.0.0.1:1", "tcp:127.0.0.1:2", true},
		{"tcp:[::1]:1", "tcp:localhost:2", true},
		{"tcp:10.0.0.1:1", "tcp:10.0.0.1:2", true},
		{"tcp:10.0.0.1:1", "tcp:10.0.0.2:1", false},
		{"tcp:node-a:1", "tcp:node-b:1", false},
		{"near:h1,unix:/a,tcp:10.0.0.1:1", "near:h1,unix:/b,tcp:10.0.0.1:2", true},
		{"near:h1,unix:/a,tcp:10.0.0.1:1", "near:h2,unix:/b,tcp:10.0.0.2:2", false},
		{"tcp:10.0.0.1:1", "tcp:nonsense", false},
	} {
		if got := sameHost(tt.a, tt.b); got != tt.want {
			t.Errorf("%s and %s: %v", tt.a, tt.b, got)
		}
	}
}

// What is announced late, or by a stranger, changes nothing.
func TestOldAnnouncements(t *testing.T) {
	m := restful(t, 3)
	next := &record{Epoch: 2, Members: m.rec.Members[:2]}
	say := func(from protocol.Name, r *record) protocol.Epoch {
		m.Step(20*time.Second, protocol.Message{From: from, Body: &announcement{r, 6}})
		return m.rec.Epoch
	}
	if e := say(name(9), next); e != 1 {
		t.Errorf("a stranger's announcement made epoch %d", e)
	}
	if e := say(name(1), next); e != 2 || len(m.peers) != 2 {
		t.Errorf("a member's announcement: epoch %d, %d members", e, len(m.peers))
	}
	if e := say(name(1), &record{Epoch: 1, Members: []Member{{Name: name(1)}, {Name: name(0)}}}); e != 2 || m.rank != 0 {
		t.Errorf("an old announcement made epoch %d, rank %d", e, m.rank)
	}
	if e := say(name(1), &record{Epoch: 2, Members: []Member{{Name: name(1)}, {Name: name(0)}}}); e != 2 || m.rank != 0 {
		t.Errorf("a second view of epoch %d, rank %d", e, m.rank)
	}
}

// TestLostForGood: of those who were lost a member that stays keeps no more than the record says, and the verdicts of late.
func TestLostForGood(t *testing.T) {
	m := restful(t, 2)
	p := &Membership{policy: Policy{}.withDefaults(), verdicts: map[protocol.Name]string{}}
	for i := range 10 * MaxWorkers {
		lost := protocol.Name{Role: "node", ID: fmt.Sprint("host-", i), Incarnation: 1}
		next := &record{Epoch: m.rec.Epoch + 1, Members: m.rec.Members, Gone: []gone{{Name: lost, How: silent}}, Flaps: slices.Clone(m.rec.Flaps)}
		next.setFlaps(lost.Role, lost.ID, 1)
		m.learn(next, m.rev+1)
		p.reported(Convicted{Name: lost, How: "silent"})
		if why := p.Why(lost); why != "silent" {
			t.Fatalf("%v is lost for %q", lost, why)
		}
	}
	if len(m.flapped) > maxFlaps || len(p.verdicts) > 4*MaxWorkers {
		t.Errorf("%d losses and %d verdicts are kept", len(m.flapped), len(p.verdicts))
	}
}

// restful is rank 0 of n members, in whose view nothing happens.
func restful(t testing.TB, n int) *Machine {
	m, err := NewMachine(Member{Name: name(0)}, Policy{LeaseTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	m.Step(0, protocol.Start{})
	m.store.lease, m.appeared, m.store.calls = 1, true, nil
	m.setPresence(presence{m.self, 1}, 1)
	r := &record{Epoch: 1}
	for i := range n {
		r.Members = append(r.Members, Member{Name: name(i)})
	}
	m.now = 10 * time.Second
	m.tick.last = m.now
	m.learn(r, 5)
	return m
}

// TestVanished: a newcomer whose presence ends waits no more, and what the watch has told is not asked for again.
func TestVanished(t *testing.T) {
	m := restful(t, 2)
	came := presence{Member{Name: name(7)}, 3}
	tell := func(value []byte, rev int64) {
		m.saw(protocol.MetaReply{KV: protocol.MetaKV{Key: m.keys.present(came.Name), Value: value, Rev: rev}})
	}
	waits := func() bool {
		return slices.ContainsFunc(m.present, func(p presentState) bool { return same(p.Name, came.Name) })
	}
	if tell(came.encode(), 8); !waits() {
		t.Error("a newcomer is not known")
	}
	if tell(nil, 9); waits() || m.store.watched != 9 {
		t.Errorf("one that has gone waits: %v; the watch has told up to %d, want 9", waits(), m.store.watched)
	}
	if tell([]byte("junk"), 6); waits() || m.store.watched != 9 {
		t.Errorf("after an old change that is none the watch has told up to %d, want 9", m.store.watched)
	}
}

// TestRefusedNewcomer: a newcomer whose door refuses this process is no longer taken for one that waits, and is named; it may reach this
// process all the same, and is one again when it is heard.
func TestRefusedNewcomer(t *testing.T) {
	m, err := NewMachine(Member{Name: name(0)}, Policy{StartWorkers: 2, MaxWorkers: 2, LeaseTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	m.Step(0, protocol.Start{})
	m.store.lease, m.appeared, m.fresh, m.store.calls = 1, true, true, nil
	m.setPresence(presence{m.self, 1}, 1)
	m.setPresence(presence{Member{Name: name(1)}, 2}, 2)
	m.Step(time.Second, protocol.LinkLost{Peer: name(1), Err: protocol.ErrRefused})
	if s := m.status(); len(s.Waiting) != 0 || len(s.Unheard) != 1 || s.Unheard[0].Name != name(1) {
		t.Errorf("waiting are %v, not heard %v", s.Waiting, s.Unheard)
	}
	founds := func(out []protocol.Command) bool {
		return slices.ContainsFunc(out, func(c protocol.Command) bool {
			call, ok := c.(protocol.MetaCall)
			return ok && call.Op == protocol.MetaPutIf && call.Key == m.keys.view()
		})
	}
	if founds(m.Step(2*time.Second, protocol.Timer{ID: tickTimer})) {
		t.Error("a view is founded with one that is not heard")
	}
	if !founds(m.Step(2*time.Second+time.Millisecond, protocol.Message{From: name(1), Body: &knock{}})) {
		t.Errorf("no view is founded with one that knocks: %+v", m.present)
	}
}

func BenchmarkTick(b *testing.B) {
	m := restful(b, 8)
	now := 10 * time.Second
	tick := protocol.Event(protocol.Timer{ID: tickTimer})
	var from []protocol.Event
	for r := 5; r < 8; r++ {
		from = append(from, protocol.Message{From: name(r), Body: &beat{Epoch: 1}})
	}
	b.ReportAllocs()
	for b.Loop() {
		now += 20 * time.Millisecond
		for _, f := range from {
			m.Step(now, f)
		}
		m.Step(now, tick)
	}
}

// TestMemberRefused: a member that no record could hold is refused by an error that shows which of its texts it is.
func TestMemberRefused(t *testing.T) {
	for want, m := range map[string]Member{
		`"j/\xff"`:        {Name: protocol.Name{Job: "j", ID: "\xff"}},
		`"host \xff"`:     {Name: name(0), Info: map[string]string{"host": "host \xff"}},
		`"\xff":"0"`:      {Name: name(0), Info: map[string]string{"\xff": "0"}},
		"2973 bytes":      {Name: name(0), Addr: strings.Repeat("a", 2950)},
		"at most 1048576": {Name: name(0), Addr: strings.Repeat("a", 1<<21)},
	} {
		if _, err := NewMachine(m, Policy{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q, want %s", fmt.Sprint(err), want)
		}
	}
}
