package ps

import (
	"fmt"
	"sort"
	"time"

	"github.com/trivium-ml/trivium/protocol"
)

// A listJob finds out which objects of a snapshot the shards here begin with. A lane reads that from the store itself: told by the
// directory it would be a frame that grows with the tables.
type listJob struct {
	store   Store
	from    file // the manifest
	tables  []*laneTable
	objects [][]*object // of each
	err     error
}

// load begins to read what the tables from first on begin with. Those of a snapshot all come with the first configuration.
func (s *ServerState) load(from *file, all []Definition, first int) {
	j := &listJob{store: s.o.Store, from: *from}
	for i := first; i < len(s.tables); i++ {
		if all[i].Saved && len(s.tables[i].here) > 0 {
			j.tables = append(j.tables, s.tables[i])
		}
	}
	if len(j.tables) == 0 || s.fatal != "" {
		return
	}
	s.listing = j
	s.loads++
	s.out = append(s.out, protocol.Compute{ID: loadID(maxTables), For: time.Millisecond, Work: j.run})
}

func (j *listJob) run() {
	p, err := fetch(j.store, &j.from)
	if err != nil {
		j.err = err
		return
	}
	m, err := decodeManifest(j.from.Key, p)
	if err != nil {
		j.err = err
		return
	}
	here := make([]*laneTable, len(m.Tables))
	for _, t := range j.tables {
		if int(t.id) >= len(here) || m.Tables[t.id].Name != t.spec.Name {
			j.err = fmt.Errorf("ps: restore %s: it has no table %q at place %d", j.from.Key, t.spec.Name, t.id)
			return
		}
		here[t.id] = t
	}
	j.err = m.fill(j.store, func(o *object) bool {
		t := here[o.Table]
		return t != nil && len(t.takers(o)) > 0
	})
	for _, t := range j.tables {
		j.objects = append(j.objects, m.Tables[t.id].Objects)
	}
}

// takers are the shards here that may begin with some of an object.
func (t *laneTable) takers(o *object) []int {
	b := t.cut.bounds
	if b == nil || o.Form != "cells" {
		return t.here
	}
	i := sort.Search(len(t.here), func(i int) bool { return b[t.here[i]+1] > o.Lo })
	n := sort.Search(len(t.here)-i, func(n int) bool { return b[t.here[i+n]] >= o.Hi })
	return t.here[i : i+n]
}

// A loadJob reads the objects that a table's shards here begin with.
type loadJob struct {
	store   Store
	table   *laneTable
	objects []*object
	err     error
}

// loadTables begins to read the objects that were found.
func (s *ServerState) loadTables(l *listJob) {
	s.jobs = map[uint64]*loadJob{}
	for i, t := range l.tables {
		if len(l.objects[i]) == 0 {
			continue
		}
		j := &loadJob{store: l.store, table: t, objects: l.objects[i]}
		s.jobs[loadID(t.id)] = j
		s.loads++
		s.out = append(s.out, protocol.Compute{ID: loadID(t.id), For: time.Millisecond, Work: j.run})
	}
}

// run restores shards that nobody else uses yet.
func (j *loadJob) run() {
	for _, o := range j.objects {
		p, err := fetch(j.store, &o.file)
		for _, k := range j.table.takers(o) {
			if err == nil {
				err = j.table.shards[k].restore(p, o)
			}
		}
		if err != nil {
			j.err = err
			return
		}
	}
}

// computed hears that a save or a load has ended.
func (s *ServerState) computed(id uint64) {
	if id&1 == 0 {
		j := s.saves.running
		s.saves.running = nil
		if j == s.cut.job {
			s.cut.saved = true
			s.send(s.p.Directory, &j.result)
		}
		s.save()
		return
	}
	var err error
	if j := s.listing; id == loadID(maxTables) && j != nil {
		s.listing = nil
		if err = j.err; err == nil {
			s.loadTables(j)
		}
	} else if j := s.jobs[id]; j != nil {
		delete(s.jobs, id)
		err = j.err
	} else {
		return
	}
	s.loads--
	if err != nil && s.fatal == "" {
		s.fatal = err.Error()
	}
	if s.loads == 0 && s.owed {
		s.owed = false
		s.accept(s.config.Version, false)
		s.advance()
		s.unpark()
	}
}
