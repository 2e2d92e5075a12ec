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
// task that any of them may have is found as soon as one of them asks. While there are tasks the turns
// double, up to one for each that waits; each that finds none ends one turn, but the last.
type waiting struct {
	mu    sync.Mutex
	lines map[string]*line
}

// line is a queue of fetches that want the same.
type line struct {
	turn  chan struct{} // holds a value for each turn that nobody has
	turns int           // at least one
	in    int           // fetches in the line
}

const (
	leastPause = 20 * time.Millisecond // between two questions of a line
	mostPause  = 250 * time.Millisecond
	roundTime  = 4 * time.Second // until each worker of a line has asked, if there are not very many
	mostTurns  = 256             // of a line
)

// fetch fetches tasks, and waits for some if there are none, as long as patient lasts.
// may is asked before each try but the first.
func (w *waiting) fetch(ctx, patient context.Context, r pull.FetchRequest, may func(context.Context) error, ask func(context.Context, pull.FetchRequest) ([]pull.Fetched, error)) ([]pull.Fetched, error) {
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
		if err = may(ctx); err == nil {
			tasks, err = ask(ctx, r)
		}
		if pause := w.asked(l, len(tasks) > 0); pause > 0 {
			if err == nil {
				clock.Pause(patient, pause)
			}
			l.turn <- struct{}{} // to who has waited longest
		}
		if err != nil || len(tasks) > 0 || patient.Err() != nil {
			return tasks, err
		}
	}
}

// asked ends a turn, and begins others where there are tasks. pause is that after the last turn, which the
// caller passes on; 0 = it has been passed on, or there are others. Each worker of the line asks every few
// seconds, since a task may be for one of them alone.
func (w *waiting) asked(l *line, found bool) (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case found:
		l.turn <- struct{}{}
		if l.turns < min(l.in, mostTurns) {
			l.turns++
			l.turn <- struct{}{}
		}
		return 0
	case l.turns > 1:
		l.turns--
		return 0
	default:
		return max(min(roundTime/time.Duration(l.in), mostPause), leastPause)
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
		l = &line{turn: make(chan struct{}, mostTurns), turns: 1}
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
