package ps

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-ml/trivium/draw"
	"github.com/trivium-ml/trivium/protocol"
)

type (
	// A Name is a member.
	Name = protocol.Name
	// An Epoch numbers placements.
	Epoch = protocol.Epoch
)

// A Clock is a number of rounds that are finished.
type Clock int64

// A Placement says who holds what. Every member of a job is given the same one.
type Placement struct {
	Epoch     Epoch
	Directory Name   // who defines tables, admits clients, and cuts snapshots
	Servers   []Name // at most MaxServers
	Lanes     int    // of each server: independent parts, one core each; 0: 1
	Clients   []Name // those that count from the start; others join at a later round

	MaxServers    int   // the largest number of servers that tables are cut for; 0: their number now
	ShardsEach    int   // shards of a table for each of MaxServers; 0: 8, so that moves are small; large tables have one for each MiB
	MinShardCells int   // tables that are smaller are not cut; 0: 1,024
	ServerBytes   int64 // that tables may take of each server from the start, lest a mistyped size end it; 0: 1 TiB
	Exact         bool  // a round is applied only once it is complete at every server, and partial sums are added along one fixed tree
}

// Limits, so that a placement fits one value of the metadata store.
const (
	MaxClients = 1024
	MaxLanes   = 64 // of a server
	maxServers = 256
	maxShards  = 4096 // of a table
	maxTables  = 1 << 14
)

func (p Placement) withDefaults() Placement {
	p.Lanes = max(p.Lanes, 1)
	if p.MaxServers == 0 {
		p.MaxServers = len(p.Servers)
	}
	if p.ShardsEach == 0 {
		p.ShardsEach = 8
	}
	if p.MinShardCells == 0 {
		p.MinShardCells = 1024
	}
	if p.ServerBytes == 0 {
		p.ServerBytes = 1 << 40
	}
	return p
}

func (p *Placement) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ps: placement: "+format, args...)) }
	if p.Directory == (Name{}) {
		bad("directory: nobody is named")
	}
	if n := len(p.Servers); n < 1 || n > maxServers {
		bad("servers: want 1 to %d, found %d", maxServers, n)
	}
	if n := len(p.Clients); n > MaxClients {
		bad("clients: want at most %d, found %d", MaxClients, n)
	}
	for what, names := range [][]Name{p.Servers, p.Clients} {
		for i, n := range names {
			if slices.Contains(names[:i], n) {
				bad("%s: %s is named twice", [2]string{"servers", "clients"}[what], n)
			}
		}
	}
	if p.Lanes < 0 || p.Lanes > MaxLanes {
		bad("lanes: want 1 to %d, found %d", MaxLanes, p.Lanes)
	}
	if p.MaxServers != 0 && (p.MaxServers < len(p.Servers) || p.MaxServers > maxServers) {
		bad("max_servers: want %d to %d, found %d", len(p.Servers), maxServers, p.MaxServers)
	}
	if p.ShardsEach < 0 || p.ShardsEach > maxShards || p.MinShardCells < 0 {
		bad("shards: want sizes of 0 or more, found %d for each server, of at least %d cells", p.ShardsEach, p.MinShardCells)
	}
	if p.ServerBytes < 0 {
		bad("server_bytes: want 0 or more, found %d", p.ServerBytes)
	}
	return errors.Join(errs...)
}

// hash tells placements apart, but for what the directory alone looks at: who counts from the start.
func (p *Placement) hash() uint64 {
	b := appendName(nil, p.Directory)
	for _, n := range p.Servers {
		b = appendName(b, n)
	}
	b = fmt.Append(b, p.Lanes, p.MaxServers, p.ShardsEach, p.MinShardCells, p.ServerBytes, p.Exact)
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}

// check says that a directory's placement is not p, which self was given.
func (p *Placement) check(self Name, c *Config) error {
	if c.Place == p.hash() {
		return nil
	}
	return fmt.Errorf("ps: the placement of %s is not that of %s: every member must be given the same servers, in the same order, lanes, sizes and exactness", self, p.Directory)
}

// elsewhere answers a client that takes self for the directory, where p has another; nil where it has the same, which then is to begin yet.
func (p *Placement) elsewhere(self Name) *refused {
	if p.Directory == self {
		return nil
	}
	return &refused{req: notDirectory, text: fmt.Sprintf("%s is no directory: its placement names %s", self, p.Directory)}
}

// lanes is the number of lanes of all servers: lane l is part l mod Lanes of server l / Lanes.
func (p *Placement) lanes() int            { return len(p.Servers) * p.Lanes }
func (p *Placement) server(lane int) Name  { return p.Servers[lane/p.Lanes] }
func (p *Placement) index(server Name) int { return slices.Index(p.Servers, server) }

// owners places the shards of table id: in turn over the servers, so that each has ⌊n/S⌋ or one more, and then over their lanes.
// Tables begin at different servers, so that small ones are spread.
func (p *Placement) owners(id uint32, shards int) []uint16 {
	o := make([]uint16, shards)
	s := len(p.Servers)
	for k := range o {
		server := (k + int(id)) % s
		lane := (k/s + int(id)/s) % p.Lanes
		o[k] = uint16(server*p.Lanes + lane)
	}
	return o
}

// A cut is how a table is cut into shards.
type cut struct {
	spec   *Spec
	shards int
	whole  bool    // Range: no row is split
	bounds []int64 // Range: shard k has the cells bounds[k] to bounds[k+1] of all rows laid end to end
	block  int64   // Hash: a row's columns are cut every so many
}

// hashBlock is the largest number of columns of a Hash table that stay together.
const hashBlock = 1 << 16

func newCut(s *Spec, p *Placement) *cut {
	c := &cut{spec: s}
	bounded := s.Rows > 0 && s.Rows <= 1<<62/s.Cols
	total := s.Rows * s.Cols
	most := p.MaxServers * p.ShardsEach
	if piece := int64(maxPiece / s.Cell.Size()); bounded && !s.Sparse && total/piece > int64(most) {
		most = int(min((total+piece-1)/piece, maxShards)) // one message fills a shard, which applies it while it is in the cache
	}
	most = min(most, maxShards)
	c.shards = most
	if bounded {
		c.shards = int(min(max(total/int64(max(p.MinShardCells, 1)), 1), int64(most)))
	}
	if s.partition() == Hash {
		c.block = min(s.Cols, hashBlock)
		few := int64(c.shards)
		if s.Sparse && s.Optimizer != "" { // it counts the steps of each block: blocks are the same for any number of servers
			few = maxServers
		}
		if s.Keep.Kind == KeepRowNorm {
			c.block = s.Cols
		} else if bounded && s.Rows < few { // few long rows: all servers share each
			c.block = min(max((s.Cols+few-1)/few, int64(p.MinShardCells)), c.block)
		}
		return c
	}
	if s.Keep.Kind == KeepRowNorm {
		c.shards = int(min(int64(c.shards), s.Rows))
	}
	n := int64(c.shards)
	c.whole = s.Rows >= n
	c.bounds = make([]int64, n+1)
	for k := range c.bounds {
		if c.whole {
			c.bounds[k] = s.Rows / n * int64(k) * s.Cols
			c.bounds[k] += s.Rows % n * int64(k) / n * s.Cols // the product of rows and k might not fit
		} else {
			c.bounds[k] = total/n*int64(k) + total%n*int64(k)/n
		}
	}
	return c
}

// sizes are the cells, and the segments, of a Range shard.
func (c *cut) sizes(shard int) (cells int64, segments int) {
	lo, hi := c.bounds[shard], c.bounds[shard+1]
	if hi > lo {
		segments = int((hi-1)/c.spec.Cols - lo/c.spec.Cols + 1)
	}
	return hi - lo, segments
}

// shardOf returns the shard of a cell.
func (c *cut) shardOf(row, col int64) int {
	if c.bounds == nil {
		if c.shards == 1 {
			return 0
		}
		return int(draw.Mix(draw.Mix(uint64(row))+uint64(col/c.block)) % uint64(c.shards))
	}
	at := row*c.spec.Cols + col
	i, found := slices.BinarySearch(c.bounds, at)
	if !found {
		i--
	}
	return i
}

// segment returns the shard of a cell, and the run of its row's columns that lie there, around it.
func (c *cut) segment(row, col int64) (shard int, from, to int64) {
	shard = c.shardOf(row, col)
	if c.bounds == nil {
		from = col / c.block * c.block
		return shard, from, min(from+c.block, c.spec.Cols)
	}
	first := row * c.spec.Cols
	return shard, max(c.bounds[shard]-first, 0), min(c.bounds[shard+1]-first, c.spec.Cols)
}

// wholeRows reports whether every row lies in one shard.
func (c *cut) wholeRows() bool { return c.whole || c.bounds == nil && c.block == c.spec.Cols }

// A span is a run of a row's columns in one shard.
type span struct {
	shard    int
	from, to int64
}

// eachSpan calls f with the spans of a row, in order.
func (c *cut) eachSpan(row int64, f func(s span)) {
	for col := int64(0); col < c.spec.Cols; {
		shard, from, to := c.segment(row, col)
		f(span{shard, from, to})
		col = to
	}
}
