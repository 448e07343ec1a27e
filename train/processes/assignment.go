package processes

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/trivium-ml/trivium/cluster/trust"
	"github.com/trivium-ml/trivium/transport"
)

// An Assignment is what a worker is told when it is started: its whole configuration. It holds secrets, and travels through a pipe.
type Assignment struct {
	Run     string `json:"run"`
	Index   int    `json:"index"` // of this worker: its rank; servers come after the workers
	Workers int    `json:"workers"`
	Servers int    `json:"servers,omitempty"` // that train nothing

	Job             json.RawMessage   `json:"job"`
	Topology        string            `json:"topology"`
	Options         json.RawMessage   `json:"options,omitempty"`
	Threads         int               `json:"threads,omitempty"`
	Adapt           bool              `json:"adapt,omitempty"` // see Driver
	CheckpointEvery int64             `json:"checkpoint_every,omitempty"`
	Resume          string            `json:"resume,omitempty"` // a checkpoint in the driver's store
	Saves           bool              `json:"saves,omitempty"`  // the driver has a store
	Notes           map[string]string `json:"notes,omitempty"`
	Shipped         bool              `json:"shipped,omitempty"` // the data comes from the driver
	Summed          bool              `json:"summed,omitempty"`  // see Driver

	Driver     transport.Name `json:"driver"`
	DriverAddr string         `json:"driver_addr"`
	Network    Network        `json:"network"`
	Start      time.Time      `json:"start"` // of the run: what times count from
}

// Serves reports whether this process trains nothing, and only serves.
func (a *Assignment) Serves() bool { return a.Index >= a.Workers }

// Name is the worker's on the network: of the driver's job there, for two runs may have one name.
func (a *Assignment) Name() transport.Name {
	if a.Serves() {
		return transport.Name{Job: a.Driver.Job, Role: "server", ID: fmt.Sprint(a.Index - a.Workers), Incarnation: 1}
	}
	return transport.Name{Job: a.Driver.Job, Role: "worker", ID: fmt.Sprint(a.Index), Incarnation: 1}
}

// A Network says how a worker reaches the others: by unix sockets and shared memory on one host, and, where Listen is set, by TCP too.
type Network struct {
	Dir      string `json:"dir,omitempty"`      // of unix sockets; empty: the user's own, or that of whoever starts the process
	Secret   []byte `json:"secret,omitempty"`   // that all processes of the job share
	Listen   string `json:"listen,omitempty"`   // host:port for peers on other hosts; empty: there are none
	Identity []byte `json:"identity,omitempty"` // trust.Identity.Encode: TCP speaks TLS; nil: it does not
	Apart    bool   `json:"apart,omitempty"`    // the other workers are reached by TCP though they are on this host: for measurements
}

// Near reports whether all workers are on this host.
func (n Network) Near() bool { return n.Listen == "" || n.Apart }

// Open returns the network.
func (n Network) Open() (transport.Network, error) {
	local := transport.Unix{Dir: n.Dir}
	if n.Listen == "" {
		return local, nil
	}
	tcp := transport.TCP{Listen: n.Listen}
	if len(n.Identity) > 0 {
		id, err := trust.DecodeIdentity(n.Identity)
		if err != nil {
			return nil, err
		}
		tcp.TLS = id.PeerConfig()
		tcp.Verify = func(peer transport.Name, cs tls.ConnectionState) error { return trust.VerifyName(cs, CertName(peer)) }
	}
	return transport.Nearest{Unix: local, TCP: tcp, Apart: n.Apart}, nil
}

// CertName is the name of a process of a job in its certificate. One that would be too long for that has a hash in the job's place.
func CertName(n transport.Name) trust.Name {
	job := n.Job
	if len(job)+len(n.ID) > 60 {
		sum := sha256.Sum256([]byte(job))
		job = hex.EncodeToString(sum[:16])
	}
	return trust.Name{Role: n.Role, ID: job + "." + n.ID}
}

// Options are those of a port on the network. Where all are on this host, no firewall keeps who dials waiting, and a process that is gone does
// not either: one that does not answer stands still, as the driver between a Ctrl-Z and fg, and may go on. By TCP each dial is short: while one
// waits in vain, what the other end dials is refused as busy.
func (n Network) Options(log *slog.Logger) transport.Options {
	o := transport.Options{Secret: n.Secret, Log: log}
	if n.Listen == "" {
		o.Handshake = joinWait
	}
	return o
}
