package ps

import (
	"fmt"
	"slices"
)

// onHello lets a client in: one that counts from the start, or one that joins at a round that nobody has begun.
func (d *DirectoryState) onHello(m *hello) {
	if d.err != nil {
		d.refuse(m.name, 0, d.err.Error())
		return
	}
	i := slices.IndexFunc(d.config.Clients, func(c Member) bool { return c.Name == m.name })
	if i >= 0 && d.config.Clients[i].Session == m.session { // it asks again
		if d.clients[i].accepted > 0 && d.config.Clients[i].State == Active { // late, or it is another process: whoever has accepted asks no more
			d.refuse(m.name, takesPart, fmt.Sprintf("ps: %s takes part already in this session: a process that begins anew has a session, and a name, of its own", m.name))
			return
		}
		if d.counted == d.config.Version {
			d.send(m.name, &install{config: d.config})
		}
		return
	}
	switch {
	case d.gone[m.name], i >= 0 && d.config.Clients[i].State >= Ending:
		d.refuse(m.name, 0, fmt.Sprintf("ps: %s was counted as lost, and the others go on without it: it takes part again under a name of its own", m.name))
		return
	case i >= 0 && d.config.Clients[i].State != Awaited:
		d.refuse(m.name, 0, fmt.Sprintf("ps: %s takes part already, in another session", m.name))
		return
	}
	if i < 0 && len(d.config.Clients) == MaxClients {
		d.refuse(m.name, 0, fmt.Sprintf("ps: %d clients take part, and more are not provided for", MaxClients))
		return
	}
	if text := d.admit(m.specs, m.name); text != "" {
		d.refuse(m.name, 0, text)
		return
	}
	c := d.change()
	if i < 0 {
		i = len(c.Clients)
		c.Clients = append(c.Clients, Member{Name: m.name, Start: d.later()})
		d.clients = append(d.clients, peerState{})
	}
	c.Clients[i].Session, c.Clients[i].State = m.session, Active
	d.spread()
}

// shutOut has a client that is lost before it has come not let in: its hello may be under way, and whoever sent it would hold back all others.
func (d *DirectoryState) shutOut(name Name) error {
	switch {
	case d.gone[name]:
	case len(d.gone) == MaxClients:
		return fmt.Errorf("ps: lost: no client is called %s, and %d that had not come either are remembered, which is all that is provided for", name, MaxClients)
	case d.gone == nil:
		d.gone = map[Name]bool{name: true}
	default:
		d.gone[name] = true
	}
	return nil
}

// later is a round that, as far as is known, nobody has begun.
func (d *DirectoryState) later() Clock { return d.hi + d.slack + 2 + d.margin }

// admit defines the tables of specs that are not there, or returns a sentence where one is there and is another: then it defines none.
func (d *DirectoryState) admit(specs []Spec, by Name) string {
	tables, taken, words := slices.Clip(d.config.Tables), d.taken, d.words
	for i := range specs {
		s := &specs[i]
		if err := checkTable(&d.p, s); err != nil {
			return err.Error()
		}
		k := slices.IndexFunc(tables, func(t Definition) bool { return t.Spec.Name == s.Name })
		if k < 0 {
			if len(tables) == maxTables {
				return fmt.Sprintf("ps: table %q: there are %d tables, and more are not provided for", s.Name, maxTables)
			}
			var err error
			if taken, err = d.room(s, taken); err != nil {
				return err.Error()
			}
			fresh := Definition{ID: uint32(len(tables)), Spec: *s, By: by}
			if words, err = definitions(&fresh, words); err != nil {
				return err.Error()
			}
			tables = append(tables, fresh)
			continue
		}
		if field, theirs, mine := s.differ(&tables[k].Spec); field != "" {
			return fmt.Sprintf("ps: table %q: %s: %s by %s, %s by %s: every member must give the same definition", s.Name, field, mine, tables[k].By, theirs, by)
		}
	}
	if fresh := tables[len(d.config.Tables):]; len(fresh) > 0 {
		d.change()
		for i := range fresh {
			d.define(&fresh[i].Spec, by)
		}
		d.taken, d.words = taken, words
		d.spread()
	}
	return ""
}

// room returns what is taken of each server with one more table, or why servers cannot hold it.
func (d *DirectoryState) room(s *Spec, taken int64) (int64, error) {
	t := newTable(&Definition{Spec: *s}, &d.p)
	if err := t.equip(d.o.Updaters); err != nil {
		return taken, err
	}
	n := t.bytes(len(d.p.Servers))
	if n > d.p.ServerBytes-taken {
		return taken, fmt.Errorf("ps: table %q: %d × %d cells of %s take %d bytes on each of %d servers, and of the %d of Placement.ServerBytes %d are taken", s.Name, s.Rows, s.Cols, s.Cell, n, len(d.p.Servers), d.p.ServerBytes, taken)
	}
	return taken + n, nil
}

func (d *DirectoryState) define(s *Spec, by Name) {
	id := uint32(len(d.config.Tables))
	d.config.Tables = append(d.config.Tables, Definition{ID: id, Spec: *s, By: by})
	d.slack = max(d.slack, s.staleness())
}
