package scalemodel

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/fetchplan"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Crowd is workers that drain one queue, in virtual time. Each of them is the product's own plan
// ([fetchplan.Plan] with [claim.Sight]): it finds tasks, and a moment later claims what it saw.
// Whatever somebody else claimed in between is lost. How long that moment is depends on the server,
// which has so many cores and carries commands out in the order in which they arrive.
type Crowd struct {
	Workers []*Worker
	// Batch is how many tasks each look is for; 0 = as many as the plan has room for.
	Batch int
	// Cores of the server; 0 = no command waits for another.
	Cores int
	// Cost is for how long a command keeps a core busy.
	Cost func(Command) time.Duration
	// Pause is the least time from a claim to the next look; nil = none.
	Pause func() time.Duration
	// Live are the tasks that are sent while the crowd works, in the order of their times.
	Live []*Task

	Now   time.Duration // monotonic; a minute when it starts
	Order []int         // the numbers of the tasks as they were won
	// Tried counts the claims of single tasks, Claims those of batches, and ReadBack the batches
	// of which some were lost.
	Tried, Claims, ReadBack int
	// Finds counts the queries, and Keys the keys of the index due that they walked.
	Finds, Keys int

	random  *rand.Rand
	queue   [input.MaxPriority + 1][]*Task // in order; claimed ones are dropped lazily
	stale   [input.MaxPriority + 1]int     // how many of them are claimed
	tasks   map[*model.Task]*Task
	left    int
	steps   steps
	ordered int
	waiting []*call // for a core
	busy    int     // cores
}

// Command is one command of a crowd.
type Command struct {
	Kind  Kind
	Tasks int // found, claimed or ended
	Keys  int // that a find walks
	Lost  int // of a claim's tasks
	Slow  int // see [Worker.Slow]
}

// Kind is what a command does.
type Kind int

// The kinds of commands.
const (
	Find Kind = iota
	Claim
	End
)

// Task is one task of the queue.
type Task struct {
	model.Task
	N     int           // its number, unique
	At    time.Duration // when it is sent, if it is one of [Crowd.Live]
	WonAt time.Duration

	claimed bool
}

// Worker is one of the crowd.
type Worker struct {
	Rank, Known int           // among the workers that it knows of
	DiesAt      time.Duration // 0 = it lives on
	Slow        int           // its claims take so many times as long as others'; 0 = once

	plan  *fetchplan.Plan
	sight claim.Sight
	won   uint64
	began time.Duration // of its last look
}

// call is a command on its way.
type call struct {
	*Worker
	Command
	aim fetchplan.Aim
	got claim.Catch
	at  time.Duration // when it was carried out
}

// step is what happens at a time: a worker looks, or a command has been carried out.
type step struct {
	at    time.Duration
	order int // among steps of the same time
	looks *Worker
	done  *call
}

type steps []step

func (s steps) Len() int { return len(s) }
func (s steps) Less(i, j int) bool {
	return s[i].at < s[j].at || s[i].at == s[j].at && s[i].order < s[j].order
}
func (s steps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)   { *s = append(*s, x.(step)) } //nolint:forcetypeassert // only steps are pushed
func (s *steps) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// Start is the database's time when a crowd starts.
var Start = time.UnixMilli(1_700_000_000_000).UTC()

// NewCrowd makes one with so many slots each, on a backlog whose tasks became due one after the
// other within the span. The same seed makes the same run.
func NewCrowd(workers, backlog, slots int, span time.Duration, seed uint64) *Crowd {
	c := &Crowd{random: rand.New(rand.NewPCG(seed, uint64(workers))), Now: time.Minute, tasks: map[*model.Task]*Task{}}
	for i := range backlog {
		due := Start.Add(-time.Hour + time.Duration(float64(span)*float64(i)/float64(backlog))).Truncate(time.Millisecond)
		c.Add(&Task{N: i, Task: model.Task{Type: "t", Priority: 5, DueAt: due}})
	}
	for i := range workers {
		c.Workers = append(c.Workers, &Worker{Rank: i + 1, Known: workers, plan: fetchplan.New(slots, c.random)})
	}
	return c
}

// Bunch has the tasks of the backlog become due at so few moments, as when few sends made them.
func (c *Crowd) Bunch(moments int) {
	q := c.queue[5]
	each := len(q) / moments
	for i, t := range q {
		t.DueAt = q[i/each*each].DueAt
	}
}

// Add puts a task into the queue.
func (c *Crowd) Add(t *Task) {
	t.ID = fmt.Sprint(t.N)
	c.tasks[&t.Task] = t
	q := c.queue[t.Priority]
	i := sort.Search(len(q), func(i int) bool { return q[i].DueAt.After(t.DueAt) })
	c.queue[t.Priority] = slices.Insert(q, i, t)
	c.left++
}

// Wall is the database's time.
func (c *Crowd) Wall() time.Time { return Start.Add(c.Now - time.Minute) }

// MS is a random time between so many milliseconds.
func (c *Crowd) MS(from, to int) time.Duration {
	return time.Duration(from+c.random.IntN(to-from)) * time.Millisecond
}

// handlerTime is how long the handlers run: they are quick.
const handlerTime = time.Millisecond

// ErrStalled says that a crowd did not come to its end within an hour of its time.
var ErrStalled = errors.New("stalled")

// Run goes on until all tasks are claimed.
func (c *Crowd) Run() error {
	for _, w := range c.Workers {
		w.plan.Crowd(w.Known)
		c.then(step{at: c.Now + c.MS(0, 30), looks: w})
	}
	for c.left > 0 || len(c.Live) > 0 {
		s := heap.Pop(&c.steps).(step) //nolint:forcetypeassert // as above
		if c.Now = s.at; c.Now > time.Hour {
			return fmt.Errorf("%w with %d tasks left", ErrStalled, c.left)
		}
		for len(c.Live) > 0 && c.Live[0].At <= c.Now {
			c.Add(c.Live[0])
			c.Live = c.Live[1:]
		}
		if s.done != nil {
			c.busy--
			c.answer(s.done)
		} else if s.looks.alive(c.Now) {
			s.looks.began = c.Now
			c.send(&call{Worker: s.looks})
		}
		c.serve()
	}
	return nil
}

func (w *Worker) alive(now time.Duration) bool { return w.DiesAt == 0 || now < w.DiesAt }

func (w *Worker) held() fetchplan.Held { return fetchplan.Held{Started: w.won} }

func (c *Crowd) then(s step) {
	c.ordered++
	s.order = c.ordered
	heap.Push(&c.steps, s)
}

// send puts a command into the queue of the server.
func (c *Crowd) send(x *call) { c.waiting = append(c.waiting, x) }

// serve has the server begin what it has a core for.
func (c *Crowd) serve() {
	for len(c.waiting) > 0 && (c.Cores == 0 || c.busy < c.Cores) {
		x := c.waiting[0]
		c.waiting = c.waiting[1:]
		switch x.at = c.Now; x.Kind {
		case Find:
			c.look(x)
		case Claim:
			x.Lost = c.lost(x.got.Queue)
		case End:
		}
		x.Command.Slow = max(x.Worker.Slow, 1)
		c.busy++
		c.then(step{at: c.Now + c.Cost(x.Command), done: x})
	}
}

// look carries a find out: what consumer.search does.
func (c *Crowd) look(x *call) {
	w, keys := x.Worker, c.Keys
	w.plan.Stand(w.Rank, c.Wall())
	n := c.Batch
	if n == 0 {
		n = w.plan.Room(w.held(), w.Known <= 1, c.Now)
	}
	if first := w.plan.WantsTail(c.Now); first != nil {
		w.plan.SawTail(c.tail(first.Priority), c.Now)
		c.Finds++
		c.Keys++
	}
	x.aim = w.plan.Aim(n, w.held(), w.Known, c.Now)
	a := x.aim.For(false)
	l := w.sight.Begin([]string{"t"}, c.Wall(), c.Now, a.Whole)
	priorities, from := a.Place(l)
	x.got = claim.Catch{Queue: c.find(priorities, from, a.Skip, a.Take), Take: a.Take, At: c.Wall()}
	x.got.Tasks = x.got.Queue
	if !a.Scout {
		if x.got.AtHead, x.got.Full = a.AtHead, a.AtHead && l.Full(); a.AtHead {
			w.sight.End(l, x.got.Queue, x.got.Complete())
		}
	}
	x.Tasks, x.Keys = len(x.got.Queue), c.Keys-keys
}

// answer is what a worker does with the answer to a command.
func (c *Crowd) answer(x *call) {
	switch w := x.Worker; {
	case x.Kind == End || !w.alive(c.Now):
	case x.Kind == Claim:
		next := c.claim(x)
		c.then(step{at: next, looks: w})
	case w.plan.Saw(x.aim, x.got, w.Known, x.at):
		c.send(&call{Worker: w})
	case x.Tasks == 0:
		c.then(step{at: c.Now + c.MS(750, 1250), looks: w}) // a poll
	default:
		c.send(&call{Worker: w, Command: Command{Kind: Claim, Tasks: x.Tasks}, got: x.got})
	}
}

// lost is how many of the tasks somebody has claimed.
func (c *Crowd) lost(tasks []*model.Task) (n int) {
	for _, seen := range tasks {
		if c.tasks[seen].claimed {
			n++
		}
	}
	return n
}

// claim is the end of consumer.fetch; next is when the worker looks again.
func (c *Crowd) claim(x *call) (next time.Duration) {
	w, before, won := x.Worker, x.held(), 0
	for _, seen := range x.got.Queue {
		t := c.tasks[seen]
		if t.claimed {
			continue
		}
		t.claimed, t.WonAt = true, c.Now
		c.stale[t.Priority]++
		c.Order = append(c.Order, t.N)
		won++
		w.plan.Ran(handlerTime)
	}
	lost := x.Tasks - won
	c.left -= won
	w.won += uint64(won)
	c.Tried += x.Tasks
	c.Claims++
	if lost > 0 {
		c.ReadBack++
	}
	more, anew := w.plan.Done(fetchplan.Fetched{
		Got: x.got, Took: won, Lost: lost, Busy: c.Now - w.began, Workers: w.Known, Ended: c.Now,
	})
	if anew {
		w.sight.Forget()
	}
	w.plan.Learn(before, w.held(), c.Now-w.began, won, more)
	c.send(&call{Worker: w, Command: Command{Kind: End, Tasks: won}})
	next = c.Now
	if c.Pause != nil {
		next += c.Pause()
	}
	return max(next, w.plan.Next())
}

func (c *Crowd) tail(priority int) (tail time.Time) {
	for _, t := range slices.Backward(c.queue[priority]) {
		if !t.claimed {
			return t.DueAt
		}
	}
	return tail
}

func (c *Crowd) find(priorities []int, from time.Time, skip, take int) (found []*model.Task) {
	if priorities == nil {
		priorities = []int{0, input.MaxPriority}
	}
	c.Finds++
	c.Keys++
	for p := priorities[len(priorities)-1]; p >= priorities[0]; p-- {
		if c.stale[p] > len(c.queue[p])/8 {
			c.queue[p] = slices.DeleteFunc(c.queue[p], func(t *Task) bool { return t.claimed })
			c.stale[p] = 0
		}
		q := c.queue[p]
		at := sort.Search(len(q), func(i int) bool { return !q[i].DueAt.Before(from) })
		for _, t := range q[at:] {
			if len(found) == take {
				return found
			}
			if t.claimed {
				continue
			}
			c.Keys++
			if skip > 0 {
				skip--
				continue
			}
			found = append(found, &t.Task)
		}
	}
	return found
}
