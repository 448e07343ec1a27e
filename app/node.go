package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivium-ml/trivium/cluster"
	"github.com/trivium-ml/trivium/cluster/fleet"
	"github.com/trivium-ml/trivium/cluster/launch"
	"github.com/trivium-ml/trivium/cluster/meta/etcd"
	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/internal/quantity"
	"github.com/trivium-ml/trivium/observe/host"
	"github.com/trivium-ml/trivium/train/processes"
	"github.com/trivium-ml/trivium/transport"
)

// nodeVerb lends this machine to a cluster.
type nodeVerb struct {
	Join   string `required:"" placeholder:"ADDR" help:"The coordinator, as host:port (PROGRAM up prints it)."`
	Token  string `required:"" placeholder:"TOKEN" help:"The cluster's token, or @FILE that holds it."`
	Cores  amount `placeholder:"N" help:"Cores to lend (default: all that this process may use)."`
	Memory amount `placeholder:"BYTES" help:"Memory to tell of (default: the machine's, or its control group's)."`
	ID     string `name:"id" placeholder:"NAME" help:"Of this machine in the cluster (default: its host name and a few letters)."`

	EtcdTLS []string `placeholder:"CERT,KEY,CA" help:"Files to speak TLS to the cluster's etcd, where up was given such."`

	lent bool          // it was taken once: from then on it waits for the cluster, whatever becomes of that
	wait time.Duration // before it joined last: 0 once it was taken
}

func (nodeVerb) Help() string {
	return "Runs until it is interrupted; its jobs' processes end with it. The processes are this very program, and a coordinator takes only machines that run the same one as it does."
}

func (v *nodeVerb) Run(ctx context.Context, s *session) error {
	log := slog.New(slog.NewTextHandler(s.err, nil))
	if err := checkCoordinator("--join", v.Join); err != nil {
		return misused(err)
	}
	offer, err := v.offer()
	if err != nil {
		return misused(err)
	}
	token, err := parseToken(v.Token)
	if err != nil {
		return misused(err)
	}
	if v.ID == "" {
		v.ID = nodeID(offer.Host)
	}
	sockets, err := newFolder()
	if err != nil {
		return err
	}
	defer sockets.Close()
	children := housed{launch.NewChildren(), sockets.Path}
	defer children.Close()
	for {
		err := v.belong(ctx, s, log, token, offer, children)
		if ctx.Err() != nil {
			return nil
		}
		var out *cluster.OutError
		var lost *fleet.LostError
		if !errors.As(err, &out) && !errors.As(err, &lost) && !(isLost(err) && (v.wait > 0 || v.lent)) {
			return err
		}
		v.backOff()
		log.Warn("not lent; it joins again", "why", err, "in", v.wait)
		select {
		case <-time.After(v.wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// A housed launcher has its processes keep their sockets in dir. What they leave that are killed goes with it: their names have a part that is
// their job's alone, so that no later process replaces it.
type housed struct {
	launch.Launcher
	dir string
}

// Start implements launch.Launcher.
func (h housed) Start(ctx context.Context, s launch.Spec) (*launch.Process, error) {
	var a processes.Assignment
	err := json.Unmarshal(s.Config, &a)
	if err == nil {
		a.Network.Dir = h.dir
		s.Config, err = json.Marshal(&a)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the assignment: %w", s.Name, err)
	}
	return h.Launcher.Start(ctx, s)
}

// backOff has it wait longer each time that it is not taken.
func (v *nodeVerb) backOff() { v.wait = min(2*v.wait+time.Second, 30*time.Second) }

// taken notes that it is lent: when it is lost, it comes back soon.
func (v *nodeVerb) taken() { v.lent, v.wait = true, 0 }

// belong is one time in the cluster, from its door on: who comes back after the coordinator has begun anew is told the new addresses.
func (v *nodeVerb) belong(ctx context.Context, s *session, log *slog.Logger, token trust.Token, offer fleet.Offer, children launch.Launcher) error {
	joining, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	door := trust.JoinOptions{Name: trust.Name{Role: fleet.NodeRole, ID: v.ID}, Hosts: []string{offer.Addr}}
	self, extra, err := trust.Join(joining, v.Join, token, door)
	if err = joinError(err); err != nil {
		if v.lent { // it is known there: what is refused now, such as while its loss is not noticed, may be taken later
			err = &codedError{Lost, err}
		}
		return err
	}
	var to invitation
	if err := json.Unmarshal(extra, &to); err != nil {
		return fmt.Errorf("the coordinator's invitation: %w", err)
	}
	if to.Build != offer.Build {
		return misusedf("the cluster runs another program (build %.12s, this is %.12s): start the same one on all machines", to.Build, offer.Build)
	}
	config, err := v.etcdConfig(to.EtcdSpeaks, self)
	if err != nil {
		return misused(err)
	}
	store, closer, err := etcd.Open(joining, to.Etcd, config, metaPrefix, log)
	if err != nil {
		return &codedError{Lost, fmt.Errorf("the cluster's metadata store: %w", err)}
	}
	defer closer.Close()
	keeping, end := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { self.Keep(keeping, v.Join, token, door, log) })
	defer kept.Wait()
	defer end()
	fmt.Fprintf(s.out, "%s lends %d cores and %s to the cluster at %s\n", v.ID, offer.Cores, quantity.Bytes(offer.Memory), v.Join)
	return asLost(v.lend(ctx, s, log, self, to, store, offer, children))
}

// etcdConfig is how this machine speaks to the cluster's metadata store.
func (v *nodeVerb) etcdConfig(speaks etcdSecurity, self *trust.Identity) (*tls.Config, error) {
	switch {
	case speaks != foreignTLS && len(v.EtcdTLS) > 0:
		return nil, fmt.Errorf("--etcd-tls: this cluster's etcd takes %s: leave it out", speaks)
	case speaks == clusterTLS:
		return self.ClientConfig(trust.Name{}), nil
	case speaks == plainEtcd:
		return nil, nil
	case len(v.EtcdTLS) == 0:
		return nil, errors.New("--etcd-tls: this cluster's etcd has certificates of its own: give the files CERT,KEY,CA by which to speak to it")
	}
	return etcdTLS(v.EtcdTLS)
}

func isLost(err error) bool {
	var coded *codedError
	return errors.As(err, &coded) && coded.code == Lost
}

func asLost(err error) error {
	var refused *fleet.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return misused(err)
	}
	return &codedError{Lost, err}
}

// lend is one incarnation of this machine in the cluster.
func (v *nodeVerb) lend(ctx context.Context, s *session, log *slog.Logger, self *trust.Identity, to invitation, store cluster.Meta, offer fleet.Offer,
	children launch.Launcher,
) error {
	network := transport.TCP{
		Listen: net.JoinHostPort(offer.Addr, "0"), TLS: self.PeerConfig(),
		Verify: func(n transport.Name, cs tls.ConnectionState) error {
			return trust.VerifyName(cs, trust.Name{Role: n.Role, ID: n.ID})
		},
	}
	name := transport.Name{Role: fleet.NodeRole, ID: self.Name.ID, Incarnation: uint64(time.Now().UnixMilli())}
	port, err := network.Open(ctx, name, transport.Options{Log: log})
	if err != nil {
		return err
	}
	defer port.Close()
	if err := port.Know(to.Coordinator, to.Addr); err != nil {
		return err
	}
	members, err := enter(ctx, store, port, to.Addr, offer.Host, log)
	if err != nil {
		return err
	}
	defer members.Close()
	stream, err := port.Stream(fleet.StreamName, transport.StreamOptions{MaxFrame: fleet.MaxMessage})
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		led := false
		for view, err := range members.Views() {
			before := led
			led = slices.ContainsFunc(view.Members, func(m cluster.Member) bool { return m.Name == to.Coordinator })
			if err == nil && before && !led { // the port forgets it, and tells nobody of its link
				err = &codedError{Lost, fmt.Errorf("the group goes on without the coordinator %v", to.Coordinator)}
			}
			if err != nil {
				ended <- err
				cancel(fleet.ErrOut)
				return
			}
		}
	}()
	node := fleet.Node{
		Stream: stream, Coordinator: to.Coordinator, Launcher: children, Offer: offer, Log: log,
		Said: func(lost error) {
			if lost == nil {
				v.taken()
				fmt.Fprintf(s.out, "lent to %v\n", to.Coordinator)
			}
		},
	}
	err = node.Run(inner)
	if ctx.Err() != nil {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := members.Leave(leaving); err != nil {
			log.Warn("left without a word", "error", err)
		}
		return nil
	}
	select {
	case lost := <-ended:
		if lost != nil {
			return lost
		}
	default:
	}
	return err
}

// enterWait is longer than the group has one wait that was lost again and again, which is a minute.
const enterWait = 90 * time.Second

// enter makes this machine a member of the group of machines. One whose knock nobody hears, as behind a firewall, would wait for ever, and
// so would one too many.
func enter(ctx context.Context, store cluster.Meta, port transport.Port, coordinator, host string, log *slog.Logger) (*cluster.Membership, error) {
	group, err := port.Stream(fleet.GroupName+" members", transport.StreamOptions{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, enterWait,
		fmt.Errorf("not let in within %v: does a firewall keep this machine from the coordinator's port, %s?", enterWait, coordinator))
	defer cancel()
	self := cluster.Member{Name: port.Name(), Addr: port.Addr(), Info: map[string]string{"host": host}}
	members, err := cluster.Join(ctx, store, group, self, fleet.Policy(port, log))
	return members, spare(err)
}

// spare says of a machine that found no place, in enterWait, that this is why it is not let in.
func spare(err error) error {
	if errors.Is(err, cluster.ErrFull) {
		return fmt.Errorf("not let in within %v: the cluster has as many machines as it may, at most %d", enterWait, cluster.MaxWorkers-1)
	}
	return err
}

// offer says what this machine lends.
func (v *nodeVerb) offer() (fleet.Offer, error) {
	b, err := thisBuild()
	if err != nil {
		return fleet.Offer{}, err
	}
	facts, err := host.Describe(host.Options{})
	if err != nil {
		return fleet.Offer{}, err
	}
	o := fleet.Offer{Host: facts.Name, Cores: int(v.Cores), Memory: int64(v.Memory), Build: b.Binary, Platform: b.Platform}
	if o.Host == "" {
		if o.Host, err = os.Hostname(); err != nil {
			return o, err
		}
	}
	if o.Cores == 0 {
		o.Cores = runtime.GOMAXPROCS(0)
	}
	if o.Memory == 0 {
		o.Memory = int64(facts.MemoryBytes)
		if m := int64(facts.MemoryLimit); m > 0 && m < o.Memory {
			o.Memory = m
		}
	}
	if o.Addr, err = reachable(v.Join); err != nil {
		return o, fmt.Errorf("--join %s: %w", v.Join, err)
	}
	return o, nil
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9-]+`)

// nodeID makes a name for this machine: two agents of one host have two.
func nodeID(host string) string {
	host = strings.Trim(notInID.ReplaceAllString(host, "-"), "-")
	if host == "" {
		host = "node"
	}
	return host[:min(40, len(host))] + "-" + strings.ToLower(rand.Text()[:5])
}
