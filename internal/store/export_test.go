package store

// BelieveSlow gives commands the longest limits, as after a time in which the server answered slowly.
func (s *core) BelieveSlow() {
	for range 10 {
		s.pace.slow()
	}
}
