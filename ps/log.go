package ps

import "github.com/trivium-ml/trivium/protocol"

// An Entry of a lane's log is something that changed what the lane holds: a piece of a round that was the next of its client, a decision
// of the directory, in exact mode how far another lane is complete. What a lane holds depends on its log alone: shards with their
// optimizer state, the watermark of each session, M. So whoever reads the log from its beginning, or from an image with its watermarks,
// holds the same bits: a secondary will be a reader of it. One thing is not in the log: a client that reads a row of an ESSP table that lies
// row by row is sent its changes, and for that a row is made that nobody may have added to yet. It has the cells that Init gives, as a row
// that is not there has, so that cells are the same; but the reader lacks the row, or makes it later, and its image is another.
type Entry struct {
	Index uint64 // from 1
	Epoch Epoch  // of the placement in which it was taken
	from  Name
	body  protocol.Body
}

// log gives a message that the lane takes its place in the log.
func (s *ServerState) log(from Name, body protocol.Body) {
	s.index++
	if f := s.o.Trace.Logged; f != nil {
		if m, ok := body.(*batch); ok { // with its keys: lists may have come with reads, which are not in the log
			m = m.own()
			for i := range m.secs {
				m.secs[i].list, m.secs[i].listed = 0, false
			}
			body = m
		}
		f(int(s.self), Entry{s.index, s.config.Epoch, from, body})
	}
}

// Replay makes an entry of another's log the lane's own, as a secondary will, and reports whether it did. Entries come in order; one that
// is here already, or is of an older epoch than the lane's, changes nothing.
func (s *ServerState) Replay(e Entry) bool {
	if e.Index != s.index+1 || e.Epoch < s.config.Epoch {
		return false
	}
	s.out = s.out[:0]
	s.message(e.from, e.body)
	s.out = s.out[:0]
	return s.index == e.Index
}
