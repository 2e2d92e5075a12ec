package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// endSearch bounds how long the ends of a batch, and those behind it, wait for the search for
// held documents.
const endSearch = 300 * time.Millisecond

// endQueue is how many ends may wait to be written before handlers are held back.
const endQueue = 2 * maxBatch

// ended is an execution whose handler has returned, and how it ended; or that wants to
// be parked.
type ended struct {
	x         *execution
	task      *model.Task // what the end is decided on: as claimed, or as read since
	out       lifecycle.Outcome
	parkUntil time.Time     // not zero: park instead of ending
	late      int           // tries after the first
	looked    bool          // whether a transaction has ended it, see settleCompleted
	refused   int           // how often the server refused just this end, see shorten
	doubted   time.Duration // monotonic: since when it refuses just this end for a reason unknown here; 0 = it does not
	denied    time.Duration // monotonic: since when the server refuses it whatever it says; 0 = it does not
}

// end hands over how an execution ended. Ends are a group commit: what gathers while
// one batch is written is the next one, see [Consumer.lingerEnds]. An end is repeated until the server answers,
// also past the lease: nobody took the task over meanwhile, so the work counts.
func (c *Consumer) end(x *execution, out lifecycle.Outcome) {
	if !x.advance(returned) {
		c.fenced(x, out, "the lease was lost before") // known from a ping
		return
	}
	if e := (&ended{x: x, task: x.task, out: out}); !c.follow(e) {
		c.put(e)
	}
}

// stop tells an execution why it must end; false when it was told before. One that
// waits for a slot ends at once: its handler never runs.
func (c *Consumer) stop(x *execution, cause error) bool {
	if !x.cancel(cause) {
		return false
	}
	if c.held.unbuffer(x) {
		out := judge(x.task, bson.RawValue{}, cause, cause, c.cfg.DecodeGrace, c.store.Clock.Now())
		out.Unstarted = true
		c.end(x, out)
	}
	return true
}

func (c *Consumer) put(e *ended) {
	if err := c.ends.Put(c.service, e); err != nil {
		// Only when the process could not wait for the server any longer: the lease
		// will lapse.
		c.log.Error().Str("task_id", e.x.task.ID).Str("exec_id", e.x.execID).Msg("the end of an execution could not be written")
		c.held.remove(e.x)
	} else if e.urgent() {
		c.ends.Hurry()
	}
}

// flushEnds writes a batch of ends. Those that somebody's change crossed are decided
// again on what the task is now; those of executions that no longer hold their task
// are reported and never applied.
func (c *Consumer) flushEnds(batch []*ended) {
	defer c.passes.send()
	for len(batch) > 0 && c.service.Err() == nil {
		batch = c.settleCompleted(batch)
		now := c.store.Clock.Now()
		writes := make([]store.Write, 0, len(batch))
		deciding := batch[:0:0]
		for _, e := range batch {
			after, err := c.decideEnd(e, now)
			if err != nil {
				c.settleEnd(e, nil, err)
				continue
			}
			writes = append(writes, store.Write{Before: e.task, After: after})
			deciding = append(deciding, e)
		}
		written, err := c.writeEnds(deciding, writes)
		if err != nil {
			return
		}
		batch = c.settleEnds(deciding, writes, written)
		c.passes.send() // those that are decided again do not hold them up
	}
}

func (c *Consumer) decideEnd(e *ended, now time.Time) (*model.Task, error) {
	if !e.parkUntil.IsZero() {
		return lifecycle.Park(e.task, e.x.execID, e.parkUntil, e.out, *e.x.eff, now)
	}
	eff := e.x.eff
	if e.task != e.x.task { // of several workers the newest claim counts for the task
		return lifecycle.Finish(e.task, e.x.execID, e.out, lifecycle.EffectiveOf(e.task, model.Options{}), now, rand.Float64())
	}
	return lifecycle.Finish(e.task, e.x.execID, e.out, *eff, now, rand.Float64())
}

// writeEnds repeats the batch until the server answers. It returns an error only when
// the process stops waiting.
func (c *Consumer) writeEnds(batch []*ended, writes []store.Write) ([]store.Written, error) {
	if len(writes) == 0 {
		return nil, nil
	}
	shortest := batch[0].x.lease.Interval()
	for _, e := range batch {
		shortest = min(shortest, e.x.lease.Interval())
	}
	begin := c.health.Call
	for wait := c.health.NewBackOff(); ; wait.Sleep(c.service) {
		ctx, cancel := begin(c.service, rpcTimeout)
		begin = context.WithTimeout // cut off once, at most, so that a slow server gets it done
		written, err := c.store.Tasks.Writes(store.For(ctx, store.Ending), writes, min(shortest/4, endSearch))
		cancel()
		c.health.Report(err)
		switch {
		case err == nil:
			for _, e := range batch {
				e.denied = 0
			}
			return written, nil
		case c.service.Err() != nil:
			for _, e := range batch {
				c.leaveToLapse(e, err)
			}
			return nil, err
		case store.Final(err) && len(writes) > 1 && !store.Denied(err):
			return c.writeHalves(batch, writes)
		case store.Final(err):
			// Not because of what is written, as far as one can tell, so it is tried again,
			// but for a limited time: the others must not wait behind it for ever.
			return c.denied(batch, err), nil
		}
	}
}

// writeHalves finds the one in a batch because of which the server refuses all of it.
func (c *Consumer) writeHalves(batch []*ended, writes []store.Write) ([]store.Written, error) {
	half := len(writes) / 2
	first, err := c.writeEnds(batch[:half], writes[:half])
	if err != nil {
		return nil, err
	}
	second, err := c.writeEnds(batch[half:], writes[half:])
	return append(first, second...), err
}

// denied notes that the server refused a whole command.
func (c *Consumer) denied(batch []*ended, err error) []store.Written {
	now := c.cfg.Clock.Monotonic()
	written := make([]store.Written, len(batch))
	for i, e := range batch {
		if e.denied == 0 {
			e.denied = max(now, 1)
			c.refusedForNow(e, err)
		}
		written[i].Current = e.task
		if now-e.denied > max(e.x.eff.Lease, deniedPatience) {
			written[i].Refused = err
		}
	}
	return written
}

// deniedPatience is how long ends are tried again that the server refuses whatever they
// say, if the lease is not longer.
const deniedPatience = 30 * time.Second

// settleEnds reports what was written and returns what must be decided again.
func (c *Consumer) settleEnds(batch []*ended, writes []store.Write, written []store.Written) (again []*ended) {
	for i, w := range written {
		e := batch[i]
		switch {
		case w.Applied:
			c.settleEnd(e, writes[i].After, nil)
		case w.Current == nil:
			c.settleEnd(e, nil, model.ErrFenced)
		case w.Refused != nil && e.denied == 0 && c.mayPass(e, w.Refused):
			e.task = w.Current
			e.late++
			c.later(e) // the others of the batch must not wait
		case w.Refused != nil && e.denied == 0 && e.shorten(w.Refused):
			e.task = w.Current
			again = append(again, e)
		case w.Refused != nil:
			c.leaveToLapse(e, w.Refused)
		case w.Held, w.Current.Rev == writes[i].Before.Rev && w.Current.Generation == writes[i].Before.Generation:
			// Nothing crossed it: something holds the document, such as a transaction.
			// The others of the batch must not wait.
			e.late++
			c.later(e)
		default:
			e.task = w.Current
			again = append(again, e)
		}
	}
	return again
}

// mayPass says whether a refusal of just this end is met again before its result is given
// up: one that is not known to be about the document, but perhaps about a release of the
// server that is newer than this code, for as long as a lease.
func (c *Consumer) mayPass(e *ended, why error) bool {
	if store.OfDocument(why) {
		return false
	}
	now := c.cfg.Clock.Monotonic()
	if e.doubted == 0 {
		e.doubted = max(now, 1)
		c.refusedForNow(e, why)
	}
	return now-e.doubted <= e.x.eff.Lease
}

func (c *Consumer) refusedForNow(e *ended, why error) {
	c.log.Error().Err(why).Str("task_id", e.x.task.ID).Str("exec_id", e.x.execID).Msg("the end of an execution was refused by the database; trying again")
}

// shorten replaces what the server will never take, such as a result that is too large
// together with the rest of the document: the task ends all the same, as Failure, and says
// so. A second time it says as little as it can; false when there is nothing less to say.
func (e *ended) shorten(why error) bool {
	e.refused++
	kind := e.out.Kind
	switch {
	case kind == model.FailReleased || kind == model.FailUndecodable:
		return false // a failure would be more than it was
	case e.refused == 1 && (kind == "" || !e.parkUntil.IsZero()):
		e.out = lifecycle.Failed(model.FailFatal, "the result cannot be stored: "+why.Error())
	case e.refused <= 2:
		e.out = lifecycle.Failed(model.FailFatal, "its end cannot be stored")
		e.refused = 2
	default:
		return false
	}
	e.parkUntil = time.Time{}
	return true
}

// leaveToLapse gives up on an end that cannot be written: nobody pings the execution any
// more.
func (c *Consumer) leaveToLapse(e *ended, err error) {
	c.log.Error().Err(err).Str("task_id", e.x.task.ID).Str("exec_id", e.x.execID).Msg("the end of an execution could not be written")
	c.held.remove(e.x)
}

// later writes an end after a moment, beside the queue: it may have to wait for long.
func (c *Consumer) later(e *ended) {
	c.held.keepNoLonger(e.x)
	c.late.Go(func() {
		if !clock.Pause(c.service, min(time.Duration(e.late)*20*time.Millisecond, time.Second)) {
			c.leaveToLapse(e, context.Cause(c.service))
			return
		}
		c.flushEnds([]*ended{e})
	})
}

// settleEnd is the last word on an execution of this process.
func (c *Consumer) settleEnd(e *ended, after *model.Task, err error) {
	x := e.x
	switch {
	case err != nil && !e.parkUntil.IsZero():
		c.held.remove(x) // completed from outside before it could be parked
	case errors.Is(err, model.ErrFenced):
		c.fenced(x, e.out, "somebody took the task over, or ended it")
	case err != nil:
		c.log.Error().Err(err).Str("task_id", x.task.ID).Msg("deciding the end of an execution")
		c.held.remove(x)
	case !e.parkUntil.IsZero():
		c.held.remove(x)
		c.emitFor(x, Event{Kind: EventParked, Ran: x.ran})
	default:
		c.stats.finished.Add(1)
		c.returnPermits(x)
		_, w := after.Execution(x.execID)
		c.outcomes.Ended(after) // before nothing is held any more: a drain waits for both
		c.held.remove(x)
		c.emitFor(x, Event{Kind: EventFinished, Outcome: w.FailKind, Status: after.Status, Reason: w.FailReason, Ran: x.ran})
		if !after.DueAt.IsZero() {
			c.seeker.Hear(after)
			c.wake.at(after.DueAt)
		}
		if !after.CancelRequestedAt.IsZero() && after.OpenExecutions() > 0 {
			c.tellOthers(after)
		}
	}
}

// fenced reports a result that came too late: it is refused and never applied.
func (c *Consumer) fenced(x *execution, out lifecycle.Outcome, why string) {
	c.stats.fenced.Add(1)
	c.freePermits(x) // the execution has ended, whoever ended it
	c.held.remove(x)
	c.log.Warn().Str("task_id", x.task.ID).Str("exec_id", x.execID).Str("outcome", string(out.Kind)).Msg("a late result was refused: " + why)
	c.emitFor(x, Event{Kind: EventFenced, Outcome: out.Kind, Reason: why, Ran: x.ran})
}
