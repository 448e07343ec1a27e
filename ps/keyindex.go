package ps

import (
	"math/bits"

	"github.com/trivium-ml/trivium/draw"
)

// keyIndex finds segments by row and block: linear probing, at most half full.
type keyIndex struct {
	slots []keySlot
	n     int
}

type keySlot struct {
	row, block int64
	value      int32 // segment + 1; 0: empty
}

func (x *keyIndex) find(row, block int64) int32 {
	if x.n == 0 {
		return -1
	}
	mask := uint64(len(x.slots) - 1)
	for h := keyHash(row, block); ; h++ {
		s := &x.slots[h&mask]
		if s.value == 0 {
			return -1
		}
		if s.row == row && s.block == block {
			return s.value - 1
		}
	}
}

func (x *keyIndex) put(row, block int64, segment int32) {
	if 2*(x.n+1) > len(x.slots) {
		old := x.slots
		x.slots = make([]keySlot, max(16, 2*len(old)))
		x.n = 0
		for i := range old {
			if old[i].value != 0 {
				x.put(old[i].row, old[i].block, old[i].value-1)
			}
		}
	}
	mask := uint64(len(x.slots) - 1)
	h := keyHash(row, block)
	for x.slots[h&mask].value != 0 {
		h++
	}
	x.slots[h&mask] = keySlot{row, block, segment + 1}
	x.n++
}

// clear leaves no key. After few, memory for many is given up: to clear it, and to look for few keys in it, takes longer than to find them.
func (x *keyIndex) clear() {
	if few := 1 << bits.Len(uint(4*x.n)); few < len(x.slots)/8 {
		x.slots = make([]keySlot, max(16, few))
	} else {
		clear(x.slots)
	}
	x.n = 0
}

func keyHash(row, block int64) uint64 {
	h, l := bits.Mul64(uint64(row)^uint64(block)<<40^draw.Weyl, 0xbf58476d1ce4e5b9)
	return h ^ l
}
