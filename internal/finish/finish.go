// Package finish writes how the executions of a process ended, and the steps that their
// handlers saved. Both are group commits: what gathers while one batch is written is the next
// one. A write is repeated until the server answers.
//
//	[Ends.Put] ─▶ gathers ─▶ decided by the rule of package lifecycle ─▶ one command ─┬▶ [Execution.Ended]
//	                            ▲                                                     ├▶ [Execution.Fenced]: somebody else has the task
//	                            └──── on what the task is now: another's write crossed┘
//
//	[Steps.Save] ─▶ gathers ─▶ one command ─▶ returns what the task has under the step's name
//
// Nothing here runs handlers or counts slots: an [Execution] hears what became of its end.
package finish

import (
	"cmp"
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Config is what ends and steps are written with.
type Config struct {
	Store  *store.Store
	Clock  clock.Clock
	Health *health.Monitor
	Log    zerolog.Logger

	// Service returns the context in which the process waits for the server.
	Service func() context.Context
	// Beside runs what may take long, and must not hold up the others of a batch.
	Beside func(f func())
	// Settled is called after executions have heard what became of their ends.
	Settled func()
}

const (
	// queued is how many ends, and how many steps, may wait to be written before handlers are held
	// back.
	queued = 2 * enough
	// Search bounds how long a batch, and what is behind it, waits for the search for documents
	// that somebody else holds.
	Search = 300 * time.Millisecond
)

// Ends writes how executions ended. Make one with [NewEnds].
type Ends struct {
	Config
	queue *groupcommit.Queue[*End]
	// urgent has the ends that other work waits for. They do not wait behind a large batch of others.
	urgent *groupcommit.Queue[*End]
}

// NewEnds returns a writer of ends that does not gather them, see [Ends.Gather].
func NewEnds(cfg Config) *Ends {
	w := &Ends{Config: cfg}
	w.queue, w.urgent = groupcommit.New(queued, w.flush), groupcommit.New(queued, w.flush)
	return w
}

// Put hands over how an execution ended. It blocks while too many ends wait. An end is
// repeated until the server answers, also past the lease: if nobody took the task over
// meanwhile, the work counts.
func (w *Ends) Put(e *End) {
	queue := w.queue
	if e.Urgent {
		queue = w.urgent
	}
	if err := queue.Put(w.Service(), e); err != nil {
		w.giveUp(e, err) // the process does not wait for the server any longer
	}
}

// Hurry writes what gathers without waiting for more.
func (w *Ends) Hurry() { w.queue.Hurry() }

// Wait returns when all ends that were put before have been written once, or with the cause of
// ctx.
func (w *Ends) Wait(ctx context.Context) error {
	w.queue.Hurry()
	return cmp.Or(w.urgent.Wait(ctx), w.queue.Wait(ctx))
}

// Len is how many ends gather or are being written.
func (w *Ends) Len() int { return w.urgent.Len() + w.queue.Len() }

// flush writes a batch of ends. Several may run at once: for each queue, and for ends that are late.
func (w *Ends) flush(batch []*End) {
	for portion := range portions(batch, (*End).size) {
		w.flushPortion(portion)
	}
}

// flushPortion writes a part of a batch. Ends that somebody's change crossed are decided again on what the task is
// now.
func (w *Ends) flushPortion(batch []*End) {
	defer w.Settled()
	for len(batch) > 0 && w.Service().Err() == nil {
		batch = w.settleCompleted(batch)
		now := w.Store.Clock.Now()
		writes := make([]store.Write, 0, len(batch))
		decided := batch[:0:0]
		for _, e := range batch {
			write, err := e.Decide(now)
			if err != nil {
				w.Refuse(e, err)
				continue
			}
			writes = append(writes, write)
			decided = append(decided, e)
		}
		written, err := w.write(decided, writes)
		batch = w.Settle(decided, writes, written)
		w.Settled() // those that are decided again do not hold them up
		if err != nil {
			break
		}
	}
	w.giveUpAll(batch, context.Cause(w.Service()))
}

// write repeats the batch until the server answers. It returns an error only when the
// process stops waiting. Then it has given up the ends beyond those that it returns.
func (w *Ends) write(batch []*End, writes []store.Write) ([]store.Written, error) {
	if len(writes) == 0 {
		return nil, nil
	}
	shortest := batch[0].Of.Interval()
	for _, e := range batch {
		shortest = min(shortest, e.Of.Interval())
	}
	service, begin := w.Service(), w.Health.Call
	for wait := w.Health.NewBackOff(); ; wait.Sleep(service) {
		ctx, cancel := begin(service, health.CallTimeout)
		begin = context.WithTimeout // cut off once, at most, so that a slow server gets it done
		written, err := w.Store.Tasks.Writes(store.For(ctx, store.Ending), writes, min(shortest/4, Search))
		cancel()
		w.Health.Report(err)
		for i, e := range batch {
			if written[i].Applied {
				e.written = writes[i].After
			} else if e.written != nil { // by a try before, whose other commands failed
				written[i] = store.Written{Applied: true}
			}
		}
		switch {
		case err == nil:
			w.Store.Measure.EndBatch.Observe(len(writes))
			for _, e := range batch {
				e.denied = 0
			}
			return written, nil
		case service.Err() != nil:
			w.giveUpAll(batch, err)
			return nil, err
		case store.Final(err) && len(writes) > 1 && !store.Denied(err):
			return w.writeHalves(batch, writes)
		case store.Final(err):
			// Not because of what is written, as far as one can tell, so it is tried again,
			// but for a limited time: the others must not wait behind it for ever.
			return w.deny(batch, written, err), nil
		}
	}
}

// writeHalves finds the one in a batch because of which the server refuses all of it.
func (w *Ends) writeHalves(batch []*End, writes []store.Write) ([]store.Written, error) {
	half := len(writes) / 2
	first, err := w.write(batch[:half], writes[:half])
	if err != nil {
		w.giveUpAll(batch[half:], err)
		return first, err
	}
	second, err := w.write(batch[half:], writes[half:])
	return append(first, second...), err
}

// Settle tells executions what was written of their ends, and returns the ends that must be
// decided again.
func (w *Ends) Settle(batch []*End, writes []store.Write, written []store.Written) (again []*End) {
	for i, r := range written {
		e := batch[i]
		switch {
		case r.Applied:
			e.applied(writes[i].After)
		case r.Unread:
			w.later(e)
		case r.Current == nil:
			w.Refuse(e, model.ErrFenced)
		case r.Refused != nil && e.denied == 0 && w.mayPass(e, r.Refused):
			e.task = r.Current
			w.later(e)
		case r.Refused != nil && e.denied == 0 && e.shorten(r.Refused):
			e.task = r.Current
			again = append(again, e)
		case r.Refused != nil:
			w.giveUp(e, r.Refused)
		case r.Held, r.Current.Rev == writes[i].Before.Rev && r.Current.Generation == writes[i].Before.Generation:
			w.later(e) // nothing crossed it: something holds the document, such as a transaction
		default:
			e.task = r.Current
			again = append(again, e)
		}
	}
	return again
}

// later writes an end again after a moment, beside the queue.
func (w *Ends) later(e *End) {
	e.late++
	e.Of.Delayed()
	w.Beside(func() {
		service := w.Service()
		if !clock.Pause(service, min(time.Duration(e.late)*20*time.Millisecond, time.Second)) {
			w.giveUp(e, context.Cause(service))
			return
		}
		w.flush([]*End{e})
	})
}

func (w *Ends) giveUpAll(batch []*End, err error) {
	for _, e := range batch {
		w.giveUp(e, err)
	}
}

// giveUp leaves the lease of an execution to lapse, because its end cannot be written. If a try is known to have
// written it, the execution has ended.
func (w *Ends) giveUp(e *End, err error) {
	if e.written != nil {
		e.applied(e.written)
		return
	}
	e.about(w.Log.Error().Err(err)).Msg("could not write the end of an execution")
	e.Of.Left()
}
