package clock

import (
	"sync"
	"time"
)

// Seldom keeps what happens at every look from being logged at every look. The zero value has
// seen nothing. It is safe for concurrent use.
type Seldom struct {
	mu   sync.Mutex
	last map[string]time.Duration // by the monotonic clock
}

const (
	seldomEvery = time.Minute
	seldomKeys  = 10_000
)

// Again reports whether a minute has passed since it last returned true for this key. It forgets
// all keys when there are more than 10,000: most are of what is long gone.
func (s *Seldom) Again(key string, c Clock) bool {
	now := c.Monotonic()
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, known := s.last[key]; known && now-last < seldomEvery {
		return false
	}
	if s.last == nil || len(s.last) > seldomKeys {
		s.last = map[string]time.Duration{}
	}
	s.last[key] = now
	return true
}
