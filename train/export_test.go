package train

// HigherIsBetter tells s which way its metric goes, which Open learns from the model.
func HigherIsBetter(s *Stopper, higher bool) { s.higher = higher }
