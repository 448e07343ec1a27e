package optim

// ForkFrom makes s use its threads from so many cells on.
func ForkFrom(s *State, cells int) { s.forkFrom = cells }

// NumSlots returns the number of state vectors.
func (s *State) NumSlots() int { return len(s.slots) }
