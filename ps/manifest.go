package ps

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

// A Manifest names what a snapshot holds. It is written last: without it there is no snapshot.
type Manifest struct {
	Format  string          `json:"format"`
	Clock   Clock           `json:"clock"` // it holds exactly the rounds below
	Tables  []SavedTable    `json:"tables"`
	Workers []SavedProgress `json:"workers"` // in the order of clients and their workers
}

// A SavedTable is a table of a snapshot.
type SavedTable struct {
	Name    string    `json:"name"`
	Spec    []byte    `json:"spec"`
	Objects []*object `json:"objects"`
}

// A SavedProgress is what a worker kept for itself at the cut.
type SavedProgress struct {
	Client string `json:"client"`
	Worker int    `json:"worker"`
	State  []byte `json:"state,omitempty"`
}

const manifestFormat = "trivium ps snapshot 1"

// maxManifest is the largest manifest that is read, in bytes.
const maxManifest = 256 << 20

// ReadManifest reads the manifest at key, which Directory.Snapshot returned.
func ReadManifest(ctx context.Context, s Store, key string) (*Manifest, error) {
	r, err := s.Get(ctx, key, 0, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", key, err)
	}
	p, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", key, err)
	}
	var m Manifest
	if err := json.Unmarshal(p, &m); err != nil {
		return nil, fmt.Errorf("ps: restore %s: %w", key, err)
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("ps: restore %s: want the format %q, found %q", key, manifestFormat, m.Format)
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
			if o == nil || len(o.Key) > maxKey || o.Size < 0 || o.Lo < 0 || o.Hi < 0 {
				return nil, fmt.Errorf("ps: restore %s: table %q has an object that makes no sense", key, t.Name)
			}
		}
	}
	return &m, nil
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
	for i := range d.clients {
		if d.config.Clients[i].State == Active && !d.clients[i].told && !d.finished(i) {
			return fmt.Sprintf("%s has not come to it", d.config.Clients[i].Name)
		}
	}
	return "its manifest is being written"
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
		t := &d.config.Tables[i]
		s := SavedTable{Name: t.Spec.Name, Spec: t.Spec.append(nil)}
		for l := range d.lanes {
			for _, o := range d.lanes[l].saved.objects {
				if o.Table == t.ID {
					s.Objects = append(s.Objects, o)
				}
			}
		}
		slices.SortFunc(s.Objects, func(a, b *object) int { return cmp.Compare(a.Lo, b.Lo) })
		m.Tables = append(m.Tables, s)
	}
	j := &manifestJob{store: d.calls[0].store, manifest: m, key: cutPrefix(d.config.Cut) + "/manifest.json"}
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
