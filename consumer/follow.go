package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// follower claims what events named, without a search. Of the workers that see the same
// event one writes first, see [ranks]; the others wait, away from the goroutine that
// reads the stream, and look before they write.
type follower struct {
	c     *Consumer
	late  chan []string // tasks that another watcher may claim first
	doubt chan struct{} // somebody else claimed what was ours: who watches?

	mu    sync.Mutex
	ranks ranks
}

// lateQueue is how many lists of tasks may wait for their turn. One that finds no place
// is left to the next fetch.
const lateQueue = 256

func newFollower(c *Consumer) *follower {
	return &follower{c: c, late: make(chan []string, lateQueue), doubt: make(chan struct{}, 1)}
}

func (f *follower) learn(w store.Watching) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ranks.learn(w)
}

// turn is how late this watcher looks for what others know to be due then, too.
func (f *follower) turn(due time.Time, workers int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ranks.turn(due, true, workers, 0)
}

// lost notes that somebody else claimed what was this worker's: others do take part.
func (f *follower) lost() {
	f.mu.Lock()
	f.ranks.missed = 0
	f.mu.Unlock()
	token(f.doubt)
}

// follow takes events and claims those that are this worker's to claim at once.
func (f *follower) follow(ctx context.Context, woken []store.Woken) error {
	token(f.c.stirred)
	if !f.c.idle() {
		f.c.wake.now() // the next fetch finds it, in one batch with what waits already
		return nil
	}
	now := f.c.store.Clock.Now()
	var mine []*model.Task
	var read, late []string
	f.mu.Lock()
	for _, w := range woken {
		first := f.ranks.delay(w.ID) == 0
		_, typ, _, err := model.ParseTaskID(w.ID)
		switch {
		case err != nil || f.c.handlerOf(typ) == nil:
		case w.Task != nil && w.Task.DueAt.IsZero(): // it is not to be claimed
		case w.Task != nil && w.Task.DueAt.After(now):
			f.c.wake.at(w.Task.DueAt)
		case !first:
			late = append(late, w.ID)
		case w.Task != nil:
			mine = append(mine, w.Task)
		default:
			read = append(read, w.ID)
		}
	}
	f.mu.Unlock()
	if len(late) > 0 {
		select {
		case f.late <- late:
		default:
			f.c.wake.now()
		}
	}
	known, _, err := f.read(ctx, read)
	if err != nil {
		return err
	}
	return f.claim(ctx, append(mine, known...))
}

// followLate claims, a moment later, what another watcher left. What gathers meanwhile
// is looked at together.
func (f *follower) followLate(ctx context.Context) {
	for {
		var ids []string
		select {
		case <-ctx.Done():
			return
		case ids = <-f.late:
		}
		sleep(ctx, rankDelay*(store.StreamsPerTypes-1))
		for more := true; more; {
			select {
			case next := <-f.late: // it waits a little less, which costs a read at most
				ids = append(ids, next...)
			default:
				more = false
			}
		}
		free, taken, err := f.read(ctx, ids)
		if err == nil {
			f.mu.Lock()
			f.ranks.waited(taken, len(free))
			f.mu.Unlock()
			err = f.claim(ctx, free)
		}
		if err != nil && ctx.Err() == nil {
			f.c.health.report(f.c, err)
			f.c.wake.now() // the fetch finds them
		}
	}
}

// read returns the tasks that are due now, and how many somebody has taken.
func (f *follower) read(ctx context.Context, ids []string) (due []*model.Task, taken int, err error) {
	if len(ids) == 0 {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	tasks, err := f.c.store.ByIDs(ctx, ids)
	if err != nil {
		return nil, 0, err
	}
	now := f.c.store.Clock.Now()
	for _, id := range ids {
		switch t := tasks[id]; {
		case t == nil || t.DueAt.IsZero():
			taken++
		case t.DueAt.After(now):
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
	if err := c.control.fresh(ctx, c); err != nil {
		return err
	}
	room := c.room(c.held.count())
	var now []*model.Task
	left := false
	for _, t := range tasks {
		switch {
		case !mayBeFor(t, c.cfg.WorkerID), c.recent.has(t):
		case len(now) >= room || c.control.paused(t.Type):
			left = true
		default:
			now = append(now, t)
		}
	}
	if left {
		c.wake.now()
	}
	took, lost, err := c.claim(ctx, now)
	if err == nil && lost > 0 {
		f.lost()
	}
	if took+lost == len(now) {
		c.recent.add(now, c.cfg.Clock.Monotonic())
	}
	return err
}

// mayBeFor looks at the audience, as a query would.
func mayBeFor(t *model.Task, workerID string) bool {
	for _, a := range t.Audience {
		if a == workerID || a == model.AudienceAll || a == model.AudienceMany {
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
