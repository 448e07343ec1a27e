package data

import "github.com/trivium-ml/trivium/draw"

import "math/bits"

// The order of an epoch. Rows are cut into blocks; the blocks are permuted; a window of that many blocks, in their new order, is then
// shuffled row by row. Up to windowBlocks·blockRows rows the order is therefore a uniform permutation. A reader of a file larger than
// memory holds two windows and reads whole blocks; a reader of memory follows the same order, so where the rows lie changes no bit.
const (
	blockShift   = 9
	blockRows    = 1 << blockShift
	blockMask    = blockRows - 1
	windowBlocks = 32 // 16,384 rows: 2 windows of 784 float32 are 103 MB, of 10,000 1.3 GB
	windowRows   = windowBlocks * blockRows

	orderStream = 1 << 10 // of Hash; the streams below it belong to generators and initial weights
)

// An epochOrder is the order of the rows in one epoch: a pure function of (seed, epoch, rows), or index order.
type epochOrder struct {
	rows   int64
	blocks []int32 // permuted; nil: index order
	seed   uint64
	epoch  uint64
}

// begin makes o the order of an epoch, in the memory of an earlier one.
func (o *epochOrder) begin(rows int64, shuffle bool, seed uint64, epoch int) {
	*o = epochOrder{rows: rows, seed: seed, epoch: uint64(epoch), blocks: o.blocks[:0]}
	if !shuffle {
		o.blocks = nil
		return
	}
	for i := range o.numBlocks() {
		o.blocks = append(o.blocks, int32(i))
	}
	r := randomOf(draw.Bits(seed, orderStream, o.epoch<<24))
	for i := len(o.blocks) - 1; i > 0; i-- {
		j := r.below(uint64(i + 1))
		o.blocks[i], o.blocks[j] = o.blocks[j], o.blocks[i]
	}
}

func (o *epochOrder) numBlocks() int64  { return (o.rows + blockRows - 1) / blockRows }
func (o *epochOrder) numWindows() int64 { return (o.numBlocks() + windowBlocks - 1) / windowBlocks }

// block returns the first row of the i-th block of the order and its number of rows.
func (o *epochOrder) block(i int64) (from int64, rows int) {
	if o.blocks != nil {
		i = int64(o.blocks[i])
	}
	from = i * blockRows
	return from, int(min(blockRows, o.rows-from))
}

// locate returns the window that holds position pos of the order, and pos within it. Every window is full but the last and the one
// that the short last block fell into.
func (o *epochOrder) locate(pos int64) (window, within int64) {
	short := o.numWindows() // the window with the short block
	missing := o.numBlocks()*blockRows - o.rows
	if missing > 0 {
		short = (o.numBlocks() - 1) / windowBlocks
		for i, b := range o.blocks {
			if int64(b) == o.numBlocks()-1 {
				short = int64(i) / windowBlocks
			}
		}
	}
	window, within = pos/windowRows, pos%windowRows
	if window > short || window == short && within >= windowRows-missing {
		pos += missing
		window, within = pos/windowRows, pos%windowRows
	}
	return window, within
}

// A shuffler hands out the elements of a window in random order, a few at a time: the forward Fisher–Yates shuffle, whose first
// elements are final before the rest are looked at, so that no step pays for a whole window.
type shuffler struct {
	local []uint32 // slot<<blockShift | row within the block
	done  int
	rand  random
	fixed bool // index order
}

// take returns the next n elements; n is at most what is left.
func (s *shuffler) take(n int) []uint32 {
	from := s.done
	s.done += n
	if !s.fixed {
		for i := from; i < s.done; i++ {
			j := i + int(s.rand.below(uint64(len(s.local)-i)))
			s.local[i], s.local[j] = s.local[j], s.local[i]
		}
	}
	return s.local[from:s.done]
}

func (s *shuffler) left() int { return len(s.local) - s.done }

// reset prepares the shuffler for a window whose slots hold that many rows.
func (s *shuffler) reset(o *epochOrder, window int64, slotRows []int) {
	s.local, s.done, s.fixed = s.local[:0], 0, o.blocks == nil
	for slot, n := range slotRows {
		for r := range n {
			s.local = append(s.local, uint32(slot<<blockShift|r))
		}
	}
	s.rand = randomOf(draw.Bits(o.seed, orderStream, o.epoch<<24+uint64(window)+1))
}

// random is the SplitMix64 generator: a sequence that its first state determines.
type random struct{ state uint64 }

func randomOf(state uint64) random { return random{state} }

func (r *random) next() uint64 {
	r.state += draw.Weyl
	return draw.Mix(r.state)
}

// below returns a number of [0, n). Its bias is under n/2⁶⁴ (Lemire 2019 without the rejection step).
func (r *random) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.next(), n)
	return hi
}
