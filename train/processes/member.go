package processes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/meta"
	"github.com/trivium-ml/trivium/train"
	"github.com/trivium-ml/trivium/transport"
)

// Silence is how long a process may say nothing. The default of cluster.Policy is for groups that go on without who is lost; a job ends, so that
// it waits longer for one that a crowded machine keeps from running. A process that has ended is found at once all the same.
const Silence = 2 * time.Second

// joinWait is how long the workers, all of which run, may take to find one another: as long as a machine that comes to a cluster, and less
// than Driver.Finish, so that a job that is interrupted meanwhile ends as that.
const joinWait = 90 * time.Second

var errApart = fmt.Errorf("the workers did not all reach one another within %v: does a firewall keep one from another's ports?", joinWait)

// join becomes a member of the job's group, waits until all workers are, and fills in env's place. From then on the loss of a member
// ends training. What it opens, leave closes. A worker may reach the driver and not another worker, which nobody else would notice.
func (w *worker) join(ctx context.Context, env *train.Env) error {
	views, err := w.port.Stream(viewStream, transport.StreamOptions{})
	if err != nil {
		return err
	}
	metas, err := w.port.Stream(metaStream, transport.StreamOptions{})
	if err != nil {
		return err
	}
	w.meta = meta.NewClient(metas, w.a.Driver)
	self := cluster.Member{Name: w.port.Name(), Addr: w.port.Addr()}
	limit := joinWait
	if w.a.Serves() {
		limit += tellWait // servers end after the workers, of whom the job is
	}
	joining, cancel := context.WithTimeoutCause(ctx, limit, errApart)
	defer cancel()
	m, err := cluster.Join(joining, w.meta, views, self, cluster.Policy{
		StartWorkers: w.a.Workers + w.a.Servers, MaxWorkers: w.a.Workers + w.a.Servers, Forget: w.port.Forget, Budget: Silence,
	})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	w.view.Lock()
	w.view.members = m
	w.view.Unlock()
	first := make(chan cluster.View, 1)
	w.following.Go(func() { w.follow(m, first) })
	select {
	case v, ok := <-first:
		if !ok {
			return context.Cause(ctx)
		}
		return w.place(v, env)
	case <-joining.Done():
		return context.Cause(joining)
	}
}

// leave ends what join began.
func (w *worker) leave() {
	w.view.Lock()
	m := w.view.members
	w.view.Unlock()
	var errs []error
	if m != nil {
		errs = append(errs, m.Close())
		w.following.Wait()
	}
	if w.meta != nil {
		errs = append(errs, w.meta.Close())
	}
	if err := errors.Join(errs...); err != nil {
		w.log.Warn("left without a word", "error", err)
	}
}

// place fills in this worker's place among the members of v: ranks are the workers' numbers, whatever order they joined in.
func (w *worker) place(v cluster.View, env *train.Env) error {
	env.Rank, env.Epoch, env.Peers = w.a.Index, v.Epoch, make([]transport.Name, w.a.Workers)
	env.Servers = make([]transport.Name, w.a.Servers)
	if w.a.Serves() {
		env.Rank -= w.a.Workers
	}
	hosts := make([]string, w.a.Workers)
	for _, m := range v.Members {
		among := env.Peers
		if m.Name.Role == "server" {
			among = env.Servers
		}
		i, err := strconv.Atoi(m.Name.ID)
		if err != nil || i < 0 || i >= len(among) {
			return fmt.Errorf("processes: %v is a member of the job's group, and no worker of it", m.Name)
		}
		among[i] = m.Name
		if m.Name.Role != "server" {
			hosts[i] = transport.HostOf(m.Addr)
		}
		if err := w.port.Know(m.Name, m.Addr); err != nil {
			return err
		}
	}
	if !w.a.Network.Apart { // else each counts as if it had a host of its own
		env.Hosts = byHost(hosts)
	}
	return nil
}

// byHost are the ranks by their hosts, in the order of each host's first; nil where there is one host, or one is not known.
func byHost(hosts []string) (ranks [][]int) {
	var names []string
	for rank, h := range hosts {
		i := slices.Index(names, h)
		if i < 0 {
			i = len(names)
			names, ranks = append(names, h), append(ranks, nil)
		}
		ranks[i] = append(ranks[i], rank)
	}
	if len(names) == 1 || slices.Contains(names, "") {
		return nil
	}
	return ranks
}

// follow hands on the first view that has all workers, and ends training when a later one lacks one.
func (w *worker) follow(m *cluster.Membership, first chan<- cluster.View) {
	defer close(first)
	var whole *cluster.View
	for v, err := range m.Views() {
		switch {
		case err != nil:
			w.lose(err)
			return
		case whole == nil && len(v.Members) == w.a.Workers+w.a.Servers && v.Self >= 0:
			whole = &v
			first <- v
		case whole != nil:
			for _, old := range whole.Members {
				if !contains(v.Members, old.Name) {
					why := fmt.Sprintf("it is not in view %d any more", v.Epoch)
					if verdict := m.Why(old.Name); verdict != "" {
						why += ": " + verdict
					}
					w.lose(&train.LostError{Peer: old.Name, Why: why})
					return
				}
			}
		}
	}
}

func contains(members []cluster.Member, n transport.Name) bool {
	for _, m := range members {
		if m.Name == n {
			return true
		}
	}
	return false
}
