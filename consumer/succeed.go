package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/finish"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Between two starts of a type with max_running lies one write, if its handlers are short: while
// one runs, the next task is read and noted in the permit, and the end of the one and the claim of
// the other go out in one command ([store.Tasks.Follow]).
//
//	begin ─▶ the next task is read ─▶ the permit names both ┐
//	handler returns ─────────────────────────────────────────┴▶ end and claim ─▶ begin
//
// What is not prepared in time takes the longer way, see [passing].

const (
	// successorFresh is how long a prepared task may wait, since a better one may come meanwhile.
	successorFresh = time.Second
	// shortHandler is how long a type's handlers take at most on average for that.
	shortHandler = successorFresh / 2
	// tooLate is how many times as long as a handler the preparation takes, from which on there is
	// none. It is also so many times slower on a server that is busy with others for a while.
	tooLate = 8
	// followsAtOnce is how many commands of a process are on their way before ends gather.
	followsAtOnce = 4
)

// successor is the next execution by the permit of one that runs. The mutex of the passes guards
// it.
type successor struct {
	task    *model.Task // as it was read
	execID  string
	version int64            // of the limits
	since   time.Duration    // monotonic: when its task was looked for
	permit  lifecycle.Permit // of both
	state   succession
	slot    bool // it has the slot of the execution before it
	left    bool // that has ended, and its permit is to be returned
}

// succession says whose the permit of an execution with a successor is.
type succession int

const (
	unsettled  succession = iota // a write is on its way: nobody else uses the permit
	ready                        // the execution's
	missing                      // the execution's, and nothing is prepared
	taken                        // the successor's
	unknowable                   // an answer was lost: the sweeper's
)

// following is an end that takes the claim of a successor along.
type following struct {
	x     *execution
	e     *finish.End
	s     *successor
	claim store.Write
}

// took records how long a handler ran.
func (h *handler) took(d time.Duration) {
	if was := h.ran.Load(); was != 0 {
		d = time.Duration(was) + (d-time.Duration(was))/8
	}
	h.ran.Store(int64(max(d, 1)))
}

// wantSuccessor asks for a successor of an execution that begins. One that is over before a
// successor can be prepared gets none.
func (c *Consumer) wantSuccessor(x *execution) {
	ran := time.Duration(x.h.ran.Load())
	if x.ofType() == nil || ran == 0 || ran > shortHandler || x.lease.Many() || !c.passesOn(x) {
		return
	}
	p := &c.passes
	p.mu.Lock()
	if p.took > tooLate*ran {
		p.took -= p.took / 64 // it is measured again some time
	} else if p.open {
		p.preparing[x.h] = append(p.preparing[x.h], x)
	}
	p.mu.Unlock()
	clock.Wake(p.wake)
}

// prepareSuccessors reads the next tasks of the type, and notes them in the permits of executions.
func (c *Consumer) prepareSuccessors(ctx context.Context, h *handler, xs []*execution) {
	if h.left.Load() || c.waits(h.typ) || c.isStopping() || c.control.Fresh(ctx) != nil {
		return
	}
	began, version := c.cfg.Clock.Monotonic(), c.gate.Version()
	tasks, err := c.candidates(ctx, h, len(xs))
	if err != nil {
		c.reportPass(ctx, err)
		return
	}
	var of []*execution
	var wanted []limits.Preparation
	var unused []*model.Task
	stamp := c.store.Clock.Stamp()
	c.passes.mu.Lock()
	for _, t := range tasks {
		if !lifecycle.ConditionsMet(c.only, t) || lifecycle.Wanted(t) > 1 || lifecycle.Claimable(t, c.cfg.WorkerID, *h.effective(t), stamp.After(t).Now) != "" {
			continue // the longer way repairs or refuses it
		}
		for len(xs) > 0 && !xs[0].is(running) {
			xs = xs[1:]
		}
		if len(xs) == 0 || !c.passes.open {
			unused = append(unused, t)
			continue
		}
		x, s := xs[0], &successor{task: t, execID: claim.NewExecID(), version: version, since: began}
		x.successor, xs, of = s, xs[1:], append(of, x)
		wanted = append(wanted, limits.Preparation{Permit: *x.ofType(), Running: x.execID, Task: t, ExecID: s.execID})
	}
	c.passes.mu.Unlock()
	if len(wanted) > 0 {
		call, cancel := context.WithTimeout(ctx, rpcTimeout)
		permits, err := c.gate.Prepare(call, h.typ, wanted)
		cancel()
		c.reportPass(ctx, err)
		for i, x := range of {
			permit, prepared := permits[wanted[i].Permit.Name]
			to := ready
			switch {
			case err != nil:
				to = unknowable
			case prepared:
				x.successor.permit = permit
			default:
				to = missing
				unused = append(unused, wanted[i].Task)
			}
			c.settleSuccessor(x, to)
		}
		c.passes.measured(c.cfg.Clock.Monotonic() - began)
	}
	c.gate.Chose(h.typ, 0, 0, unused)
	c.passes.send()
}

// measured records how long it took to prepare successors.
func (p *passes) measured(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took += (took - p.took) / 8
}

// settleSuccessor says whose the permit is, after a write. What waited for that goes on.
func (c *Consumer) settleSuccessor(x *execution, to succession) {
	p, s := &c.passes, x.successor
	p.mu.Lock()
	s.state = to
	left := s.left
	p.mu.Unlock()
	if left {
		c.releasePermits(x, true)
	}
	p.mu.Lock()
	slot := s.slot
	s.slot = false
	p.mu.Unlock()
	if slot {
		c.held.release(x.h, 1)
	}
}

// permitsOf are the permits that an execution which has ended has. wait means that they are returned
// later, by [Consumer.settleSuccessor].
func (p *passes) permitsOf(x *execution) (permits []lifecycle.Permit, wait bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	permits = slices.Clone(x.permits)
	switch s := x.successor; {
	case s == nil || s.state == missing:
	case s.state == unsettled:
		s.left = true
		return nil, true
	case s.state == ready:
		permits[slices.IndexFunc(permits, ofType)] = s.permit
	default:
		permits = slices.DeleteFunc(permits, ofType)
	}
	return permits, false
}

// follow lets the end take the claim of the execution's successor along; false when it has none
// that may begin now.
func (c *Consumer) follow(x *execution, e *finish.End) bool {
	p := &c.passes
	if x.completing.Load() || c.waits(x.h.typ) || x.h.left.Load() || c.isStopping() || c.owesTurn(x) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := x.successor
	if !p.open || s == nil || s.state != ready || s.version != c.gate.Version() ||
		c.cfg.Clock.Monotonic()-s.since > successorFresh || c.gate.Outranked(s.task) || !c.held.handOver(x) {
		return false
	}
	s.state, s.slot = unsettled, true
	p.under.Go(func() {
		p.lanes <- struct{}{}
		defer func() { <-p.lanes }()
		c.writeFollows(p.takeFollows())
	})
	p.follows = append(p.follows, &following{x: x, e: e, s: s})
	return true
}

// takeFollows takes what has gathered; another may have taken it before.
func (p *passes) takeFollows() []*following {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.follows
	p.follows = nil
	return all
}

// writeFollows writes ends together with the claims of what follows them.
func (c *Consumer) writeFollows(batch []*following) {
	defer c.passes.send()
	next := make([]*model.Task, len(batch))
	for i, f := range batch {
		next[i] = f.s.task
	}
	stamp := c.store.Clock.Stamp().After(next...)
	now := stamp.Now
	doubtful := c.store.Clock.Age() >= store.MaxClockAge // the machine may have slept: leases from the stamp may be over already
	var both []*following
	var follows []store.Follow
	for _, f := range batch {
		end, err := f.e.Decide(now)
		if err != nil {
			c.ends.Refuse(f.e, err)
			c.settleSuccessor(f.x, ready)
			continue
		}
		h := f.x.h
		by := lifecycle.Claimant{WorkerID: c.cfg.WorkerID, ExecID: f.s.execID, Only: c.only, Applied: h.said.Load()}
		after, no := lifecycle.Claim(f.s.task, by, *h.effective(f.s.task), now)
		if no != "" || doubtful { // the longer way repairs or refuses it, or reads the clock
			c.settleSuccessor(f.x, ready)
			c.ends.Put(f.e)
			continue
		}
		f.claim = store.Write{Before: f.s.task, After: after}
		both = append(both, f)
		follows = append(follows, store.Follow{ExecID: f.x.execID, End: end, Claim: f.claim})
	}
	if len(both) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.unsure, rpcTimeout)
	written, err := c.store.Tasks.Follow(store.For(ctx, store.Ending), follows, finish.Search)
	cancel()
	c.health.Report(err)
	c.store.Measure.EndBatch.Observe(len(follows))
	c.lapses.Hint()
	if err != nil {
		c.followsUnknown(both, stamp, err)
		return
	}
	ends, writes, results := make([]*finish.End, len(both)), make([]store.Write, len(both)), make([]store.Written, len(both))
	for i, f := range both {
		ends[i], writes[i], results[i] = f.e, follows[i].End, written[i].Ended
	}
	again := c.ends.Settle(ends, writes, results)
	for i, f := range both {
		if written[i].Claimed.Held {
			if !written[i].Ended.Held {
				c.seeker.Refused.AddHeld(f.s.task.ID, c.store.Clock.Now())
			}
			c.heldFollow(f)
			continue
		}
		c.settleFollow(f, written[i].Claimed, stamp)
	}
	for _, e := range again {
		c.ends.Put(e)
	}
}

// heldFollow is for a claim that was not written, as far as is known, because another client holds
// its task, or the one that ends. The permit is for other tasks meanwhile.
func (c *Consumer) heldFollow(f *following) {
	ctx, cancel := context.WithTimeout(c.unsure, rpcTimeout)
	defer cancel()
	never, err := c.store.Tasks.NeverWritten(ctx, []store.Write{f.claim})
	c.health.Report(err)
	if never[0] {
		c.settleSuccessor(f.x, ready)
	} else {
		c.settleSuccessor(f.x, unknowable)
	}
}

// followsUnknown handles a command of ends and claims that has no answer, or that the server refuses. It
// repeats the ends, and asks which claims were won.
func (c *Consumer) followsUnknown(both []*following, stamp store.Stamp, err error) {
	for _, f := range both {
		c.ends.Put(f.e)
	}
	for _, f := range both {
		claimed, unanswered := c.claimer.Settle([]store.Write{f.claim}, f.s.execID, err)
		if len(claimed) == 0 || !claimed[0].Applied && unanswered != nil {
			c.settleSuccessor(f.x, unknowable)
			continue
		}
		c.settleFollow(f, claimed[0], stamp)
	}
}

// settleFollow begins what follows if its claim was won.
func (c *Consumer) settleFollow(f *following, claimed store.Written, stamp store.Stamp) {
	x := f.x
	c.stats.attempted.Add(1)
	switch {
	case claimed.Applied:
		c.stats.won.Add(1)
		c.store.Measure.Claimed(1, 1)
		grants := map[*model.Task]limits.Grant{f.s.task: {Permits: []lifecycle.Permit{f.s.permit}}}
		c.hold(&claim.Outcome{ExecID: f.s.execID, Stamp: stamp, Won: []store.Write{f.claim}, Grants: grants})
		c.settleSuccessor(x, taken)
		return
	case claimed.Held:
		c.settleSuccessor(x, unknowable)
		return
	case claimed.Refused != nil:
		c.claimer.Unwritable(f.s.task, claimed.Refused)
	}
	c.store.Measure.Claimed(1, 0)
	c.gate.Chose(x.h.typ, 0, 1, nil)
	c.settleSuccessor(x, ready)
}
