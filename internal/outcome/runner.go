package outcome

import (
	"context"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Entry is one thing that must follow the end of one life of a task.
type Entry struct {
	ID    string           // unique for ever: carrying it out twice is the same as once
	Life  store.OutboxLife // the life that ended, as it was read
	Entry model.OutboxEntry
}

// Kind carries out the entries of one kind.
type Kind interface {
	// Name is the kind of the entries.
	Name() string
	// Carry carries entries out and says for each whether it is done: errs[i] == nil.
	// One that is not is tried again by the sweeper. A nil errs means that all are done.
	Carry(ctx context.Context, entries []Entry) (errs []error)
}

const (
	queued    = 1000                  // entries that wait to be carried out at once; more are left to the sweeper
	perSweep  = 500                   // lives that the sweeper reads at a time
	patience  = 20 * time.Second      // for carrying one batch out
	again     = 50 * time.Millisecond // before the first of three more tries; then twice as long each time
	emptyMark = time.Minute           // a mark without entries that is older is repaired
	allEvery  = 30 * time.Second      // all that is old is looked at
)

// Overdue is the age from which an entry is the sweeper's: whoever ended the task has died,
// or failed to carry it out.
const Overdue = 5 * time.Second

// Runner carries entries out: those of tasks that this process ended at once, and those
// that others left over when it is asked to sweep.
type Runner struct {
	store *store.Store
	log   zerolog.Logger
	kinds map[string]Kind
	queue *groupcommit.Queue[Entry]

	looked, swept time.Time // when a sweep looked at all, and up to when the last one looked
	ctx           context.Context
	end           context.CancelFunc
}

// New makes a runner for the given kinds.
func New(st *store.Store, log zerolog.Logger, kinds ...Kind) *Runner {
	r := &Runner{store: st, log: log, kinds: map[string]Kind{}}
	for _, k := range kinds {
		r.kinds[k.Name()] = k
	}
	r.ctx, r.end = context.WithCancel(context.Background())
	r.queue = groupcommit.New(queued, r.flush)
	return r
}

// Ended takes what must follow the end of a task that this process has just written. It
// does not block: what finds no room is left to the sweeper.
func (r *Runner) Ended(t *model.Task) {
	for _, e := range t.Outbox {
		if r.kinds[e.Kind] == nil || r.queue.Len() >= queued {
			continue
		}
		// An error is the queue's end: the process stops, and the sweeper of another goes on.
		_ = r.queue.Put(r.ctx, r.entry(store.OutboxLife{Task: t}, e))
	}
}

func (r *Runner) entry(l store.OutboxLife, e model.OutboxEntry) Entry {
	return Entry{ID: lifecycle.EntryID(l.ID, l.Generation, e), Life: l, Entry: e}
}

func (r *Runner) flush(batch []Entry) {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	left, err := r.carry(ctx, batch)
	for pause := again; err != nil && pause < 8*again && !store.Outage(err); pause *= 2 {
		clock.Pause(ctx, pause) // somebody held a document for a moment, or the server was slow
		left, err = r.carry(ctx, left)
	}
	if err != nil && r.ctx.Err() == nil {
		r.log.Warn().Err(err).Msg("could not handle an outbox entry; the sweeper will retry it")
	}
}

// carry carries entries out, kind by kind, and removes those that are done. It returns the others
// and one of the errors.
func (r *Runner) carry(ctx context.Context, entries []Entry) (left []Entry, failed error) {
	var done []store.Carried
	for name, kind := range r.kinds {
		mine := slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return e.Entry.Kind != name })
		if len(mine) == 0 {
			continue
		}
		errs := kind.Carry(ctx, mine)
		for i, e := range mine {
			if i < len(errs) && errs[i] != nil {
				left, failed = append(left, e), errs[i]
				continue
			}
			done = append(done, store.Carried{Life: e.Life, Entry: e.Entry})
		}
	}
	if err := r.store.Tasks.RemoveOutbox(ctx, done); err != nil {
		return entries, err // carried out, and again by the sweeper: that is what idempotent is for
	}
	return left, failed
}

// Sweep carries out what is older than the given age, for all kinds of this process. It
// returns how many entries it found. What cannot be carried out is tried again when all is
// looked at, which is every half minute; in between only what is new, since entries of
// kinds that other processes carry out may be many and stay for long. One call at a time.
func (r *Runner) Sweep(ctx context.Context, age time.Duration) (found int, err error) {
	names := make([]string, 0, len(r.kinds))
	for name := range r.kinds {
		names = append(names, name)
	}
	now := r.store.Clock.Now()
	from, before := r.swept.Add(-allEvery), now.Add(-age)
	if now.Sub(r.looked) >= allEvery || now.Before(r.looked) { // the database's clock may be set back
		from, r.looked = time.Time{}, now
	}
	for {
		lives, next, lookErr := r.store.Tasks.Outboxes(ctx, names, from, before, perSweep)
		if lookErr != nil {
			return found, lookErr
		}
		var entries []Entry
		for _, l := range lives {
			for _, e := range l.Outbox {
				if r.kinds[e.Kind] != nil {
					entries = append(entries, r.entry(l, e))
				}
			}
		}
		found += len(entries)
		if _, failed := r.carry(ctx, entries); failed != nil {
			err = failed
		}
		if next.IsZero() {
			r.swept = before
			return found, err
		}
		from = next // past those that cannot be carried out
	}
}

// Repair removes the marks of outboxes that are empty.
func (r *Runner) Repair(ctx context.Context) error {
	lives, err := r.store.Tasks.EmptyOutboxes(ctx, r.store.Clock.Now().Add(-emptyMark), perSweep)
	if err != nil {
		return err
	}
	return r.store.Tasks.RepairOutboxes(ctx, lives)
}

// Wait returns when everything that was handed over has been tried, or when ctx ends.
func (r *Runner) Wait(ctx context.Context) error { return r.queue.Wait(ctx) }

// Close ends the runner; what is under way is cut short and left to the sweeper.
func (r *Runner) Close() {
	r.end()
	_ = r.queue.Close(r.ctx) // ends at once: its context has
}
