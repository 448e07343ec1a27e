package main

import (
	"fmt"
	"strings"
)

// pipelined prints a loop in which each turn is begun while the one before is finished: a processor looks for work among the next hundred
// instructions or so, and in a long chain most of these wait. It takes a turn at the loop's index and the same one turn ahead, each of so
// many interleaved parts, and returns what precedes the loop, its body, and what follows it.
func (b *body) pipelined(turn, next []inst, parts, vectors int) (begin, rest, end string, ok bool) {
	split, handed := b.narrowest(turn, parts)
	first, second := turn[:split], turn[split:]
	a := b.allocation(vectors)
	a.stays = handed
	if begin, ok = a.run(b.shared(first, parts)); !ok {
		return "", "", "", false
	}
	home := a.numbers
	a = b.allocation(vectors)
	a.hold(home)
	if end, ok = a.run(b.shared(second, parts)); !ok {
		return "", "", "", false
	}
	a = b.allocation(vectors)
	a.hold(home)
	a.stays, a.home = map[int]bool{}, map[int]int{}
	shift := next[0].dst - turn[0].dst
	for id, number := range home {
		a.stays[id+shift], a.home[id+shift] = true, number
	}
	if rest, ok = a.run(b.shared(merge(second, next[:split], parts), parts)); !ok {
		return "", "", "", false
	}
	return begin, rest + a.moves(), end, true
}

// narrowest is where in its first half a turn has the fewest registers that are written before and read after, and those.
func (b *body) narrowest(turn []inst, parts int) (split int, handed map[int]bool) {
	steps := len(turn) / parts
	for s := steps * 3 / 10; s <= steps*4/10; s++ {
		before, across := map[int]bool{}, map[int]bool{}
		for i, in := range turn {
			ids := []int{in.dst}
			for _, src := range in.src {
				if v, ok := register(src); ok {
					ids = append(ids, v.id)
				}
			}
			for _, id := range ids {
				switch {
				case id == 0 || b.fixed[id] != "":
				case i < s*parts:
					before[id] = true
				case before[id]:
					across[id] = true
				}
			}
		}
		if handed == nil || len(across) < len(handed) {
			split, handed = s*parts, across
		}
	}
	return split, handed
}

// merge deals the steps of two lists out in proportion, a step being an instruction of each part.
func merge(a, b []inst, parts int) []inst {
	var all []inst
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if j == len(b) || i < len(a) && i*len(b) <= j*len(a) {
			all = append(all, a[i:i+parts]...)
			i += parts
		} else {
			all = append(all, b[j:j+parts]...)
			j += parts
		}
	}
	return all
}

// moves brings what the next turn is handed to where it expects it.
func (a *allocation) moves() string {
	var w strings.Builder
	for id := range a.kinds { // in order
		to, ok := a.home[id]
		if !ok || a.numbers[id] == to {
			continue
		}
		op := map[byte]string{'k': "KMOVW", 'v': "VMOVAPS"}[a.kinds[id]]
		fmt.Fprintf(&w, "\t%s %s, %s\n", op, a.name(id, a.numbers[id]), a.name(id, to))
	}
	return w.String()
}
