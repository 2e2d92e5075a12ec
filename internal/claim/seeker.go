package claim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Seeker looks for the candidates of one worker and remembers what it saw of the queue, so
// that the next look costs little. It is safe for concurrent use.
type Seeker struct {
	Finder
	// Queue is the knowledge of the tasks that one worker runs.
	Queue Sight
	// Several is the knowledge of the tasks that want several workers.
	Several Sight
	// Refused are left out of queries.
	Refused Refusals

	clock clock.Clock // the machine's

	mu         sync.Mutex
	own        Rarely        // tasks that name this worker
	ownFull    time.Duration // monotonic: when it last queried all of those
	many       manyTasks     // tasks that want several workers
	unlabelled unlabelledLook
}

// NewSeeker makes a seeker that knows nothing yet. every is the time between looks at everybody's
// audience, see [Finder.Due], and longest the longest pause between other separate queries.
func NewSeeker(f Finder, c clock.Clock, every, longest time.Duration) *Seeker {
	return &Seeker{Finder: f, clock: c, many: manyTasks{pace: clock.NewPacer(c, rarePause, longest)}, unlabelled: unlabelledLook{every: every}}
}

// Aim is the place of a look, and how many tasks it may find.
type Aim struct {
	AtHead     bool // where the queue begins
	Whole      bool // at everything, whatever is known
	Skip, Take int
	Scout      bool // the found tasks are not to be claimed, so no others are queried
	// Place chooses the priorities to name (nil = all) and the lower bound of due_at. nil = those
	// of the queue's head.
	Place func(Look) (priorities []int, from time.Time)
}

// Catch is the result of a look.
type Catch struct {
	Tasks  []*model.Task // the best of all that it saw
	Queue  []*model.Task // of those that one worker runs what it saw, in the order of the queue
	Take   int           // how many it could have found
	AtHead bool          // it looked where the queue begins
	Full   bool          // and at everything
	At     time.Time     // the database's time when it began
	Trip   time.Duration // of a query that found next to nothing; 0 = there was none
}

// Complete reports whether the look reached the end of the queue.
func (c *Catch) Complete() bool { return len(c.Queue) < c.Take }

// Find reads candidates at the place of the aim.
func (s *Seeker) Find(ctx context.Context, types []string, a Aim) (Catch, error) {
	now := s.clock.Monotonic()
	unlabelled := a.AtHead && s.UnlabelledDue(types)
	excluded := s.Excluded()
	got := Catch{At: s.Store.Clock.Now()}
	l := s.Queue.Begin(types, got.At, now, unlabelled || a.Whole)
	q := store.DueQuery{Types: types, Limit: a.Take, Skip: a.Skip, Exclude: excluded, Priorities: l.Priorities, From: l.From}
	if a.Place != nil {
		q.Priorities, q.From = a.Place(l)
	}
	found, late, err := s.Due(ctx, q, unlabelled)
	if unlabelled && err == nil {
		s.looked(late)
	}
	got.Queue, got.Take = found, s.readable(a.Take, len(found))
	if err != nil || a.Scout {
		return got, err
	}
	got.AtHead, got.Full = a.AtHead, a.AtHead && l.Full()
	if a.AtHead && a.Skip == 0 {
		s.Queue.End(l, found, got.Complete())
	}
	rare, trip, err := s.findRare(ctx, q, l, a.AtHead && got.Complete())
	got.Tasks, got.Trip = Best(slices.Concat(found, rare), got.Take), trip
	return got, err
}

// FindRare reads candidates that only a separate query finds, if it is time for one: those that name
// this worker, and those that want several workers.
func (s *Seeker) FindRare(ctx context.Context, types []string, take int) ([]*model.Task, error) {
	excluded := s.Excluded()
	l := s.Queue.Begin(types, s.Store.Clock.Now(), s.clock.Monotonic(), false)
	q := store.DueQuery{Types: types, Limit: take, Exclude: excluded, Priorities: l.Priorities, From: l.From}
	found, _, err := s.findRare(ctx, q, l, false)
	return Best(found, take), err
}

// readable is how many tasks a query for so many could return that returned so many: a read
// of large ones is cut off.
func (s *Seeker) readable(wanted, found int) int {
	return min(wanted, max(found, s.Store.Tasks.Fit(wanted)))
}

// Excluded are the ids to leave out of a query.
func (s *Seeker) Excluded() []string {
	ids := s.Refused.IDs(s.Store.Clock.Now())
	if s.Refused.CameBack() {
		s.Forget() // they stand where they stood
	}
	return ids
}

// Forget makes the next look a full one.
func (s *Seeker) Forget() {
	s.Queue.Forget()
	s.Several.Forget()
}

// Hear records a task that this process has written or that an event named: it may lie before
// the place where the next look begins, and an earlier refusal no longer counts.
func (s *Seeker) Hear(t *model.Task) {
	now := s.clock.Monotonic()
	s.Refused.Lift(t.ID)
	s.Queue.Hear(t, now)
	s.Several.Hear(t, now)
	several, own := lifecycle.Wanted(t) > 1, slices.Contains(t.Options.SpecificWorkerIDs, s.WorkerID)
	if !several && !own {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.many.some, s.own.some = s.many.some || several, s.own.some || own
}

// Ordinary reports whether a task that is written now says nothing to a seeker that has heard of
// its priority a moment ago: no head lies behind it, and it needs no separate query.
func Ordinary(t *model.Task, now time.Time) bool {
	return t.DueAt.After(now.Add(-headMargin)) && lifecycle.Wanted(t) <= 1 && len(t.Options.SpecificWorkerIDs) == 0
}

// AskAll makes the next look query every kind of task.
func (s *Seeker) AskAll() {
	s.Forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.many.some, s.own.some, s.unlabelled.some = true, true, true
}

// UnlabelledDue reports whether it is time for a look at everybody's audience: for tasks that were
// sent before their type was claimed by a label of this worker.
func (s *Seeker) UnlabelledDue(types []string) bool {
	if !s.Labelled(types) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unlabelled.due(s.clock.Monotonic())
}

func (s *Seeker) looked(late int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlabelled.at, s.unlabelled.some = max(s.clock.Monotonic(), 1), late > 0
}

// findRare reads candidates that name this worker, unless the look has seen all of these, and
// candidates among the tasks that want several workers. It says how long a query took that found
// next to nothing. One query asks for both while there are none of either.
func (s *Seeker) findRare(ctx context.Context, q store.DueQuery, l Look, ownSeen bool) (found []*model.Task, trip time.Duration, err error) {
	if !ownSeen && s.Only == nil && s.asksBoth() {
		return s.findBoth(ctx, q)
	}
	var beside sync.WaitGroup // two round trips in the time of one
	var own []*model.Task
	var ownErr error
	if !ownSeen {
		beside.Go(func() { own, ownErr = s.findOwn(ctx, q, l) })
	}
	several, trip, err := s.findSeveral(ctx, q)
	beside.Wait()
	return slices.Concat(own, several), trip, errors.Join(ownErr, err)
}

// asksBoth reports whether to ask for both kinds of rare tasks now: neither was there, and it is time
// for one of them.
func (s *Seeker) asksBoth() bool {
	now := s.clock.Monotonic()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.many.pace.Left()
	if s.own.some || s.many.some || left > 0 && (left > rarePause/4 || now-s.own.asked < rarePause) {
		return false
	}
	s.own.asked, s.many.skipped = max(now, 1), false
	return true
}

// findBoth reads candidates that name this worker or want several workers, wherever they lie.
func (s *Seeker) findBoth(ctx context.Context, q store.DueQuery) (found []*model.Task, took time.Duration, err error) {
	var own, several []*model.Task
	err = s.many.pace.Do(func() (err error) {
		began := s.clock.Monotonic()
		l := s.Several.Begin(q.Types, s.Store.Clock.Now(), began, true)
		q.Skip, q.Priorities, q.From, q.Own = 0, nil, time.Time{}, true
		found, err = s.DueMany(ctx, q)
		took = s.clock.Monotonic() - began
		for _, t := range found {
			if slices.Contains(t.Audience, lifecycle.AudienceMany) {
				several = append(several, t)
			} else {
				own = append(own, t)
				s.Queue.Hear(t, began)
			}
		}
		if err == nil && len(found) < s.readable(q.Limit, len(found)) {
			s.Several.End(l, several, true)
		}
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.ownFull = s.own.asked
	}
	s.own.learn(own)
	s.many.some = len(several) > 0
	return found, took, err
}

// findOwn reads candidates that name this worker. They go before others of their priority,
// but the index orders a priority by time alone.
func (s *Seeker) findOwn(ctx context.Context, q store.DueQuery, l Look) ([]*model.Task, error) {
	now := s.clock.Monotonic()
	s.mu.Lock()
	ask, whole := s.own.ask(now), now-s.ownFull >= rarePause
	s.mu.Unlock()
	if !ask {
		return nil, nil
	}
	q.Skip, q.Priorities, q.From = 0, l.Priorities, l.From
	own, err := []*model.Task(nil), error(nil)
	if !whole {
		own, err = s.DueOwn(ctx, q)
	}
	if whole || err == nil && len(own) == 0 { // those of a priority may have come to their end
		whole, q.Priorities, q.From = true, nil, time.Time{}
		own, err = s.DueOwn(ctx, q)
	}
	for _, t := range own {
		s.Queue.Hear(t, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if whole {
		s.ownFull = now
	}
	s.own.learn(own)
	return own, err
}

// findSeveral reads candidates among the tasks that want several workers, and says how long the
// query took.
func (s *Seeker) findSeveral(ctx context.Context, q store.DueQuery) (found []*model.Task, took time.Duration, err error) {
	s.mu.Lock()
	ask := s.many.ask()
	if !s.many.some {
		q.Skip = 0 // of these there may be few where there are many of the others
	}
	s.mu.Unlock()
	if !ask {
		return nil, 0, nil
	}
	err = s.many.pace.Do(func() (err error) {
		began := s.clock.Monotonic()
		l := s.Several.Begin(q.Types, s.Store.Clock.Now(), began, q.Skip > 0)
		q.Priorities, q.From = l.Priorities, l.From
		found, err = s.DueMany(ctx, q)
		took = s.clock.Monotonic() - began
		if q.Skip > 0 && err == nil && len(found) == 0 {
			q.Skip = 0
			found, err = s.DueMany(ctx, q)
		}
		if err == nil && q.Skip == 0 {
			s.Several.End(l, found, len(found) < s.readable(q.Limit, len(found)))
		}
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.many.some = len(found) > 0
	return found, took, err
}

// Candidates looks once for the next tasks of one type, which are to be claimed later. Like all
// due queries its own begin where the queue did when it was last seen. own is for the type's tasks
// that name this worker; one goroutine at a time may use it.
func (s *Seeker) Candidates(ctx context.Context, q store.DueQuery, own *Rarely) ([]*model.Task, error) {
	now, whole := s.clock.Monotonic(), s.Refused.Full()
	l := s.Queue.Begin(q.Types, s.Store.Clock.Now(), now, whole)
	q.Priorities, q.From = l.Priorities, l.From
	found, _, err := s.Due(ctx, q, false)
	if err != nil {
		return nil, err
	}
	complete := len(found) < q.Limit
	s.Queue.End(l, found, complete)
	if !complete && own.ask(now) { // else it has seen all that name this worker
		named, err := s.DueOwn(ctx, q)
		if err != nil {
			return nil, err
		}
		own.learn(named)
		found = append(found, named...)
	}
	l = s.Several.Begin(q.Types, s.Store.Clock.Now(), now, whole)
	q.Priorities, q.From = l.Priorities, l.From
	several, err := s.DueMany(ctx, q)
	if err == nil {
		s.Several.End(l, several, len(several) < q.Limit)
	}
	return append(found, several...), err
}

// Skipped returns when the tasks that want several workers are queried again, if the last look
// left them out; ok is false if it did not.
func (s *Seeker) Skipped() (in time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.many.pace.Left(), s.many.skipped
}

// NothingSkipped records a look that queried no type at all.
func (s *Seeker) NothingSkipped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.many.skipped = false
}

// rarePause is the time between separate queries for tasks of which there were none.
const rarePause = time.Second

// manyTasks decides when to query tasks that want several workers, which takes a separate
// query: always while there are some, else once a second.
type manyTasks struct {
	pace    *clock.Pacer
	some    bool
	skipped bool // the last look did not ask
}

func (m *manyTasks) ask() bool {
	m.skipped = !m.some && m.pace.Left() > 0
	return !m.skipped
}

// Rarely decides when to query tasks that name this worker separately: always while there are
// some, else once a second.
type Rarely struct {
	asked time.Duration
	some  bool
}

func (m *Rarely) ask(now time.Duration) bool {
	if !m.some && m.asked != 0 && now-m.asked < rarePause {
		return false
	}
	m.asked = max(now, 1)
	return true
}

func (m *Rarely) learn(found []*model.Task) { m.some = len(found) > 0 }

// unlabelledLook decides when a worker with labels looks at everybody's audience as well: while there
// are some that it finds only there always, else once in a while.
type unlabelledLook struct {
	at    time.Duration // monotonic
	every time.Duration
	some  bool
}

func (w *unlabelledLook) due(now time.Duration) bool {
	return w.some || w.at == 0 || now-w.at >= w.every
}
