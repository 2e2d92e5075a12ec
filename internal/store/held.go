package store

import (
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// heldFor is how long a document counts as held after a write of it ran out of time.
const heldFor = 10 * time.Second

// held remembers the documents that something holds, such as somebody's open transaction.
// To find out which of a group it is takes time; once it is known, writes of it go out
// apart from the others, so that they do not pay again with every batch.
type held struct {
	mu    sync.Mutex
	until map[string]time.Duration // monotonic
}

func (h *held) note(id string, c clock.Clock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = map[string]time.Duration{}
	}
	h.until[id] = c.Monotonic() + heldFor
}

// apart takes what is held out of the statements: the others, and those.
func (h *held) apart(statements []statement, c clock.Clock) (free, apart []statement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := c.Monotonic()
	for id, until := range h.until {
		if now > until {
			delete(h.until, id)
		}
	}
	if len(h.until) == 0 {
		return statements, nil
	}
	for _, st := range statements {
		var ours, theirs []string
		for _, id := range st.ids {
			if _, is := h.until[id]; is {
				theirs = append(theirs, id)
			} else {
				ours = append(ours, id)
			}
		}
		if len(ours) > 0 {
			free = append(free, statement{ids: ours, guard: st.guard, update: st.update})
		}
		for _, id := range theirs {
			apart = append(apart, statement{ids: []string{id}, guard: st.guard, update: st.update})
		}
	}
	return free, apart
}
