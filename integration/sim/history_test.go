package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// history is what happened, for people.
type history struct {
	mu    sync.Mutex
	began time.Time
	last  time.Duration // of the lines
	lines []string
	wrong []string
}

func (h *history) note(who, format string, values ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := time.Since(h.began); at < 24*time.Hour { // otherwise it is the receiver, whose clock is not that of the world
		h.last = at
	}
	h.lines = append(h.lines, fmt.Sprintf("%9.3fs  %-8s %s", h.last.Seconds(), who, fmt.Sprintf(format, values...)))
}

// violated notes that a promise was broken.
func (h *history) violated(format string, values ...any) {
	what := fmt.Sprintf(format, values...)
	h.note("VIOLATED", "%s", what)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, what)
}

func (h *history) violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrong
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}
