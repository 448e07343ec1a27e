package ps

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

// A Manifest names what a snapshot holds. It is written last: without it there is no snapshot.
//
// Since format 2 it names the indexes that lanes wrote, and they the objects: neither a message nor the manifest grows with the number of
// shards. In format 1 it names the objects itself.
type Manifest struct {
	Format  string          `json:"format"`
	Clock   Clock           `json:"clock"` // it holds exactly the rounds below
	Tables  []SavedTable    `json:"tables"`
	Indexes []file          `json:"indexes,omitempty"` // of the lanes that have shards
	Workers []SavedProgress `json:"workers"`           // in the order of clients and their workers

	from file // where it lies
}

// A SavedTable is a table of a snapshot.
type SavedTable struct {
	Name    string    `json:"name"`
	Spec    []byte    `json:"spec"`
	Objects []*object `json:"objects,omitempty"` // in format 2 those of the indexes, once they are read
}

// A SavedProgress is what a worker kept for itself at the cut.
type SavedProgress struct {
	Client string `json:"client"`
	Worker int    `json:"worker"`
	State  []byte `json:"state,omitempty"`
}

const (
	manifestFormat  = "trivium ps snapshot 2"
	manifestFormat1 = "trivium ps snapshot 1" // is still read
)

// maxManifest is the largest manifest that is read, in bytes.
const maxManifest = 256 << 20

// ReadManifest reads the manifest at key, which Directory.Snapshot returned, and the indexes that it names, of format 2 or 1. An index that is
// missing, or is not the one that was written, is an error that names it and its checksum.
func ReadManifest(ctx context.Context, s Store, key string) (*Manifest, error) {
	s = boundStore{ctx, s}
	p, err := read(s, key, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(key, p)
	if err != nil {
		return nil, err
	}
	m.from.Key = key
	m.from.sum(p)
	if err := m.fill(s, func(*object) bool { return true }); err != nil {
		return nil, err
	}
	return m, nil
}

// decodeManifest reads the manifest alone.
func decodeManifest(key string, p []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(p, &m); err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", key, err)
	}
	if m.Format != manifestFormat && m.Format != manifestFormat1 {
		return nil, fmt.Errorf("ps: restore %s: want the format %q or %q, found %q", key, manifestFormat, manifestFormat1, m.Format)
	}
	if m.Clock < 0 || len(m.Tables) > maxTables {
		return nil, fmt.Errorf("ps: restore %s: clock %d, %d tables", key, m.Clock, len(m.Tables))
	}
	for i := range m.Tables {
		t := &m.Tables[i]
		if _, err := t.spec(); err != nil {
			return nil, fmt.Errorf("ps: restore %s: %w", key, err)
		}
		for _, o := range t.Objects {
			if o == nil || int(o.Table) != i {
				return nil, fmt.Errorf("ps: restore %s: table %q has an object that is not its own", key, t.Name)
			}
			if err := o.check(len(m.Tables)); err != nil {
				return nil, fmt.Errorf("ps: restore %s: table %q: %w", key, t.Name, err)
			}
		}
	}
	for i := range m.Indexes {
		if err := m.Indexes[i].check(); err != nil {
			return nil, fmt.Errorf("ps: restore %s: index %d: %w", key, i, err)
		}
	}
	return &m, nil
}

// fill reads the indexes: tables then have those of the snapshot's objects that keep says, in their order.
func (m *Manifest) fill(s Store, keep func(o *object) bool) error {
	for i := range m.Tables {
		m.Tables[i].Objects = slices.DeleteFunc(m.Tables[i].Objects, func(o *object) bool { return !keep(o) })
	}
	for i := range m.Indexes {
		p, err := fetch(s, &m.Indexes[i])
		if err != nil {
			return err
		}
		if err := readIndex(m.Indexes[i].Key, p, len(m.Tables), func(o *object) {
			if keep(o) {
				m.Tables[o.Table].Objects = append(m.Tables[o.Table].Objects, o)
			}
		}); err != nil {
			return fmt.Errorf("ps: restore %s: %w", m.Indexes[i].Key, err)
		}
	}
	for i := range m.Tables {
		slices.SortFunc(m.Tables[i].Objects, func(a, b *object) int { return cmp.Compare(a.Lo, b.Lo) })
	}
	return nil
}

func (t *SavedTable) spec() (Spec, error) {
	r := wire.NewReader("ps spec of "+t.Name, t.Spec)
	s := readSpec(r)
	if err := r.Done(); err != nil {
		return s, err
	}
	return s, s.validate()
}

func (d *DirectoryState) propose(c *Config) {
	c.Cut = Cut{ID: d.nextCut, At: d.later()}
	d.nextCut++
	for l := range d.lanes {
		d.lanes[l].saved = nil
	}
	for i := range d.clients {
		d.clients[i].states, d.clients[i].told = nil, false
	}
}

// beginSnapshot begins the first that was asked for, one at a time.
func (d *DirectoryState) beginSnapshot() {
	if len(d.calls) == 0 || d.calls[0].begun || d.err != nil {
		return
	}
	d.calls[0].begun = true
	d.propose(d.change())
	d.spread()
}

// maxMargin is how many rounds a snapshot is put off at most beyond those that a worker may lead.
const maxMargin = 1 << 12

func (d *DirectoryState) endSnapshot() {
	d.margin = 0
	d.change().Cut = Cut{}
	d.spread()
	d.beginSnapshot()
}

// missing says whom a snapshot waits for.
func (d *DirectoryState) missing() string {
	for l := range d.lanes {
		if d.lanes[l].saved == nil {
			return fmt.Sprintf("%s has not written its part", d.p.server(l))
		}
	}
	if i := d.absent(); i >= 0 {
		return fmt.Sprintf("%s has not come to it", d.config.Clients[i].Name)
	}
	return "its manifest is being written"
}

// absent is a client that has neither come to the cut nor finished; -1: there is none.
func (d *DirectoryState) absent() int {
	for i := range d.clients {
		if d.config.Clients[i].State == Active && !d.clients[i].told && !d.finished(i) {
			return i
		}
	}
	return -1
}

// checkSnapshot writes the manifest once every lane wrote its part and every client told its workers' progress.
func (d *DirectoryState) checkSnapshot() {
	if d.config.Cut.At == 0 || len(d.calls) == 0 || !d.calls[0].begun || d.calls[0].job != nil || d.counted != d.config.Version {
		return
	}
	for l := range d.lanes {
		if s := d.lanes[l].saved; s == nil {
			return
		} else if s.text != "" {
			d.failSnapshot(s.text)
			return
		}
	}
	m := &Manifest{Format: manifestFormat, Clock: d.config.Cut.At}
	for i := range d.clients {
		if d.config.Clients[i].State != Active {
			continue
		}
		if !d.clients[i].told {
			if !d.finished(i) {
				return
			}
			continue
		}
		if text := d.clients[i].text; text != "" {
			d.failSnapshot(text)
			return
		}
		for k, s := range d.clients[i].states {
			m.Workers = append(m.Workers, SavedProgress{Client: d.config.Clients[i].Name.String(), Worker: k, State: s})
		}
	}
	for i := range d.config.Tables {
		t := &d.config.Tables[i].Spec
		m.Tables = append(m.Tables, SavedTable{Name: t.Name, Spec: t.append(nil)})
	}
	for l := range d.lanes {
		if x := d.lanes[l].saved.index; x.Key != "" {
			m.Indexes = append(m.Indexes, x)
		}
	}
	j := &manifestJob{store: d.calls[0].store, manifest: m, key: cutPrefix(d.config.Session, d.config.Cut) + "/manifest.json"}
	d.calls[0].job = j
	d.out = append(d.out, protocol.Compute{ID: d.config.Cut.ID, For: time.Millisecond, Work: j.run})
}

// failSnapshot answers the call at hand.
func (d *DirectoryState) failSnapshot(text string) {
	d.out = append(d.out, protocol.Answer{ID: d.calls[0].id, Err: errors.New(text)})
	d.calls = d.calls[1:]
	d.endSnapshot()
}

// A manifestJob writes a manifest.
type manifestJob struct {
	store    Store
	manifest *Manifest
	key      string
	err      error
}

func (j *manifestJob) run() {
	p, err := json.MarshalIndent(j.manifest, "", " ")
	if err == nil {
		err = j.store.Put(context.Background(), j.key, bytes.NewReader(p))
	}
	if err != nil {
		j.err = fmt.Errorf("ps: snapshot: %s: %w", j.key, err)
	}
}

func (d *DirectoryState) written(id uint64) {
	if len(d.calls) == 0 || d.calls[0].job == nil || id != d.config.Cut.ID {
		return
	}
	s := d.calls[0]
	d.calls = d.calls[1:]
	if !s.givenUp {
		d.out = append(d.out, protocol.Answer{ID: s.id, Result: SnapshotResult{Key: s.job.key, Clock: s.job.manifest.Clock}, Err: s.job.err})
	}
	d.endSnapshot()
}
