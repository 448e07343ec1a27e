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
	d := &dictionary{code: make(map[string]int32, len(names)), names: names, frozen: names != nil}
	for i, name := range names {
		d.code[name] = int32(i)
	}
	return d
}

func (d *dictionary) of(value []byte) int32 {
	if d.frozen { // set before readers start
		if c, ok := d.code[string(value)]; ok {
			return c
		}
		return codeUnknown
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
	clear(d.code)
	for i, name := range d.names {
		d.code[name] = int32(i)
	}
	d.frozen = true
	final = make([]int32, len(old))
	for c, name := range old {
		if f, ok := d.code[name]; ok {
			final[c] = f
		} else {
			final[c] = codeUnknown
		}
	}
	return final
}
