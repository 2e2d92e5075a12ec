package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/stream"
	"github.com/mscheduler/mscheduler/model"
)

// follower claims what events named, without a search. Of the workers that see the same
// event one writes first, see [stream.Ranks]. What has to wait, for that or for its start time,
// waits away from the goroutine that reads the stream.
type follower struct {
	c     *Consumer
	ranks *stream.Ranks
	late  chan []pending
}

// pending is a task to claim in a moment.
type pending struct {
	at   time.Time // the store's
	id   string
	task *model.Task // nil: another watcher may claim it before, so look first
}

const (
	// lateQueue is how many lists of tasks may wait to be taken in. One that finds no
	// place is left to a fetch.
	lateQueue = 256
	// soon is how far off the start of a task may lie that is kept. The clocks of sender
	// and worker are estimates: what is due at once may be a few milliseconds off.
	soon = time.Second
)

func newFollower(c *Consumer, ranks *stream.Ranks) *follower {
	return &follower{c: c, ranks: ranks, late: make(chan []pending, lateQueue)}
}

// Follow takes events and claims those that are this worker's to claim at once.
func (f *follower) Follow(ctx context.Context, woken []store.Woken) error {
	f.c.lapses.Hint()
	for _, w := range woken {
		if _, typ, _, err := input.ParseTaskID(w.ID); err == nil && f.c.handlerOf(typ) != nil {
			f.c.typeScan.Heard(typ)
		}
	}
	if !f.c.watch.Idle() {
		f.hear(woken)
		f.c.wake.now() // the next fetch finds it, in one batch with what waits already
		return nil
	}
	mine, read, late := f.sort(woken, f.c.store.Clock.Stamp())
	if len(late) > 0 {
		select {
		case f.late <- late:
		default:
			f.hear(woken)
			f.c.wake.now()
			f.c.wake.at(late[len(late)-1].at)
		}
	}
	known, _, err := f.read(ctx, read)
	if err != nil {
		return err
	}
	return f.claim(ctx, append(mine, known...))
}

// hear makes sure that the next fetch finds the tasks of the events. An event of a change has only
// the id, so the fetch must look at everything.
func (f *follower) hear(woken []store.Woken) {
	for _, w := range woken {
		if w.Task != nil {
			f.c.seeker.Hear(w.Task)
		} else if _, typ, _, err := input.ParseTaskID(w.ID); err == nil && f.c.handlerOf(typ) != nil {
			f.c.seeker.Refused.Lift(w.ID)
			f.c.seeker.Forget()
		}
	}
}

// sort says of each event whether its task is to be claimed as it is, to be read, or to
// wait. What starts later than soon is left to a timer and a fetch. A task that is due from when it
// was sent does not wait for an estimate that lags.
func (f *follower) sort(woken []store.Woken, stamp store.Stamp) (mine []*model.Task, read []string, late []pending) {
	now := stamp.Now
	for _, w := range woken {
		if _, typ, _, err := input.ParseTaskID(w.ID); err != nil || f.c.handlerOf(typ) == nil {
			continue
		}
		delay, due := f.ranks.Delay(w.ID), now
		if w.Task != nil {
			if w.Task.DueAt.IsZero() {
				continue // it is not to be claimed
			}
			if w.Task.DueAt.After(stamp.After(w.Task).Now) {
				due = w.Task.DueAt
			}
		}
		switch {
		case due.Sub(now) > soon:
			f.c.seeker.Hear(w.Task)
			f.c.wake.at(due)
		case delay > 0:
			late = append(late, pending{at: due.Add(delay), id: w.ID})
		case due.After(now):
			late = append(late, pending{at: due, id: w.ID, task: w.Task})
		case w.Task != nil:
			mine = append(mine, w.Task)
		default:
			read = append(read, w.ID)
		}
	}
	return mine, read, late
}

// FollowLate claims what had to wait, at its time.
func (f *follower) FollowLate(ctx context.Context) {
	var queue []pending // the earliest first
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if len(queue) > 0 {
			wait = queue[0].at.Sub(f.c.store.Clock.Now())
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case more := <-f.late:
			queue = append(queue, more...)
			slices.SortStableFunc(queue, func(a, b pending) int { return a.at.Compare(b.at) })
		case <-timer.C:
			now := f.c.store.Clock.Now()
			n, _ := slices.BinarySearchFunc(queue, now, func(p pending, now time.Time) int {
				if p.at.After(now) {
					return 1
				}
				return -1
			})
			err := f.claimLate(ctx, queue[:n])
			if err != nil && ctx.Err() == nil {
				f.c.health.Report(err)
				f.c.seeker.Forget()
				f.c.wake.now() // the fetch finds them
			}
			queue = slices.Delete(queue, 0, n)
		}
	}
}

// claimLate claims what is due of this worker's own, and what the others have left.
func (f *follower) claimLate(ctx context.Context, items []pending) error {
	var mine []*model.Task
	var ids []string
	for _, p := range items {
		if p.task != nil {
			mine = append(mine, p.task)
		} else {
			ids = append(ids, p.id)
		}
	}
	free, taken, err := f.read(ctx, ids)
	if err != nil {
		return err
	}
	f.ranks.Waited(taken, len(free))
	return f.claim(ctx, append(mine, free...))
}

// read returns the tasks that are due now, and how many somebody has taken.
func (f *follower) read(ctx context.Context, ids []string) (due []*model.Task, taken int, err error) {
	if len(ids) == 0 {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	if most := f.c.store.Tasks.Fit(len(ids)); most < len(ids) {
		ids = ids[:most]
		f.c.wake.now() // a fetch finds the others
	}
	tasks, err := f.c.store.Tasks.ByIDs(ctx, ids)
	if err != nil {
		return nil, 0, err
	}
	now := f.c.store.Clock.Now()
	for _, id := range ids {
		switch t := tasks[id]; {
		case t == nil || t.DueAt.IsZero():
			taken++
		case t.DueAt.After(now):
			f.c.seeker.Hear(t)
			f.c.wake.at(t.DueAt)
		default:
			due = append(due, t)
		}
	}
	return due, taken, nil
}

// claim claims tasks that are known, as far as there is room; the rest is left to a
// fetch.
func (f *follower) claim(ctx context.Context, tasks []*model.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	c := f.c
	c.claiming.Lock()
	defer c.claiming.Unlock()
	if err := c.control.Fresh(ctx); err != nil {
		return err
	}
	room := c.room(c.held.count())
	var now []*model.Task
	left := false
	for _, t := range eachOnce(tasks) {
		switch {
		case !mayBeFor(t, c.cfg.WorkerID), !lifecycle.ConditionsMet(c.only, t), c.recent.has(t):
		case len(now) >= room || c.waits(t.Type):
			c.seeker.Hear(t)
			left = true
		default:
			now = append(now, t)
		}
	}
	if left {
		c.wake.now()
	}
	out, err := c.claim(ctx, now, nil)
	if err == nil && out.Lost+out.Unwritable > 0 {
		f.ranks.Lost()
		f.again(now)
	}
	if out.Claims() == len(now) {
		c.recent.add(now, c.cfg.Clock.Monotonic())
	}
	return err
}

// again makes a fetch look at tasks that were lost to other workers, if they want several. Such a task may still have
// a place for this worker, and no event announces it.
func (f *follower) again(lost []*model.Task) {
	for _, t := range lost {
		if lifecycle.Wanted(t) > 1 {
			f.c.seeker.Hear(t)
			f.c.wake.now()
		}
	}
}

// eachOnce leaves out all but the newest copy of each task. A task that was woken twice has two
// events, and a batch that names it twice would win it twice: all claims of a batch have one exec id.
func eachOnce(tasks []*model.Task) []*model.Task {
	newest := make(map[string]*model.Task, len(tasks))
	for _, t := range tasks {
		if known := newest[t.ID]; known == nil || t.Generation > known.Generation || t.Generation == known.Generation && t.Rev > known.Rev {
			newest[t.ID] = t
		}
	}
	if len(newest) == len(tasks) {
		return tasks
	}
	return slices.DeleteFunc(slices.Clone(tasks), func(t *model.Task) bool {
		first := newest[t.ID] == t
		if first {
			delete(newest, t.ID) // of one copy that is there twice, too
		}
		return !first
	})
}

// mayBeFor looks at the audience, as a query would.
func mayBeFor(t *model.Task, workerID string) bool {
	for _, a := range t.Audience {
		if a == workerID || a == lifecycle.AudienceAll || a == lifecycle.AudienceMany {
			return true
		}
	}
	return false
}

// recently remembers what this worker tried to claim a moment ago, so that an event that
// comes after the fetch which found its task does not make it claim the task again. It
// forgets after between one and two spans, and early when there is much: a second claim
// of the same is refused by the server all the same. The caller holds claiming.
type recently struct {
	new, old map[string]tried // by task id
	since    time.Duration
}

type tried struct{ generation, rev int64 }

const (
	recentSpan = 5 * time.Second
	recentMost = 20_000
)

func (r *recently) add(tasks []*model.Task, now time.Duration) {
	if r.new == nil || now-r.since > recentSpan || len(r.new) > recentMost {
		r.old, r.new, r.since = r.new, make(map[string]tried, len(tasks)), now
	}
	for _, t := range tasks {
		r.new[t.ID] = tried{t.Generation, t.Rev}
	}
}

// has says whether the task was tried as it is here, or as it was later.
func (r *recently) has(t *model.Task) bool {
	for _, m := range []map[string]tried{r.new, r.old} {
		if last, known := m[t.ID]; known && (t.Generation < last.generation || t.Generation == last.generation && t.Rev <= last.rev) {
			return true
		}
	}
	return false
}
