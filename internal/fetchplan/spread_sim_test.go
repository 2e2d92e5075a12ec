package fetchplan

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// fleet simulates workers on one queue, in virtual time: a worker finds tasks, and a moment
// later claims what it saw; whatever somebody claimed in between is lost.
type fleet struct {
	random  *rand.Rand
	queue   [input.MaxPriority + 1][]*simTask // in order; claimed ones are dropped lazily
	stale   [input.MaxPriority + 1]int        // how many of them are claimed
	workers []*simWorker
	slots   int
	steps   steps
	now     time.Duration
	left    int

	order                    []int // ids as they were won
	attempted, finds, walked int
	batches, readBack        int       // batches claimed, and those of which some were lost
	live                     []newTask // sent while the fleet works, in order
}

type newTask struct {
	at time.Duration
	t  *simTask
}

type simTask struct {
	model.Task
	id      int
	claimed bool
	wonAt   time.Duration
}

type simWorker struct {
	rank   int
	known  int           // so many workers it knows of
	diesAt time.Duration // 0 = it lives on
	slow   int           // it takes so many times as long as others; 0 = once
	spread spread
	sight  claim.Sight
}

// step is what a worker does at a time: claim what it has seen, then look again.
type step struct {
	at     time.Duration
	worker int
	seen   []*model.Task
	took   time.Duration
	find   bool
}

type steps []step

func (s steps) Len() int           { return len(s) }
func (s steps) Less(i, j int) bool { return s[i].at < s[j].at }
func (s steps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)        { *s = append(*s, x.(step)) } //nolint:forcetypeassert // only steps are pushed
func (s *steps) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// simStart is the database's time when a simulation begins.
var simStart = time.UnixMilli(1_700_000_000_000).UTC()

// newFleet makes one on a backlog whose tasks became due one after the other within the span.
func newFleet(workers, backlog, slots int, span time.Duration) *fleet {
	f := &fleet{random: rand.New(rand.NewPCG(7, uint64(workers))), slots: slots, now: time.Minute}
	for i := range backlog {
		f.add(&simTask{id: i, Task: model.Task{Type: "t", Priority: 5, DueAt: simStart.Add(-time.Hour + time.Duration(float64(span)*float64(i)/float64(backlog))).Truncate(time.Millisecond)}})
	}
	for range workers {
		f.workers = append(f.workers, &simWorker{rank: len(f.workers), known: workers})
	}
	return f
}

// bunch has the tasks of the backlog become due at so few moments, as when few sends made them.
func (f *fleet) bunch(moments int) {
	q := f.queue[5]
	each := len(q) / moments
	for i, t := range q {
		t.DueAt = q[i/each*each].DueAt
	}
}

func (f *fleet) add(t *simTask) {
	t.ID = fmt.Sprint(t.id)
	q := f.queue[t.Priority]
	i := sort.Search(len(q), func(i int) bool { return q[i].DueAt.After(t.DueAt) })
	f.queue[t.Priority] = slices.Insert(q, i, t)
	f.left++
}

func (f *fleet) wall() time.Time { return simStart.Add(f.now - time.Minute) }

// run goes on until all tasks are claimed.
func (f *fleet) run(t *testing.T) {
	t.Helper()
	by := map[string]*simTask{}
	for _, q := range f.queue {
		for _, task := range q {
			by[task.ID] = task
		}
	}
	for _, n := range f.live {
		by[fmt.Sprint(n.t.id)] = n.t
	}
	for w := range f.workers {
		f.workers[w].spread.crowd(f.workers[w].known)
		heap.Push(&f.steps, step{at: f.now + time.Duration(f.random.IntN(30))*time.Millisecond, worker: w, find: true})
	}
	for f.left > 0 || len(f.live) > 0 {
		s := heap.Pop(&f.steps).(step) //nolint:forcetypeassert // as above
		f.now = s.at
		require.Less(t, f.now, time.Hour, "stalled with %d left", f.left)
		for len(f.live) > 0 && f.live[0].at <= f.now {
			f.add(f.live[0].t)
			f.live = f.live[1:]
		}
		w := f.workers[s.worker]
		if w.diesAt > 0 && f.now >= w.diesAt {
			continue
		}
		if s.find {
			seen := f.look(w)
			if len(seen) > 0 {
				took := time.Duration(max(w.slow, 1)) * f.ms(50, 150)
				heap.Push(&f.steps, step{at: s.at + took, took: took, worker: s.worker, seen: seen})
			} else {
				heap.Push(&f.steps, step{at: s.at + f.ms(750, 1250), worker: s.worker, find: true})
			}
			continue
		}
		won, lost := 0, 0
		for _, seen := range s.seen {
			task := by[seen.ID]
			if task.claimed {
				lost++
				continue
			}
			task.claimed, task.wonAt = true, f.now
			f.stale[task.Priority]++
			won++
			f.left--
			f.order = append(f.order, task.id)
		}
		f.attempted += len(s.seen)
		f.batches++
		if lost > 0 {
			f.readBack++
		}
		w.spread.learn(won, lost, w.known)
		heap.Push(&f.steps, step{at: s.at + max(f.ms(20, 150), w.spread.rest(s.took)), worker: s.worker, find: true})
	}
}

func (f *fleet) ms(from, to int) time.Duration {
	return time.Duration(from+f.random.IntN(to-from)) * time.Millisecond
}

// look is what [Consumer.fetch] does.
func (f *fleet) look(w *simWorker) []*model.Task {
	w.spread.stand(w.rank, f.wall())
	for {
		l := w.sight.Begin([]string{"t"}, f.wall(), f.now, false)
		if w.spread.wantsTail(f.now) {
			w.spread.sawTail(f.tail(w.spread.field), f.now)
			f.finds++
			f.walked++
		}
		a := w.spread.look(f.slots, f.slots, w.known, f.now, f.random)
		priorities, from := a.place(l)
		found := f.find(priorities, from, a)
		if a.atHead && !a.scout {
			w.sight.End(l, found, len(found) < a.take)
		}
		if !w.spread.saw(a, found, w.known, f.now, f.random) {
			return found
		}
	}
}

func (f *fleet) tail(in field) (tail time.Time) {
	for _, t := range slices.Backward(f.queue[in.priority]) {
		if !t.claimed {
			return t.DueAt
		}
	}
	return tail
}

func (f *fleet) find(priorities []int, from time.Time, a Aim) (found []*model.Task) {
	if priorities == nil {
		priorities = []int{0, input.MaxPriority}
	}
	f.finds++
	f.walked++
	skip := a.skip
	for p := priorities[len(priorities)-1]; p >= priorities[0]; p-- {
		if f.stale[p] > len(f.queue[p])/8 {
			f.queue[p] = slices.DeleteFunc(f.queue[p], func(t *simTask) bool { return t.claimed })
			f.stale[p] = 0
		}
		q := f.queue[p]
		at := sort.Search(len(q), func(i int) bool { return !q[i].DueAt.Before(from) })
		for _, t := range q[at:] {
			if len(found) == a.take {
				return found
			}
			if t.claimed {
				continue
			}
			f.walked++
			if skip > 0 {
				skip--
				continue
			}
			found = append(found, &t.Task)
		}
	}
	return found
}
