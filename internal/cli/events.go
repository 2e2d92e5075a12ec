package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"

	"github.com/mscheduler/mscheduler/consumer"
)

// eventWriter writes events as JSON lines, in their order, on a goroutine of its own: a
// reader that is slow must not hold up the work. Beyond maxEvents waiting ones events
// are dropped, which a line {"kind":"dropped","count":N} says.
type eventWriter struct {
	w    *bufio.Writer
	done chan struct{}

	mu      sync.Mutex
	ready   sync.Cond
	waiting []consumer.Event
	dropped int
	closed  bool
}

const maxEvents = 200_000

func newEventWriter(w io.Writer) *eventWriter {
	e := &eventWriter{w: bufio.NewWriter(w), done: make(chan struct{})}
	e.ready.L = &e.mu
	go e.run()
	return e
}

// take is the consumer's OnEvent.
func (e *eventWriter) take(ev consumer.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) >= maxEvents {
		e.dropped++
	} else {
		e.waiting = append(e.waiting, ev)
	}
	e.ready.Signal()
}

// close writes what is waiting and ends.
func (e *eventWriter) close() {
	e.mu.Lock()
	e.closed = true
	e.ready.Signal()
	e.mu.Unlock()
	<-e.done
}

func (e *eventWriter) run() {
	defer close(e.done)
	enc := json.NewEncoder(e.w)
	enc.SetEscapeHTML(false)
	for {
		events, dropped, more := e.next()
		for _, ev := range events {
			if enc.Encode(ev) != nil {
				e.discard() // nobody reads any more
				return
			}
		}
		if dropped > 0 {
			_ = enc.Encode(map[string]any{"kind": "dropped", "count": dropped}) // Flush reports it
		}
		if e.w.Flush() != nil {
			e.discard()
			return
		}
		if !more {
			return
		}
	}
}

// next waits for events; more is false when there will be none after them.
func (e *eventWriter) next() (events []consumer.Event, dropped int, more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.waiting) == 0 && e.dropped == 0 && !e.closed {
		e.ready.Wait()
	}
	events, dropped, more = e.waiting, e.dropped, !e.closed
	e.waiting, e.dropped = nil, 0
	return events, dropped, more
}

// discard takes events without keeping them from now on.
func (e *eventWriter) discard() {
	for {
		if _, _, more := e.next(); !more {
			return
		}
	}
}
