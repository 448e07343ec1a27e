package compare

// Peers returns the rows of other systems.
func Peers(Host) []System { return nil }
