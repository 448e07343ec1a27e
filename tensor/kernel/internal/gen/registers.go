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

// together records two pieces of code that are independent in turns.
func (b *body) together(f, g func()) {
	before := b.insts
	b.insts = nil
	f()
	first := b.insts
	b.insts = nil
	g()
	b.insts = append(before, merge(first, b.insts, 1)...)
}

// share has the constants that n interleaved parts read at the same place loaded once: a processor loads two vectors a cycle, but
// computes with up to four.
func (b *body) share(n int) { b.insts = b.shared(b.insts, n) }

// shared is a list of instructions after share.
func (b *body) shared(insts []inst, n int) []inst {
	shared := make([]inst, 0, len(insts))
	for i := 0; i < len(insts); i += n {
		turn := insts[i : i+n]
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
	return shared
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
	return b.allocation(vectors).run(b.insts)
}

// An allocation hands out real registers.
type allocation struct {
	*body
	free    map[byte][]int
	numbers map[int]int  // of the virtual registers that have one now
	stays   map[int]bool // those that are read later
	home    map[int]int  // those that should be in a certain one then, which has nothing else before, but for what it holds at first
}

func (b *body) allocation(vectors int) *allocation {
	a := &allocation{body: b, free: map[byte][]int{'k': {2, 3, 4, 5, 6, 7}}, numbers: map[int]int{}}
	if b.tail != "" { // one of K1 to K4
		a.free['k'] = a.free['k'][3:]
	}
	for i := range vectors {
		a.free['v'] = append(a.free['v'], i)
	}
	a.free['v'] = append(a.free['v'], b.extra...)
	return a
}

// hold has registers in use from the start.
func (a *allocation) hold(numbers map[int]int) {
	a.numbers = maps.Clone(numbers)
	for id, n := range numbers {
		kind := a.kinds[id]
		a.free[kind] = slices.DeleteFunc(slices.Clone(a.free[kind]), func(f int) bool { return f == n })
	}
}

func (a *allocation) name(id, number int) string {
	if a.kinds[id] == 'v' && a.avx512() {
		return fmt.Sprintf("Z%d", number)
	}
	return map[byte]string{'k': "K", 'v': "Y"}[a.kinds[id]] + fmt.Sprint(number)
}

// take gives a virtual register a real one.
func (a *allocation) take(id int) bool {
	if n, ok := a.home[id]; ok && !a.occupied(a.kinds[id], n) {
		a.numbers[id] = n
		return true
	}
	free := a.free[a.kinds[id]]
	if len(free) == 0 {
		return false
	}
	a.numbers[id], a.free[a.kinds[id]] = free[0], free[1:]
	return true
}

func (a *allocation) occupied(kind byte, number int) bool {
	for id, n := range a.numbers {
		if n == number && a.kinds[id] == kind {
			return true
		}
	}
	return false
}

func (a *allocation) release(id int) {
	kind, number := a.kinds[id], a.numbers[id]
	delete(a.numbers, id)
	for other, n := range a.home {
		if n == number && a.kinds[other] == kind {
			return
		}
	}
	a.free[kind] = append(a.free[kind], number)
	slices.Sort(a.free[kind])
}

// run is the text of instructions, and whether there were registers for them.
func (a *allocation) run(insts []inst) (text string, ok bool) {
	last := make([]int, len(a.kinds))
	for i, in := range insts {
		for _, s := range in.src {
			if v, ok := register(s); ok {
				last[v.id] = i
			}
		}
		last[in.dst] = i
	}
	names := maps.Clone(a.fixed)
	for id, n := range a.numbers {
		names[id] = a.name(id, n)
	}
	done := func(id, i int) {
		if _, held := a.numbers[id]; held && last[id] == i && !a.stays[id] {
			a.release(id)
		}
	}
	var w strings.Builder
	for i, in := range insts {
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
			done(v.id, i)
		}
		if in.dst > 0 {
			if names[in.dst] == "" {
				if !a.take(in.dst) {
					return "", false
				}
				names[in.dst] = a.name(in.dst, a.numbers[in.dst])
			}
			name := names[in.dst]
			switch {
			case part != "":
				name = part + name[1:]
			case strings.HasPrefix(op, "VCVTPD2PS"):
				name = halfName(name)
			}
			args = append(args, name)
			done(in.dst, i) // never read
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
