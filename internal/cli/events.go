package cli

import (
	"bufio"
	"encoding/json"
	"io"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/input"
)

// eventWriter writes events as JSON lines, in their order, on a goroutine of its own: a
// reader that is slow must not hold up the work. Beyond maxEvents waiting ones events
// are dropped, which a line {"kind":"dropped","count":N} says.
type eventWriter struct {
	waiting       chan *consumer.Event
	dropped       atomic.Int64
	closing, done chan struct{}
}

const (
	maxEvents = 200_000
	// lastEvents is how long a reader has for what is waiting when the worker has stopped.
	lastEvents = 5 * time.Second
)

func newEventWriter(w io.Writer) *eventWriter {
	e := &eventWriter{waiting: make(chan *consumer.Event, maxEvents), closing: make(chan struct{}), done: make(chan struct{})}
	go e.run(w)
	return e
}

// take is the consumer's OnEvent. Handlers that outlast the worker may call it after close.
func (e *eventWriter) take(ev consumer.Event) {
	select {
	case e.waiting <- &ev:
	default:
		e.dropped.Add(1)
	}
}

// close writes what is waiting and ends, unless nobody reads it.
func (e *eventWriter) close() {
	close(e.closing)
	select {
	case <-e.done:
	case <-time.After(lastEvents):
	}
}

// run writes until close. When nobody reads any more, the encoder keeps the error, and what
// follows is taken and not written.
func (e *eventWriter) run(w io.Writer) {
	defer close(e.done)
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for more := true; more; {
		for len(e.waiting) > 0 {
			_ = enc.Encode(workerLine(<-e.waiting))
		}
		if n := e.dropped.Swap(0); n > 0 {
			_ = enc.Encode(map[string]any{"kind": "dropped", "count": n})
		}
		_ = out.Flush()
		select {
		case ev := <-e.waiting:
			_ = enc.Encode(workerLine(ev))
		case <-e.closing:
			more = len(e.waiting) > 0
		}
	}
}

// workEventLine is an event with its durations in milliseconds, as everywhere in JSON.
type workEventLine struct {
	*consumer.Event
	LateMS float64 `json:"late_ms,omitempty"`
	RanMS  float64 `json:"ran_ms,omitempty"`
}

func workerLine(e *consumer.Event) workEventLine {
	ms := float64(time.Millisecond)
	e.ExecID = input.ShownExecID(e.ExecID)
	return workEventLine{Event: e, LateMS: float64(e.Late) / ms, RanMS: float64(e.Ran) / ms}
}
