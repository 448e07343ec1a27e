package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// interleave deals the recorded code, n equal parts one after the other, out in turns: the parts are independent, and a processor
// sees no further ahead than a few dozen waiting instructions.
func (b *body) interleave(n int) {
	part := len(b.insts) / n
	dealt := make([]inst, 0, len(b.insts))
	for i := range part {
		for k := range n {
			dealt = append(dealt, b.insts[k*part+i])
		}
	}
	if len(dealt) != len(b.insts) {
		panic("the parts are not equal")
	}
	b.insts = dealt
}

// share has the constants that n interleaved parts read at the same place loaded once: a processor loads two vectors a cycle, but
// computes with up to four.
func (b *body) share(n int) {
	shared := make([]inst, 0, len(b.insts))
	for i := 0; i < len(b.insts); i += n {
		turn := b.insts[i : i+n]
		at := slices.IndexFunc(turn[0].src, func(s any) bool {
			mem, ok := s.(string)
			return ok && strings.HasSuffix(mem, "(SB)")
		})
		if at < 0 {
			shared = append(shared, turn...)
			continue
		}
		op, broadcast := strings.CutSuffix(turn[0].op, ".BCST")
		load := "VMOVU" + b.f()
		if broadcast {
			load = map[int]string{4: "VBROADCASTSS", 8: "VBROADCASTSD"}[b.elem]
		}
		var c val
		switch op {
		case "VBROADCASTSS", "VBROADCASTSD", load: // itself what loads: the others copy it
			shared, c, op = append(shared, turn[0]), val{id: turn[0].dst}, "VMOVA"+b.f()
			turn = turn[1:]
		default:
			c = val{id: b.reg('v')}
			shared = append(shared, inst{load, []any{turn[0].src[at]}, c.id})
		}
		for _, in := range turn {
			src := slices.Clone(in.src)
			src[at] = c
			shared = append(shared, inst{op, src, in.dst})
		}
	}
	b.insts = shared
}

// print writes the recorded code with real registers and forgets it. vectors are the free ones, from 0.
func (b *body) print(w *strings.Builder, vectors int) {
	text, ok := b.allocate(vectors)
	if !ok {
		panic("out of registers")
	}
	w.WriteString(text)
	b.insts = nil
}

// allocate gives virtual registers real ones, each until it is last read, and says whether there were enough.
func (b *body) allocate(vectors int) (text string, ok bool) {
	last := make([]int, len(b.kinds))
	for i, in := range b.insts {
		for _, s := range in.src {
			if v, ok := register(s); ok {
				last[v.id] = i
			}
		}
		last[in.dst] = i
	}
	free := map[byte][]int{'k': {2, 3, 4, 5, 6, 7}}
	if b.tail != "" { // one of K1 to K4
		free['k'] = free['k'][3:]
	}
	for i := range vectors {
		free['v'] = append(free['v'], i)
	}
	prefix := map[byte]string{'k': "K", 'v': "Y"}
	if b.avx512() {
		prefix['v'] = "Z"
	}
	names, numbers := maps.Clone(b.fixed), map[int]int{}
	release := func(id int) {
		kind := b.kinds[id]
		free[kind] = append(free[kind], numbers[id])
		slices.Sort(free[kind])
		delete(numbers, id)
	}
	var w strings.Builder
	for i, in := range b.insts {
		var args []string
		op, part, _ := strings.Cut(in.op, "/")
		for _, s := range in.src {
			v, ok := register(s)
			if !ok {
				args = append(args, s.(string))
				continue
			}
			name := names[v.id]
			if part != "" {
				name = part + name[1:]
			}
			switch s.(type) {
			case low:
				name = "X" + name[1:]
			case half:
				name = halfName(name)
			}
			args = append(args, name)
			if _, held := numbers[v.id]; held && last[v.id] == i {
				release(v.id)
			}
		}
		if in.dst > 0 {
			if names[in.dst] == "" {
				kind := b.kinds[in.dst]
				if len(free[kind]) == 0 {
					return "", false
				}
				numbers[in.dst], free[kind] = free[kind][0], free[kind][1:]
				names[in.dst] = prefix[kind] + fmt.Sprint(numbers[in.dst])
			}
			name := names[in.dst]
			switch {
			case part != "":
				name = part + name[1:]
			case strings.HasPrefix(op, "VCVTPD2PS"):
				name = halfName(name)
			}
			args = append(args, name)
			if _, held := numbers[in.dst]; held && last[in.dst] == i { // never read
				release(in.dst)
			}
		}
		fmt.Fprintf(&w, "\t%s %s\n", op, strings.Join(args, ", "))
	}
	return w.String(), true
}

// halfName is the lower half of a register.
func halfName(name string) string {
	return map[byte]string{'Z': "Y", 'Y': "X"}[name[0]] + name[1:]
}

// register is the virtual register of an operand, if it is one.
func register(operand any) (v val, ok bool) {
	switch o := operand.(type) {
	case val:
		return o, true
	case low:
		return o.val, true
	case half:
		return o.val, true
	}
	return val{}, false
}
