package data

import (
	"slices"
	"sync"
)

// A dictionary numbers the distinct values of a column as they come, until freeze gives them their final order. It is safe for
// concurrent use.
type dictionary struct {
	mu     sync.RWMutex
	code   map[string]int32
	plain  map[string]int32 // of a frozen one, by the plain name of a value that has another: its code; of two such values codeUnknown
	names  []string
	frozen bool
}

// Codes of values that are not in a dictionary.
const (
	codeMissing int32 = -1
	codeUnknown int32 = -2 // not among the training rows' values
	codeTooMany int32 = -3
)

func newDictionary(names []string) *dictionary {
	d := &dictionary{code: make(map[string]int32, len(names)), names: names}
	if names != nil {
		d.seal()
	}
	return d
}

// seal makes the codes of names final.
func (d *dictionary) seal() {
	clear(d.code)
	d.frozen, d.plain = true, map[string]int32{}
	var buf [32]byte
	for i, name := range d.names {
		d.code[name] = int32(i)
		plain := string(plainName(buf[:], []byte(name)))
		if _, two := d.plain[plain]; two {
			d.plain[plain] = codeUnknown
		} else if plain != name {
			d.plain[plain] = int32(i)
		}
	}
}

// find returns the code of a value of a frozen dictionary: that of the value as it is written, or else of the one that is the same number or truth
// value.
func (d *dictionary) find(value []byte) int32 {
	if c, ok := d.code[string(value)]; ok {
		return c
	}
	var buf [32]byte
	plain := plainName(buf[:], value)
	for _, codes := range []map[string]int32{d.code, d.plain} {
		if c, ok := codes[string(plain)]; ok {
			return c
		}
	}
	return codeUnknown
}

func (d *dictionary) of(value []byte) int32 {
	if d.frozen { // set before readers start
		return d.find(value)
	}
	d.mu.RLock()
	c, ok := d.code[string(value)]
	d.mu.RUnlock()
	if ok {
		return c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.code[string(value)]; ok {
		return c
	}
	if len(d.names) >= maxClasses {
		return codeTooMany
	}
	c = int32(len(d.names))
	d.names = append(d.names, string(value))
	d.code[d.names[c]] = c
	return c
}

// freeze keeps the values that keep names by their code, sorts them, and returns the final code of each old one.
func (d *dictionary) freeze(keep []bool) (final []int32) {
	old := d.names
	d.names = []string{}
	for c, name := range old {
		if keep == nil || c < len(keep) && keep[c] {
			d.names = append(d.names, name)
		}
	}
	slices.Sort(d.names)
	d.seal()
	final = make([]int32, len(old))
	for c, name := range old {
		final[c] = d.find([]byte(name))
	}
	return final
}
