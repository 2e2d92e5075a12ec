package claim

import (
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Sight is a worker's knowledge of the queue from earlier looks: the priorities in use, and
// where the queue of each type and priority begins. MongoDB keeps deleted keys in its indexes
// for minutes, and a query walks over those in its range. A query that names the priorities in
// use and starts at the head walks over few of them.
//
// A head is never later than the time of its look less a margin, because a task that is sent
// afterwards is due at its sender's idea of now. A straggler still lies before the head: a task
// sent with an old start time, or given back at its old place. The process that writes one calls
// [Sight.Hear], as does a process that sees its event. A full look, without a bound and without
// priorities, finds all others; one is due every [FullEvery].
//
// Sight does no I/O and reads no clock. It is safe for concurrent use.
type Sight struct {
	mu    sync.Mutex
	types map[string]*queue
	used  [levels]time.Duration // monotonic: when a task of the priority was last seen; 0 = not in use
	heard int                   // number of calls of Hear
}

// queue is the knowledge of one type.
type queue struct {
	full  time.Duration     // monotonic: when the last full look began
	heads [levels]time.Time // by priority: no task is due before, as far as is known; zero = not known
}

const (
	levels = input.MaxPriority + 1
	// FullEvery is the time between full looks: how late a straggler, or the first task of a
	// priority, may be found.
	FullEvery = 2 * time.Second
	// headMargin covers the way of a new task to the server, and the error of the clocks.
	headMargin = time.Second
	// usedFor is how long a priority stays in use although full looks see no task of it.
	usedFor = 10 * time.Second
	// maxTypes bounds the memory of a process that serves ever new types.
	maxTypes = 10_000
)

// Look is one look at the queue.
type Look struct {
	From       time.Time // tasks due before are not looked at; zero = no bound
	Priorities []int     // in use, ascending; nil = all

	types []string
	now   time.Time // the database's time when it began
	began time.Duration
	heard int
}

// Full reports whether the look finds every task.
func (l Look) Full() bool { return l.Priorities == nil }

// Both combines two looks for one query that reads two queues.
func Both(a, b Look) (priorities []int, from time.Time) {
	if a.Full() || b.Full() {
		return nil, time.Time{}
	}
	priorities = append(slices.Clone(a.Priorities), b.Priorities...)
	slices.Sort(priorities)
	from = a.From
	if b.From.Before(from) {
		from = b.From
	}
	return slices.Compact(priorities), from
}

// Begin returns how to look for tasks of the types now. whole requests a full look.
func (s *Sight) Begin(types []string, now time.Time, monotonic time.Duration, whole bool) Look {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Look{types: types, now: now, began: monotonic, heard: s.heard}
	if whole {
		return l
	}
	used := s.inUse()
	if len(used) == 0 {
		used = []int{lifecycle.DefaultPriority} // nothing was there: of all it is the most likely
	}
	from, known := now, true
	for _, typ := range types {
		q := s.types[typ]
		if q == nil || monotonic-q.full >= FullEvery {
			return l
		}
		for _, p := range used {
			head := q.heads[p]
			known = known && !head.IsZero()
			if head.After(now) {
				return l // the database's time went back, as it may in a failover
			}
			if head.Before(from) {
				from = head
			}
		}
	}
	l.Priorities = used
	if known {
		l.From = from
	}
	return l
}

// inUse are the priorities in use, ascending. The caller holds mu.
func (s *Sight) inUse() (used []int) {
	for p, at := range s.used {
		if at != 0 {
			used = append(used, p)
		}
	}
	return used
}

// End records the tasks that a look found, in the order of the queue. complete means that there
// were no more. A failed look is not recorded.
func (s *Sight) End(l Look, found []*model.Task, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(found, func(t *model.Task) bool { return t.Priority < 0 || t.Priority >= levels }) {
		return // written by something else: nothing is learned, so every look is a full one
	}
	lowest, last := 0, time.Time{} // the look saw all of the priorities above, and of this one all until then
	if !complete && len(found) > 0 {
		end := found[len(found)-1]
		lowest, last = end.Priority, end.DueAt
	}
	first := map[string]*[levels]time.Time{}
	for _, t := range found {
		s.used[t.Priority] = max(l.began, 1)
		of := first[t.Type]
		if of == nil {
			of = new([levels]time.Time)
			first[t.Type] = of
		}
		of[t.Priority] = clock.Sooner(of[t.Priority], t.DueAt)
	}
	from, to := 0, levels-1
	if !l.Full() {
		from, to = l.Priorities[0], l.Priorities[len(l.Priorities)-1]
	}
	for _, typ := range l.types {
		q := s.queueOf(typ)
		if l.Full() {
			q.full = l.began
		}
		for p := max(from, lowest); p <= to; p++ {
			at := l.now.Add(-headMargin)
			if of := first[typ]; of != nil {
				at = clock.Sooner(at, of[p])
			}
			if p == lowest {
				at = clock.Sooner(at, last)
			}
			if s.heard != l.heard && q.heads[p].Before(at) {
				at = q.heads[p] // what was named may have come after the look passed its place
			}
			q.heads[p] = at
		}
	}
	if l.Full() {
		s.age(lowest, l.began)
	}
}

// age forgets the priorities, from the given one on, that had no task for long. The priority
// that was seen last stays in use. The caller holds mu.
func (s *Sight) age(from int, now time.Duration) {
	latest := slices.Max(s.used[:])
	for p := from; p < levels; p++ {
		if s.used[p] < latest && now-s.used[p] >= usedFor {
			s.used[p] = 0
		}
	}
}

func (s *Sight) queueOf(typ string) *queue {
	q := s.types[typ]
	if q == nil {
		if s.types == nil || len(s.types) >= maxTypes {
			s.types = map[string]*queue{}
		}
		q = &queue{}
		s.types[typ] = q
	}
	return q
}

// Hear records a task that may be due now or later, because it may lie before the head or have
// a priority that is not in use.
func (s *Sight) Hear(t *model.Task, monotonic time.Duration) {
	if t.DueAt.IsZero() || t.Priority < 0 || t.Priority >= levels {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[t.Priority] = max(s.used[t.Priority], monotonic, 1)
	if q := s.types[t.Type]; q != nil && t.DueAt.Before(q.heads[t.Priority]) {
		q.heads[t.Priority] = t.DueAt
		s.heard++
	}
}

// Forget makes the next look at each type a full one, because a task may have appeared anywhere.
func (s *Sight) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.types = nil
}

// Priorities returns the priorities in use, ascending; nil = not known.
func (s *Sight) Priorities() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse()
}
