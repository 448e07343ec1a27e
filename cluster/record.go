package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-ml/trivium/protocol"
	"github.com/trivium-ml/trivium/wire"
)

// A record is a view as Meta keeps it. It is written by Meta.PutIf on the revision of the one before, and never by anything else.
type record struct {
	Epoch   protocol.Epoch
	Members []Member // by rank
	By      protocol.Name
	Fate    []byte
	Gone    []gone // members of the view before that are not in this one
	Flaps   []flap // sorted by role and ID
}

// gone says how a member was lost.
type gone struct {
	Name protocol.Name
	How  verdict
	Why  string
}

// A flap counts how often a process of that ID was lost by failure, since it last held out for a while.
type flap struct {
	Role, ID string
	Count    uint64
}

// presence is what a process keeps in Meta, under its lease, for as long as it is there.
type presence struct {
	Member
	Lease int64 // whose it is: to tell one's own write from another's of the same name
}

// The bounds of a record: what is written fits MaxValue, and what is read is no larger.
const (
	recordVersion = 1
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
func (k keys) present(n protocol.Name) string { return k.prefix + "present/" + k.of(n) }

// died is the key under which a launcher says that a process ended.
func (k keys) died(n protocol.Name) string { return k.prefix + "died/" + k.of(n) }

func (k keys) of(n protocol.Name) string {
	return escape(n.Role) + "/" + escape(n.ID) + "/" + strconv.FormatUint(n.Incarnation, 10)
}

// parse says which process a key of that kind is about. The job is not part of it.
func (k keys) parse(key, kind string) (role, id string, incarnation uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, k.prefix+kind+"/")
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

func (r *record) encode() []byte {
	p := []byte{recordVersion}
	p = wire.AppendUvarint(p, uint64(r.Epoch))
	p = wire.AppendUvarint(p, uint64(len(r.Members)))
	for _, m := range r.Members {
		p = appendMember(p, m)
	}
	p = appendName(p, r.By)
	p = wire.AppendBytes(p, r.Fate)
	p = wire.AppendUvarint(p, uint64(len(r.Gone)))
	for _, g := range r.Gone {
		p = appendName(p, g.Name)
		p = append(p, byte(g.How))
		p = wire.AppendString(p, g.Why)
	}
	p = wire.AppendUvarint(p, uint64(len(r.Flaps)))
	for _, f := range r.Flaps {
		p = wire.AppendString(p, f.Role)
		p = wire.AppendString(p, f.ID)
		p = wire.AppendUvarint(p, f.Count)
	}
	return p
}

func decodeRecord(p []byte) (*record, error) {
	r := wire.NewReader("view", p)
	rec := readRecord(r)
	if err := r.Done(); err != nil {
		return nil, fmt.Errorf("cluster: the record of the view is damaged: %w", err)
	}
	return rec, nil
}

func readRecord(r *wire.Reader) *record {
	if v := readByte(r, "version"); v != recordVersion && r.Err() == nil {
		r.Fail("version", fmt.Errorf("want %d, found %d: the group was made by another version of this program", recordVersion, v))
	}
	rec := &record{Epoch: protocol.Epoch(r.Uvarint("epoch", 1<<63))}
	for range r.Uvarint("members", maxWorkers) {
		rec.Members = append(rec.Members, readMember(r))
		if r.Err() != nil {
			break
		}
	}
	rec.By = readName(r)
	rec.Fate = slices.Clone(r.Bytes("fate", maxFate))
	for range r.Uvarint("gone", maxWorkers) {
		rec.Gone = append(rec.Gone, gone{readName(r), verdict(readByte(r, "how")), r.String("why", maxWhy)})
		if r.Err() != nil {
			break
		}
	}
	for range r.Uvarint("flaps", maxFlaps) {
		rec.Flaps = append(rec.Flaps, flap{r.String("role", maxMember), r.String("id", maxMember), r.Uvarint("count", 1<<32)})
		if r.Err() != nil {
			break
		}
	}
	return rec
}

func (p presence) encode() []byte {
	b := append([]byte{recordVersion}, appendMember(nil, p.Member)...)
	return wire.AppendUvarint(b, uint64(p.Lease))
}

func decodePresence(b []byte) (presence, error) {
	r := wire.NewReader("presence", b)
	if v := readByte(r, "version"); v != recordVersion && r.Err() == nil {
		r.Fail("version", fmt.Errorf("want %d, found %d", recordVersion, v))
	}
	p := presence{readMember(r), int64(r.Uvarint("lease", 1<<63-1))}
	return p, r.Done()
}

func appendName(p []byte, n protocol.Name) []byte {
	p = wire.AppendString(p, n.Job)
	p = wire.AppendString(p, n.Role)
	p = wire.AppendString(p, n.ID)
	return wire.AppendUvarint(p, n.Incarnation)
}

func readName(r *wire.Reader) protocol.Name {
	return protocol.Name{
		Job: r.String("job", maxMember), Role: r.String("role", maxMember), ID: r.String("id", maxMember),
		Incarnation: r.Uvarint("incarnation", 1<<64-1),
	}
}

func appendMember(p []byte, m Member) []byte {
	p = appendName(p, m.Name)
	p = wire.AppendString(p, m.Addr)
	p = wire.AppendUvarint(p, uint64(len(m.Info)))
	keys := make([]string, 0, len(m.Info))
	for k := range m.Info {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		p = wire.AppendString(p, k)
		p = wire.AppendString(p, m.Info[k])
	}
	return p
}

func readMember(r *wire.Reader) Member {
	m := Member{Name: readName(r), Addr: r.String("addr", maxMember)}
	for range r.Uvarint("info", maxInfo) {
		k, v := r.String("info", maxMember), r.String("info", maxMember)
		if r.Err() != nil {
			break
		}
		if m.Info == nil {
			m.Info = map[string]string{}
		}
		m.Info[k] = v
	}
	return m
}

func readByte(r *wire.Reader, field string) byte { return byte(r.Uvarint(field, 127)) }
