package store

import "time"

// BelieveSlow gives commands the longest limits, as after a time in which the server answered slowly.
func (s *core) BelieveSlow() {
	for range 10 {
		s.pace.slow()
	}
}

// Limit is the time limit of an update of so many documents.
func (s *core) Limit(ids int) time.Duration { return s.pace.limit(ids, 0, false) }
