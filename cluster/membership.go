package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/protocol/run"
	"github.com/trivium-ml/trivium/transport"
)

// A Membership is this process's place in a group, from Join to Leave, Close, or the error with which Views ends.
type Membership struct {
	meta   Meta
	s      transport.Stream
	policy Policy
	self   protocol.Name
	ears   *ears // its loop's, until done
	loop   *run.Loop
	done   chan struct{} // all has ended, and the lease is given back

	mu       sync.Mutex
	views    []View                   // not yet walked
	err      error                    // why it ended
	verdicts map[protocol.Name]string // on members that this process took for lost, the last of each
	ended    bool
	changed  chan struct{} // has room for one
	walked   atomic.Bool

	preparing context.CancelFunc
	wg        sync.WaitGroup
}

// keptViews is how many views wait for a slow walker: of more, the oldest are left out.
const keptViews = 64

// Join makes self a member of its group. It returns when the first view with it is installed; that view is the first of Views. It
// ends with ctx, or with a *RefusedError. s should have no other user, and is never fenced; self.Name must be the stream's, and
// self.Addr what others pass to Know in order to reach it. The Membership closes neither m nor s.
//
// A carrier (of parameters, of collectives) has a stream of its own, and fences it by each view, so that nothing of an older one is
// applied:
//
//	member, err := cluster.Join(ctx, meta, control, self, cluster.Policy{MinWorkers: 4})
//	for view, err := range member.Views() {
//		if err != nil {
//			return err // for example an *OutError: join again, as a new incarnation
//		}
//		data.Fence(view.Epoch, view.Names())
//		... train in this view, until the next one, or until a carrier's error: then member.Suspect(who, err)
//	}
func Join(ctx context.Context, m Meta, s transport.Stream, self Member, pol Policy) (*Membership, error) {
	if self.Name == (protocol.Name{}) {
		self.Name = s.Self()
	}
	if self.Name != s.Self() {
		return nil, fmt.Errorf("cluster: join: the member is %v, its stream is %v's", self.Name, s.Self())
	}
	pol = pol.withDefaults()
	machine, err := NewMachine(self, pol)
	if err != nil {
		return nil, err
	}
	p := &Membership{
		meta: m, s: s, policy: pol, self: self.Name, verdicts: map[protocol.Name]string{}, ears: &ears{Machine: machine, s: s}, done: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	loop, err := run.Start(context.WithoutCancel(ctx), p.ears, quiet{s}, run.Options{
		Codec: &codec{}, Meta: asks(m), Report: p.reported, Log: pol.Log,
	})
	if err != nil {
		return nil, err
	}
	p.loop = loop
	go p.finish()
	for {
		p.mu.Lock()
		in, ended, why := len(p.views) > 0, p.ended, p.err
		p.mu.Unlock()
		if ended && !in {
			<-p.done
			if why == nil {
				why = ErrClosed
			}
			return nil, why
		}
		if in {
			p.signal()
			return p, nil
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			why := p.waits()
			return nil, errors.Join(fmt.Errorf("cluster: join of %v: no view has it yet (%w): %w", self.Name, why, context.Cause(ctx)), p.Close())
		}
	}
}

// waits says what a newcomer waits for; ErrFull: for a place.
func (p *Membership) waits() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, err := p.Status(ctx)
	switch {
	case err != nil:
		return err
	case s.MetaAway > 0:
		return fmt.Errorf("the metadata store does not answer for %v", s.MetaAway.Round(time.Millisecond))
	case s.Epoch == 0:
		return fmt.Errorf("there is no view; %d of %d newcomers are there%s", len(s.Waiting)+1, p.policy.StartWorkers, unheard(s.Unheard))
	case s.Full:
		return fmt.Errorf("view %d has %d members, %d wait: %w", s.Epoch, len(s.Members), len(s.Waiting)+1, ErrFull)
	}
	return fmt.Errorf("view %d has %d members, %d wait", s.Epoch, len(s.Members), len(s.Waiting)+1)
}

// unheard names newcomers that are not heard: the first of many.
func unheard(list []Member) string {
	const most = 4
	text := ""
	for i, m := range list[:min(len(list), most)] {
		text += [...]string{"; not heard: ", ", "}[min(i, 1)] + m.Name.String()
	}
	if n := len(list) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Views walks the views with this process, in their order, from the one that Join waited for. It is to be walked once. It ends without
// an error after Leave and Close; else its last pair is the error that ended the membership: *OutError, ErrTooFew, ErrViewLimit,
// ErrNoQuorum, protocol.ErrUnavailable. Of views that nobody walked, the last 64 are kept.
func (p *Membership) Views() iter.Seq2[View, error] {
	return func(yield func(View, error) bool) {
		if p.walked.Swap(true) {
			yield(View{}, errors.New("cluster: Views may be walked once"))
			return
		}
		for {
			p.mu.Lock()
			var v View
			next := len(p.views) > 0
			if next {
				v = p.views[0]
				p.views = p.views[1:]
			}
			ended, err := p.ended, p.err
			p.mu.Unlock()
			switch {
			case next:
				if !yield(v, nil) {
					return
				}
			case ended:
				if err != nil {
					yield(View{}, err)
				}
				return
			default:
				<-p.changed
			}
		}
	}
}

// Why is what this process last took a member for lost for, such as "silent for 2.1s, of a budget of 2s; nobody asked hears it";
// empty if it never did.
func (p *Membership) Why(n protocol.Name) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.verdicts[n]
}

// Suspect is a carrier's evidence that something is wrong with a member. It is probed at once, and convicted if nobody hears it.
func (p *Membership) Suspect(n protocol.Name, why error) {
	_, _ = p.loop.Call(context.Background(), Suspect{n, sentence(why)}) // an ended membership has nobody to suspect
}

// Died is proof that a member's process ended, from who started it.
func (p *Membership) Died(n protocol.Name, why error) {
	_, _ = p.loop.Call(context.Background(), Died{n, sentence(why)})
}

func sentence(err error) string {
	if err == nil {
		return "no reason was given"
	}
	return err.Error()
}

// Leave asks to leave the group, and returns when the view without this member is installed. If ctx ends first, for example because the
// others would be fewer than MinWorkers, the wish stands, and this process is a member still.
func (p *Membership) Leave(ctx context.Context) error {
	_, err := p.loop.Call(ctx, Leave{})
	if err != nil && ctx.Err() != nil {
		s, look := p.Status(context.WithoutCancel(ctx))
		if look == nil {
			return fmt.Errorf("cluster: leave of %v: view %d of %d members still has it, MinWorkers is %d: %w", p.self, s.Epoch, len(s.Members),
				p.policy.MinWorkers, err)
		}
	}
	if err == nil {
		<-p.done
	}
	return err
}

// Moved says that this process is reached at another address. The view does not change: the others learn it from the store, and the next
// view has it. An ended membership has nobody to tell.
func (p *Membership) Moved(addr string) {
	_, _ = p.loop.Call(context.Background(), Move{addr})
}

// Status says what this process knows of the group now.
func (p *Membership) Status(ctx context.Context) (Status, error) {
	got, err := p.loop.Call(ctx, Look{})
	if err != nil {
		return Status{}, fmt.Errorf("cluster: status of %v: %w", p.self, err)
	}
	s := got.(Status)
	for i := range s.Members {
		q := &s.Members[i]
		if at := p.s.Heard(q.Name); !at.IsZero() && q.Heard > 0 {
			q.Heard = min(q.Heard, max(time.Since(at), 0))
		}
	}
	return s, nil
}

// Close ends the membership at once, without leaving first. The others take it for proof that this member is gone. It waits until
// nothing of the membership runs any more.
func (p *Membership) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := p.loop.Stop(ctx)
	<-p.done
	if errors.Is(err, run.ErrNoExit) {
		return err
	}
	return nil
}

// finish gives the lease back when the machine has ended.
func (p *Membership) finish() {
	defer close(p.done)
	err := p.loop.Wait()
	p.mu.Lock()
	if !p.ended {
		p.ended, p.err = true, err
	}
	stop := p.preparing
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	p.wg.Wait()
	if l := p.ears.store.lease; l != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := p.meta.Revoke(ctx, Lease(l)); err != nil {
			p.policy.Log.Info("cluster: the lease was not given back, it ends by itself", "member", p.self.String(), "err", err.Error())
		}
	}
	p.signal()
}

func (p *Membership) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// reported takes the machine's facts, on the loop's goroutine.
func (p *Membership) reported(fact any) {
	log := p.policy.Log
	switch f := fact.(type) {
	case Installed:
		for _, m := range f.View.Members {
			p.know(m.Name, m.Addr)
		}
		log.Info("cluster: view", "member", p.self.String(), "epoch", f.View.Epoch, "rank", f.View.Self, "size", len(f.View.Members), "by", f.By.String())
		p.mu.Lock()
		p.views = append(p.views, f.View)
		if len(p.views) > keptViews {
			p.views = p.views[1:]
		}
		stop := p.preparing
		p.preparing = nil
		p.mu.Unlock()
		if stop != nil {
			stop()
		}
		p.signal()
	case Located:
		p.know(f.Name, f.Addr)
	case Convicted:
		p.mu.Lock()
		if len(p.verdicts) >= 4*MaxWorkers { // of incarnations that are long gone
			clear(p.verdicts)
		}
		p.verdicts[f.Name] = cmp.Or(f.Why, f.How)
		p.mu.Unlock()
		log.Warn("cluster: member lost", "member", p.self.String(), "epoch", f.Epoch, "lost", f.Name.String(), "how", f.How, "why", f.Why,
			"silence", f.Silence, "budget", f.Budget)
	case MetaAway:
		log.Warn("cluster: a change of the view waits for the metadata store", "member", p.self.String(), "for", f.For.Round(time.Second))
	case Expired:
		log.Info("cluster: a member's lease ended", "member", p.self.String(), "of", f.Name.String())
	case Asked:
		p.prepare(f)
	case Past:
		if p.policy.Forget != nil {
			p.policy.Forget(f.Name)
		}
	case Ended:
		if f.Err != nil {
			log.Warn("cluster: no member any more", "member", p.self.String(), "err", f.Err.Error())
		} else {
			log.Info("cluster: left", "member", p.self.String())
		}
		p.mu.Lock()
		p.ended, p.err = true, f.Err
		p.mu.Unlock()
		p.signal()
	}
}

func (p *Membership) know(n protocol.Name, addr string) {
	if n == p.self || addr == "" {
		return
	}
	if err := p.s.Know(n, addr); err != nil {
		p.policy.Log.Warn("cluster: a member's address is no use", "member", p.self.String(), "of", n.String(), "addr", addr, "err", err.Error())
	}
}

// prepare has the carrier stop, and votes then.
func (p *Membership) prepare(f Asked) {
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	stop := p.preparing
	p.preparing = cancel
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
	p.wg.Go(func() {
		defer cancel()
		report, err := p.policy.Prepare(ctx, f.Change)
		if err == nil && len(report) > maxReport {
			err = fmt.Errorf("the report has %d bytes, want at most %d", len(report), maxReport)
		}
		if err != nil {
			if ctx.Err() == nil {
				p.policy.Log.Warn("cluster: no vote: the carrier did not stop", "member", p.self.String(), "epoch", f.Change.Epoch, "err", err.Error())
			}
			return
		}
		_, _ = p.loop.Call(ctx, Prepared{f.Round, report})
	})
}
