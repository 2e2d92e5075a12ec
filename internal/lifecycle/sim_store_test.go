package lifecycle

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

// sim is one seeded schedule in virtual time: a store in memory, workers that crash,
// freeze and are cut off, people who cancel, change and send again. After a while all
// faults stop, and then everything must come to its end.
type sim struct {
	seed   uint64
	rng    *rand.Rand
	now    time.Time // the store's clock
	events eventQueue
	order  int
	calm   bool // faults have stopped

	tasks   map[string]*model.Task
	ids     []string
	lives   map[string]*simLife // by task id and generation
	workers []*simWorker
	lease   time.Duration
	execs   int

	trace func(format string, args ...any)
	fault error
	stats simStats
}

// simStats say what a schedule contained, so that a quiet simulation is noticed.
type simStats struct {
	Writes, Conflicts, Claims, Takeovers, Lapses, Timeouts, Errors, Successes, Fenced, Ambiguous, Settled,
	Crashes, Pauses, Partitions, Cancelled, Lives, Parked, Released, Stopped, Ended int
}

// simLife is what the checker knows of one life, from what was written and not from
// the counters in the document.
type simLife struct {
	failures       failures
	budget, widest int
	told           map[string]bool // exec ids whose workers were told that their success counts
	cleaned        map[string]bool // exec ids whose success a send took back
}

type event struct {
	at    time.Time
	order int
	do    func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }

func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q eventQueue) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].order < q[j].order
}

func (q *eventQueue) Push(e any) { *q = append(*q, e.(event)) }

func (q *eventQueue) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}

func (s *sim) after(d time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, event{s.now.Add(d), s.order, do})
}

func (s *sim) runUntil(end time.Time) {
	for s.fault == nil && len(s.events) > 0 && !s.events[0].at.After(end) {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	s.now = end
}

func (s *sim) fail(format string, args ...any) {
	if s.fault == nil {
		s.fault = fmt.Errorf("seed %d at %v: %w", s.seed, s.now.Sub(epoch), fmt.Errorf(format, args...))
	}
}

func (s *sim) millis(from, to int) time.Duration {
	return time.Duration(from+s.rng.IntN(to-from+1)) * time.Millisecond
}

func (s *sim) chance(percent int) bool { return s.rng.IntN(100) < percent }

func lifeKey(t *model.Task) string { return fmt.Sprintf("%s@%d", t.ID, t.Generation) }

func (s *sim) lifeOf(t *model.Task) *simLife {
	l := s.lives[lifeKey(t)]
	if l == nil {
		l = &simLife{failures: failures{}, told: map[string]bool{}, cleaned: map[string]bool{}}
		s.lives[lifeKey(t)] = l
	}
	return l
}

// write is the store's one guarded update: it is done if generation and rev are those
// that the decision saw, and, over a lapsed lease, if that lease is still lapsed at the
// decider's time. Only what the decision changed is written: what a ping moved in
// between stays. eff are the options by which the decider judged: a worker's are those
// of its claim.
func (s *sim) write(before, after *model.Task, eff Effective, lapsed string, at time.Time) bool {
	cur := s.tasks[before.ID]
	if cur.Generation != before.Generation || cur.Rev != before.Rev {
		s.stats.Conflicts++
		return false
	}
	if lapsed != "" {
		if _, w := ExecutionOf(cur, lapsed); w == nil || !Lapsed(w, at) {
			s.stats.Conflicts++
			return false
		}
	}
	merged := *after
	merged.WorkerStates = slices.Clone(after.WorkerStates)
	for i := range min(len(before.WorkerStates), len(merged.WorkerStates)) {
		b, a := &before.WorkerStates[i], &merged.WorkerStates[i]
		if b.ExecID == a.ExecID && b.PingExpireTime.Equal(a.PingExpireTime) {
			a.PingExpireTime = cur.WorkerStates[i].PingExpireTime
		}
	}
	if before.LapseAt.Equal(after.LapseAt) {
		merged.LapseAt = cur.LapseAt
	}
	s.stats.Writes++
	s.check(cur, &merged, eff, at)
	s.tasks[before.ID] = &merged
	return true
}

// check is what holds for every write, whoever made it.
func (s *sim) check(before, after *model.Task, eff Effective, at time.Time) {
	if after.Rev <= before.Rev || after.Generation < before.Generation {
		s.fail("%s: rev %d.%d became %d.%d", before.ID, before.Generation, before.Rev, after.Generation, after.Rev)
	}
	life := s.lifeOf(after)
	life.widest, life.budget = max(life.widest, Wanted(after)), max(life.budget, *eff.Retry.MaxErrors)
	for i := range before.WorkerStates {
		b := &before.WorkerStates[i]
		_, a := ExecutionOf(after, b.ExecID)
		if !Open(b) {
			cleaned := a != nil && a.FailKind == failkind.Cleaned && a.FailTime.Equal(b.SuccessTime) // a send took the success back
			if cleaned {
				life.cleaned[b.ExecID] = true
				delete(life.told, b.ExecID)
			}
			reset := a != nil && a.FailKind == failkind.Cleaned && (Costs(b.FailKind) || b.FailKind == failkind.Lapsed) // or the failure
			if a != nil && !cleaned && !reset && (!a.SuccessTime.Equal(b.SuccessTime) || !a.FailTime.Equal(b.FailTime) || a.FailKind != b.FailKind) {
				s.fail("%s: execution %s had ended and ended again", before.ID, b.ExecID)
			}
			continue
		}
		if a == nil {
			s.fail("%s: the open execution %s vanished", before.ID, b.ExecID)
		} else if !Open(a) {
			s.ended(before, b, a)
		}
	}
	if after.Generation == before.Generation {
		life.failures.wrote(before, after)
	}
	if were := life.failures.count(); after.ErrorCount != were.errors || after.LapseCount != were.lapses {
		s.fail("%s counts %d errors and %d lapses; there were %d and %d", after.ID, after.ErrorCount, after.LapseCount, were.errors, were.lapses)
	}
	if after.ErrorCount > life.budget+life.widest {
		s.fail("%s: %d errors with a budget of %d and %d workers", after.ID, after.ErrorCount, life.budget, life.widest)
	}
	if n := OpenExecutions(after) + Successes(after); n > Wanted(after) && n > OpenExecutions(before)+Successes(before) {
		s.fail("%s: %d executions hold it or have done it, %d are wanted", after.ID, n, Wanted(after))
	}
	lapse := after.LapseAt
	after.LapseAt = lapseAt(after) // a ping may have moved it: early is allowed, late is not
	if lapse.After(after.LapseAt) || lapse.IsZero() != after.LapseAt.IsZero() {
		s.fail("%s: lapse_at %v is after the earliest lease %v", after.ID, lapse, after.LapseAt)
	}
	if err := stateFault(after, eff, at); err != nil {
		s.fail("%s: %w", after.ID, err)
	}
	after.LapseAt = lapse
	if after.Status.Ended() && !before.Status.Ended() {
		s.stats.Ended++
		if after.Status == model.StatusCancelled {
			s.stats.Cancelled++
		}
	}
	if after.Generation != before.Generation {
		s.stats.Lives++
	}
}

// ended records how an execution ended.
func (s *sim) ended(t *model.Task, open, end *model.WorkerState) {
	w := s.worker(open.WorkerID)
	h := w.held[open.ExecID]
	switch end.FailKind {
	case "":
		s.stats.Successes++
		return
	case failkind.Lapsed:
		s.stats.Lapses++
		if w.faultyAt.Before(open.ClaimedAt.Add(-s.lease)) && !w.frozen() && !w.cut() {
			s.fail("%s: execution %s of the healthy worker %s was found lapsed", t.ID, open.ExecID, w.id)
		}
	case failkind.Error, failkind.Fatal, failkind.Panic, failkind.Timeout:
		s.stats.Errors++
		if end.FailKind == failkind.Timeout {
			s.stats.Timeouts++
		}
	case failkind.Released:
		s.stats.Released++
	}
	// Whoever ends another's execution must be sure that its handler was told to stop:
	// only a frozen process may still run it, and its result is refused.
	justBack := s.now.Before(w.frozenTo.Add(200 * time.Millisecond))
	if end.FailKind == failkind.Lapsed && h != nil && h.running && !justBack {
		s.fail("%s: %s still runs %s, whose lease is taken from it", t.ID, w.id, open.ExecID)
	}
}

func (s *sim) worker(id string) *simWorker {
	i := slices.IndexFunc(s.workers, func(w *simWorker) bool { return w.id == id })
	return s.workers[i]
}
