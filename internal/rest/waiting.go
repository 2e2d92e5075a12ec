package rest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/pull"
)

// waiting has fetches wait for tasks. Of those that want the same, one asks the database at a time, however
// many wait: when it has a task, or its time is over, the next one asks.
type waiting struct {
	mu    sync.Mutex
	lines map[string]*line
}

// line is a queue of fetches that want the same.
type line struct {
	turn chan struct{} // holds one value: the turn to ask
	in   int           // fetches in the line
}

// Pauses between two questions of a line: they grow while there is nothing.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// fetch fetches tasks, and waits for some if there are none, as long as patient lasts.
func (w *waiting) fetch(ctx, patient context.Context, r pull.FetchRequest, ask func(context.Context, pull.FetchRequest) ([]pull.Fetched, error)) ([]pull.Fetched, error) {
	tasks, err := ask(ctx, r)
	if err != nil || len(tasks) > 0 || patient.Err() != nil {
		return tasks, err
	}
	l, leave := w.enter(fmt.Sprintf("%q %q %q %q", r.Types, r.Tenants, r.Categories, r.Creators))
	defer leave()
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-patient.Done():
		return nil, ctx.Err()
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		// Not with the patience: a claim that is cut off would hold tasks that nobody works on.
		if tasks, err = ask(ctx, r); err != nil || len(tasks) > 0 || patient.Err() != nil {
			return tasks, err
		}
		clock.Pause(patient, pause)
	}
}

// enter enters the line of those that want the same.
func (w *waiting) enter(wanted string) (l *line, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lines == nil {
		w.lines = map[string]*line{}
	}
	l = w.lines[wanted]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		w.lines[wanted] = l
	}
	l.in++
	return l, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if l.in--; l.in == 0 {
			delete(w.lines, wanted)
		}
	}
}
