package ps

import "slices"

// maxLists is how many key lists a session may have at a time: it bounds the server's memory.
const maxLists = 64

// A keyList is the keys of a section.
type keyList struct {
	number uint32
	form   form
	shard  uint64 // table and shard
	rows   []int64
	ends   []int64
	cols   []int64
}

func (k *keyList) equal(s *section) bool {
	return k.form == s.form && k.shard == shardKey(s) && slices.Equal(k.rows, s.rows) && slices.Equal(k.ends, s.ends) && slices.Equal(k.cols, s.cols)
}

func shardKey(s *section) uint64 { return uint64(s.table)<<32 | uint64(s.shard) }

// keyLists are the lists that a client has told a lane, newest last: both keep the same number of them.
type keyLists struct {
	lists []keyList
	next  uint32
}

// resolve gives a section that names a list its keys, or keeps the keys of one that has them. False: there is no such list.
func (l *keyLists) resolve(s *section) bool {
	i := slices.IndexFunc(l.lists, func(k keyList) bool { return k.number == s.list })
	if s.listed {
		if i < 0 || l.lists[i].form != s.form || l.lists[i].shard != shardKey(s) {
			return false
		}
		k := &l.lists[i]
		s.rows, s.ends, s.cols = k.rows, k.ends, k.cols
		return true
	}
	if i < 0 {
		l.keep(s, s.list)
	}
	return true
}

func (l *keyLists) keep(s *section, number uint32) {
	if len(l.lists) >= maxLists {
		l.lists = slices.Delete(l.lists, 0, 1)
	}
	l.lists = append(l.lists, keyList{number, s.form, shardKey(s), slices.Clone(s.rows), slices.Clone(s.ends), slices.Clone(s.cols)})
}

// minList is the number of keys from which a list is worth a number.
const minList = 16

// name gives s the number of its list, found by comparing whole lists, or a new one.
func (l *keyLists) name(s *section) {
	if s.form == formRange || len(s.rows)+len(s.cols) < minList {
		return
	}
	for i := len(l.lists) - 1; i >= 0; i-- {
		if k := &l.lists[i]; k.equal(s) {
			s.list, s.listed = k.number, true
			return
		}
	}
	l.next = max(l.next+1, 1) // 0 is none; of those that had a number long ago, none is left
	s.list = l.next
	l.keep(s, s.list)
}

// forget drops all lists; numbers go on.
func (l *keyLists) forget() { l.lists = nil }
