package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire/control"
)

// A record is a view as Meta keeps it. It is written by Meta.PutIf on the revision of the one before, and never by anything else.
type record struct {
	Epoch   protocol.Epoch `cbor:"1,keyasint"`
	Members []Member       `cbor:"2,keyasint"` // by rank
	By      protocol.Name  `cbor:"3,keyasint"`
	Fate    []byte         `cbor:"4,keyasint"`
	Gone    []gone         `cbor:"5,keyasint"` // members of the view before that are not in this one
	Flaps   []flap         `cbor:"6,keyasint"` // sorted by role and ID
}

// gone says how a member was lost.
type gone struct {
	Name protocol.Name `cbor:"1,keyasint"`
	How  verdict       `cbor:"2,keyasint"`
	Why  string        `cbor:"3,keyasint"`
}

// A flap counts how often a process of that ID was lost by failure, since it last held out for a while.
type flap struct {
	Role  string `cbor:"1,keyasint"`
	ID    string `cbor:"2,keyasint"`
	Count uint64 `cbor:"3,keyasint"`
}

// presence is what a process keeps in Meta, under its lease, for as long as it is there.
type presence struct {
	Member `cbor:"1,keyasint"`
	Lease  int64 `cbor:"2,keyasint"` // whose it is: to tell one's own write from another's of the same name
}

// The bounds of a record: what is written fits MaxValue, and what is read is no larger.
const (
	recordVersion = 2
	maxMember     = 512 // bytes of one member: name, address, info
	maxInfo       = 64  // entries
	maxFate       = 16 << 10
	maxWhy        = 200
	maxFlaps      = 64
)

// keys are where a group is kept in Meta.
type keys struct{ prefix string }

func makeKeys(group string) keys { return keys{"group/" + escape(group) + "/"} }

func (k keys) view() string { return k.prefix + "view" }

// present is the key of a process's presence.
func (k keys) present(n protocol.Name) string {
	return k.prefix + "present/" + escape(n.Role) + "/" + escape(n.ID) + "/" + strconv.FormatUint(n.Incarnation, 10)
}

// parse says whose presence a key is. The job is not part of it.
func (k keys) parse(key string) (role, id string, incarnation uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, k.prefix+"present/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return "", "", 0, false
	}
	incarnation, err := strconv.ParseUint(parts[2], 10, 64)
	return unescape(parts[0]), unescape(parts[1]), incarnation, err == nil
}

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2f")
	unescaper = strings.NewReplacer("%2f", "/", "%25", "%")
)

func escape(s string) string   { return escaper.Replace(s) }
func unescape(s string) string { return unescaper.Replace(s) }

func (r *record) rank(n protocol.Name) int {
	return slices.IndexFunc(r.Members, func(m Member) bool { return same(m.Name, n) })
}

// same compares first what differs most often.
func same(a, b protocol.Name) bool {
	return a.Incarnation == b.Incarnation && a.ID == b.ID && a.Role == b.Role && a.Job == b.Job
}

func (r *record) flaps(role, id string) uint64 {
	for _, f := range r.Flaps {
		if f.Role == role && f.ID == id {
			return f.Count
		}
	}
	return 0
}

// setFlaps keeps the list sorted; 0 removes the entry.
func (r *record) setFlaps(role, id string, count uint64) {
	at, found := slices.BinarySearchFunc(r.Flaps, flap{Role: role, ID: id}, func(a, b flap) int {
		if c := strings.Compare(a.Role, b.Role); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	switch {
	case found && count == 0:
		r.Flaps = slices.Delete(r.Flaps, at, at+1)
	case found:
		r.Flaps[at].Count = count
	case count > 0:
		if len(r.Flaps) >= maxFlaps { // the least is forgotten
			least := 0
			for i, f := range r.Flaps {
				if f.Count < r.Flaps[least].Count {
					least = i
				}
			}
			r.Flaps = slices.Delete(r.Flaps, least, least+1)
			if least < at {
				at--
			}
		}
		r.Flaps = slices.Insert(r.Flaps, at, flap{role, id, count})
	}
}

func (r *record) encode() []byte { return encoded([]byte{recordVersion}, r) }

func decodeRecord(p []byte) (*record, error) {
	rec := &record{}
	if err := decodeValue("view", p, rec); err != nil {
		return nil, fmt.Errorf("cluster: the record of the view is damaged: %w", err)
	}
	return rec, nil
}

func (r *record) check(b *bounds) {
	b.most("members", len(r.Members), MaxWorkers)
	for _, m := range r.Members {
		m.check(b)
	}
	b.name(r.By)
	b.most("fate", len(r.Fate), maxFate)
	b.most("gone", len(r.Gone), MaxWorkers)
	for _, g := range r.Gone {
		b.name(g.Name)
		b.most("why", len(g.Why), maxWhy)
	}
	b.most("flaps", len(r.Flaps), maxFlaps)
	for _, f := range r.Flaps {
		b.most("flap", len(f.Role)+len(f.ID), maxMember)
	}
}

func (p presence) encode() []byte { return encoded([]byte{recordVersion}, p) }

func decodePresence(b []byte) (presence, error) {
	var p presence
	err := decodeValue("presence", b, &p)
	return p, err
}

func (p presence) check(b *bounds) {
	p.Member.check(b)
	if p.Lease < 0 {
		b.fail("lease %d", p.Lease)
	}
}

func (m Member) check(b *bounds) {
	b.name(m.Name)
	b.most("addr", len(m.Addr), maxMember)
	b.most("info", len(m.Info), maxInfo)
	n := 0
	for _, k := range slices.Sorted(maps.Keys(m.Info)) {
		n += len(k) + len(m.Info[k])
	}
	b.most("bytes of info", n, maxMember)
}

// decodeValue decodes what Meta keeps: a byte that says in which version, and the fields.
func decodeValue(what string, p []byte, v interface{ check(b *bounds) }) error {
	if len(p) == 0 {
		return fmt.Errorf("cluster: %s: it is empty", what)
	}
	if p[0] != recordVersion {
		return fmt.Errorf("cluster: %s: version: want %d, found %d: the group was made by another version of this program", what, recordVersion, p[0])
	}
	if err := control.Decode(what, p[1:], v); err != nil {
		return err
	}
	return within("cluster: "+what, v)
}

// encoded appends v, a value of this package, to p.
func encoded(p []byte, v any) []byte {
	b, err := control.Append(p, v)
	if err != nil {
		panic(err) // it is larger than any that the bounds allow, or its type has no code: this program is wrong
	}
	return b
}
