package ps

import (
	"fmt"
	"math"

	"github.com/trivium-ml/trivium/wire"
)

// A Config is what the directory decides: who takes part, and which tables there are. Only the directory writes it; a later version
// holds all that an earlier one did.
type Config struct {
	Version uint64
	Epoch   Epoch
	Place   uint64   // the hash of the directory's placement
	Session uint64   // of the directory
	Clients []Member // by number, which is never used again
	Tables  []Definition
	From    file // the manifest of the snapshot that the job goes on from; no Key: it begins anew
	Cut     Cut
}

// A Member is a client.
type Member struct {
	Name    Name
	Session uint64 // 0: not here yet
	Start   Clock  // its first round
	State   State
	End     Clock // of an Ended one: its rounds from here on do not count
}

// A State is that of a client.
type State uint8

// The states.
const (
	Awaited State = iota // it counts from the start, and has not come yet
	Active
	Ending // lost: how far it came is being found out
	Ended
)

func (s State) String() string { return name(s, "awaited", "active", "ending", "ended") }

// A Definition is a table with its place.
type Definition struct {
	ID     uint32
	Spec   Spec
	Owners []uint16 // the lane of each shard; nil: as Placement places them, so that an install does not grow with the shards
	By     Name     // who defined it first
	Saved  bool     // its shards begin with what the snapshot Config.From has of this table; else as Init says
}

// A Cut is a snapshot under way.
type Cut struct {
	ID uint64
	At Clock // 0: none
}

func appendName(p []byte, n Name) []byte {
	p = wire.AppendString(p, n.Job)
	p = wire.AppendString(p, n.Role)
	p = wire.AppendString(p, n.ID)
	return wire.AppendUvarint(p, n.Incarnation)
}

func readName(r *wire.Reader) Name {
	return Name{Job: r.String("job", 256), Role: r.String("role", 256), ID: r.String("id", 256), Incarnation: r.Uvarint("incarnation", math.MaxUint64)}
}

func (c *Config) append(p []byte) []byte {
	p = wire.AppendUvarint(p, c.Version)
	p = wire.AppendUvarint(p, uint64(c.Epoch))
	p = wire.AppendUint64(p, c.Place)
	p = wire.AppendUint64(p, c.Session)
	p = wire.AppendUvarint(p, uint64(len(c.Clients)))
	for i := range c.Clients {
		m := &c.Clients[i]
		p = appendName(p, m.Name)
		p = wire.AppendUint64(p, m.Session)
		p = wire.AppendUvarint(p, uint64(m.Start))
		p = append(p, byte(m.State))
		p = wire.AppendUvarint(p, uint64(m.End))
	}
	p = wire.AppendUvarint(p, uint64(len(c.Tables)))
	for i := range c.Tables {
		p = c.Tables[i].append(p)
	}
	p = c.From.append(p)
	p = wire.AppendUvarint(p, c.Cut.ID)
	return wire.AppendUvarint(p, uint64(c.Cut.At))
}

func (d *Definition) append(p []byte) []byte {
	p = wire.AppendUvarint(p, uint64(d.ID))
	p = d.Spec.append(p)
	p = wire.AppendUvarint(p, uint64(len(d.Owners)))
	for _, o := range d.Owners {
		p = wire.AppendUvarint(p, uint64(o))
	}
	p = appendName(p, d.By)
	return wire.AppendBools(p, d.Saved)
}

// maxDefinitions is how many bytes the definitions of all tables may have: a Config goes in one frame, whose rest is for its clients.
const maxDefinitions = 3 << 18

// definitions returns what the definitions of tables have with one more, or that it is too much.
func definitions(d *Definition, others int) (int, error) {
	n := others + len(d.append(nil))
	if n > maxDefinitions {
		return others, fmt.Errorf("ps: table %q: with it the definitions of all tables have %d bytes, and at most %d are provided for", d.Spec.Name, n, maxDefinitions)
	}
	return n, nil
}

func readConfig(r *wire.Reader) (c Config) {
	c.Version = r.Uvarint("version", math.MaxUint64)
	c.Epoch = Epoch(r.Uvarint("epoch", math.MaxUint64))
	c.Place = r.Uint64("placement")
	c.Session = r.Uint64("directory")
	for n := r.Uvarint("clients", MaxClients); n > 0 && r.Err() == nil; n-- {
		m := Member{Name: readName(r), Session: r.Uint64("session"), Start: readClock(r, "start")}
		m.State, m.End = State(r.Uvarint("state", uint64(Ended))), readClock(r, "end")
		c.Clients = append(c.Clients, m)
	}
	for n := r.Uvarint("tables", maxTables); n > 0 && r.Err() == nil; n-- {
		d := Definition{ID: uint32(r.Uvarint("table", maxTables)), Spec: readSpec(r)}
		if r.Err() == nil {
			if err := d.Spec.validate(); err != nil {
				r.Fail("table", err)
			}
		}
		for k := r.Uvarint("owners", maxShards); k > 0 && r.Err() == nil; k-- {
			d.Owners = append(d.Owners, uint16(r.Uvarint("owner", maxServers*MaxLanes)))
		}
		d.By = readName(r)
		r.Bools("saved", &d.Saved)
		if d.ID != uint32(len(c.Tables)) && r.Err() == nil {
			r.Fail("table", fmt.Errorf("number %d at place %d", d.ID, len(c.Tables)))
		}
		c.Tables = append(c.Tables, d)
	}
	c.From = readFile(r)
	c.Cut.ID = r.Uvarint("cut", math.MaxUint64)
	c.Cut.At = readClock(r, "cut clock")
	return c
}

// install tells a member the configuration. It is sent again until the member accepts that version or a later one.
type install struct {
	lane     bool   // it is for one
	to       uint16 // which
	accepted uint64 // the version that the lane has accepted, as far as the directory has heard: one that lacks it has lost what it held
	config   *Config
}

func (m *install) Size() int { return 64 + 48*len(m.config.Clients) + 256*len(m.config.Tables) }

func (m *install) appendHead(p []byte) []byte {
	return wire.AppendUvarint(wire.AppendUvarint(p, uint64(m.to)), m.accepted)
}

func decodeInstall(head, payload []byte) (*install, error) {
	h := wire.NewReader("ps install", head)
	m := &install{to: uint16(h.Uvarint("lane", maxServers*MaxLanes)), accepted: h.Uvarint("accepted", math.MaxUint64)}
	if err := h.Done(); err != nil {
		return nil, err
	}
	r := wire.NewReader("ps config", payload)
	c := readConfig(r)
	m.config = &c
	return m, r.Done()
}

// accept answers install.
type accept struct {
	version  uint64
	lane     uint16 // of a server
	client   uint16 // or a client, with isClient
	isClient bool
	session  uint64
	refused  bool    // the new member's start, or the cut, is past already
	forgot   bool    // the lane had accepted an earlier version, and has lost what it held
	text     string  // fatal: why the version cannot be installed
	m, hi    Clock   // of the lane: its min clock, and the highest clock that anyone has; of the client: its highest
	ends     []Clock // by client: how far it came here; nil from clients
}

func (m *accept) Size() int { return 40 + 8*len(m.ends) + len(m.text) }

func (m *accept) append(p []byte) []byte {
	p = wire.AppendUvarint(p, m.version)
	p = wire.AppendUvarint(p, uint64(m.lane))
	p = wire.AppendUvarint(p, uint64(m.client))
	p = wire.AppendBools(p, m.isClient, m.refused, m.forgot)
	p = wire.AppendUint64(p, m.session)
	p = wire.AppendString(p, m.text)
	p = wire.AppendUvarint(p, uint64(m.m))
	p = wire.AppendUvarint(p, uint64(m.hi))
	p = wire.AppendUvarint(p, uint64(len(m.ends)))
	for _, e := range m.ends {
		p = wire.AppendUvarint(p, uint64(e))
	}
	return p
}

func decodeAccept(payload []byte) (*accept, error) {
	r := wire.NewReader("ps accept", payload)
	m := &accept{version: r.Uvarint("version", math.MaxUint64), lane: uint16(r.Uvarint("lane", maxServers*MaxLanes)), client: uint16(r.Uvarint("client", MaxClients))}
	r.Bools("flags", &m.isClient, &m.refused, &m.forgot)
	m.session = r.Uint64("session")
	m.text = r.String("text", 1<<15)
	m.m, m.hi = readClock(r, "min clock"), readClock(r, "highest clock")
	for n := r.Uvarint("ends", MaxClients); n > 0 && r.Err() == nil; n-- {
		m.ends = append(m.ends, readClock(r, "end"))
	}
	return m, r.Done()
}

// hello asks the directory to let a client in, with its tables. It is sent again until the client is told its number.
type hello struct {
	name    Name
	session uint64
	specs   []Spec
}

func (m *hello) Size() int { return 64 + 200*len(m.specs) }

func (m *hello) append(p []byte) []byte {
	p = appendName(p, m.name)
	p = wire.AppendUint64(p, m.session)
	p = wire.AppendUvarint(p, uint64(len(m.specs)))
	for i := range m.specs {
		p = m.specs[i].append(p)
	}
	return p
}

func readSpecs(r *wire.Reader) (specs []Spec) {
	for n := r.Uvarint("tables", maxTables); n > 0 && r.Err() == nil; n-- {
		s := readSpec(r)
		if r.Err() == nil {
			if err := s.validate(); err != nil {
				r.Fail("table", err)
			}
		}
		specs = append(specs, s)
	}
	return specs
}

func decodeHello(payload []byte) (*hello, error) {
	r := wire.NewReader("ps hello", payload)
	m := &hello{name: readName(r), session: r.Uint64("session")}
	m.specs = readSpecs(r)
	return m, r.Done()
}

// create asks the directory for a table.
type create struct {
	client  uint16
	session uint64
	req     uint64
	spec    Spec
}

func (m *create) Size() int { return 240 }

func (m *create) append(p []byte) []byte {
	p = wire.AppendUvarint(p, uint64(m.client))
	p = wire.AppendUint64(p, m.session)
	p = wire.AppendUvarint(p, m.req)
	return m.spec.append(p)
}

func decodeCreate(payload []byte) (*create, error) {
	r := wire.NewReader("ps create", payload)
	m := &create{client: uint16(r.Uvarint("client", MaxClients)), session: r.Uint64("session"), req: r.Uvarint("request", math.MaxUint64)}
	m.spec = readSpec(r)
	if r.Err() == nil {
		if err := m.spec.validate(); err != nil {
			r.Fail("table", err)
		}
	}
	return m, r.Done()
}

// progress tells the directory what a client's workers were at the cut.
type progress struct {
	cut     uint64
	client  uint16
	session uint64
	states  [][]byte
	text    string // why there are none
}

func (m *progress) Size() int {
	n := 32 + len(m.text)
	for _, s := range m.states {
		n += 4 + len(s)
	}
	return n
}

func (m *progress) append(p []byte) []byte {
	p = wire.AppendUvarint(p, m.cut)
	p = wire.AppendUvarint(p, uint64(m.client))
	p = wire.AppendUint64(p, m.session)
	p = wire.AppendUvarint(p, uint64(len(m.states)))
	for _, s := range m.states {
		p = wire.AppendBytes(p, s)
	}
	return wire.AppendString(p, m.text)
}

// maxStates is the largest size in bytes of what all workers of a client keep in a snapshot: it travels in one frame.
const maxStates = 1 << 19

func decodeProgress(payload []byte) (*progress, error) {
	r := wire.NewReader("ps progress", payload)
	m := &progress{cut: r.Uvarint("cut", math.MaxUint64), client: uint16(r.Uvarint("client", MaxClients)), session: r.Uint64("session")}
	for n := r.Uvarint("workers", 1<<16); n > 0 && r.Err() == nil; n-- {
		m.states = append(m.states, r.Bytes("state", maxStates))
	}
	m.text = r.String("text", 1<<15)
	return m, r.Done()
}

// saved tells the directory where a lane wrote what it has of the cut: one file, however many shards it is of.
type saved struct {
	cut   uint64
	lane  uint16
	text  string // why it failed
	index file   // no Key: the lane has no shards
}

func (m *saved) Size() int { return 128 + len(m.text) }

func (m *saved) append(p []byte) []byte {
	p = wire.AppendUvarint(p, m.cut)
	p = wire.AppendUvarint(p, uint64(m.lane))
	p = wire.AppendString(p, m.text)
	return m.index.append(p)
}

func decodeSaved(payload []byte) (*saved, error) {
	r := wire.NewReader("ps saved", payload)
	m := &saved{cut: r.Uvarint("cut", math.MaxUint64), lane: uint16(r.Uvarint("lane", maxServers*MaxLanes)), text: r.String("text", 1<<15)}
	m.index = readFile(r)
	return m, r.Done()
}
