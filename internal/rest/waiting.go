package rest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/pull"
)

// waiting has fetches wait for tasks. Those that want the same ask the database by turns, one at a time: a
// task that any of them may have is found as soon as one of them asks.
type waiting struct {
	mu    sync.Mutex
	lines map[string]*line
}

// line is a queue of fetches that want the same.
type line struct {
	turn chan struct{} // holds one value: the turn to ask
	in   int           // fetches in the line
}

const (
	leastPause = 20 * time.Millisecond // between two questions of a line
	mostPause  = 250 * time.Millisecond
	roundTime  = 4 * time.Second // until each worker of a line has asked, if there are not very many
)

// fetch fetches tasks, and waits for some if there are none, as long as patient lasts.
func (w *waiting) fetch(ctx, patient context.Context, r pull.FetchRequest, ask func(context.Context, pull.FetchRequest) ([]pull.Fetched, error)) ([]pull.Fetched, error) {
	tasks, err := ask(ctx, r)
	if err != nil || len(tasks) > 0 || patient.Err() != nil {
		return tasks, err
	}
	l, leave := w.enter(fmt.Sprintf("%q %q %q %q", r.Types, r.Tenants, r.Categories, r.Creators))
	defer leave()
	for {
		select {
		case <-l.turn:
		case <-patient.Done():
			return nil, ctx.Err()
		}
		// Not with the patience: a claim that is cut off would hold tasks that nobody works on.
		tasks, err = ask(ctx, r)
		if found := len(tasks) > 0; err == nil && !found {
			clock.Pause(patient, w.pause(l))
		}
		l.turn <- struct{}{} // to who has waited longest
		if err != nil || len(tasks) > 0 || patient.Err() != nil {
			return tasks, err
		}
	}
}

// pause is between two questions of a line. Each worker of the line asks every few seconds: a task may be
// for one of them alone.
func (w *waiting) pause(l *line) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(min(roundTime/time.Duration(l.in), mostPause), leastPause)
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
