package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// simWorker is a consumer as the design describes it, without its speed: it finds
// tasks by their derived fields only, pings, stops its handlers a margin before their
// lease ends, and repeats a finish until it is answered.
type simWorker struct {
	*sim
	id        string
	slots     int
	skew      time.Duration // its clock is wrong by that much
	life      int           // of the process: what an older one had planned is gone
	frozenTo  time.Time
	cutTo     time.Time
	downTo    time.Time
	faultyAt  time.Time // when something last went wrong with it
	held      map[string]*hold
	busy      bool // a fetch is under way
	undecoded bool // it does not understand some arguments
}

// hold is what a worker knows of one execution of its own.
type hold struct {
	task     *model.Task // as it was claimed
	exec     string
	eff      Effective
	trust    time.Time // its lease, on the worker's clock, from before the ping was sent
	running  bool      // the handler; it heeds its context
	ended    bool      // the end is being written
	attempts []model.WorkerState
}

func (w *simWorker) clock() time.Time { return w.now.Add(w.skew) }

func (w *simWorker) frozen() bool { return w.now.Before(w.frozenTo) }

func (w *simWorker) cut() bool { return w.now.Before(w.cutTo) }

func (w *simWorker) down() bool { return w.now.Before(w.downTo) }

// later plans something of this process: it does not happen after a crash, and waits
// while the process is frozen.
func (w *simWorker) later(d time.Duration, do func()) {
	life := w.life
	var run func()
	run = func() {
		switch {
		case w.life != life:
		case w.frozen():
			w.after(w.frozenTo.Sub(w.now)+w.millis(0, 20), run)
		default:
			do()
		}
	}
	w.after(d, run)
}

// call does something at the server and hands back whether it was answered. An
// unanswered call may have been done, or be done later.
func (w *simWorker) call(do func(), done func(answered bool)) {
	there, back := w.millis(1, 20), w.millis(1, 20)
	lost, silent := false, false
	if !w.calm {
		if w.chance(5) {
			there = w.millis(20, 2000)
		}
		lost, silent = w.chance(3) || w.cut(), w.chance(3)
	}
	if lost || silent {
		w.faultyAt = w.now
	}
	if !lost {
		w.after(there, func() { // not later: the server does it whatever became of us
			do()
			if silent {
				w.stats.Ambiguous++
			}
		})
	}
	if lost || silent {
		w.later(time.Second, func() { done(false) })
		return
	}
	w.later(there+back, func() { done(true) })
}

// start begins the loops of a new process.
func (w *simWorker) start() {
	w.held = map[string]*hold{}
	w.busy = false
	w.pollLoop()
	w.pingLoop()
}

func (w *simWorker) pollLoop() {
	w.fetch()
	w.later(w.millis(500, 1000), w.pollLoop)
}

func (w *simWorker) free() int {
	n := w.slots
	for _, h := range w.held {
		if !h.ended { // claimed, or running
			n--
		}
	}
	return n
}

// fetch reads what is due for this worker or has lapsed, decides, and writes.
func (w *simWorker) fetch() {
	if w.busy {
		return
	}
	w.busy = true
	var found []*model.Task
	w.call(func() {
		now := w.clock()
		for _, id := range w.ids {
			t := w.tasks[id]
			due := !t.DueAt.IsZero() && !t.DueAt.After(now) && w.mayHear(t)
			if due || !t.LapseAt.IsZero() && !t.LapseAt.After(now) {
				found = append(found, t)
			}
		}
	}, func(answered bool) {
		w.busy = false
		if !answered {
			return
		}
		w.rng.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
		free := w.free()
		for _, t := range found {
			if w.decide(t, free > 0) {
				free--
			}
		}
	})
}

func (w *simWorker) mayHear(t *model.Task) bool {
	if slices.Contains(t.Audience, AudienceMany) {
		return !holdsOrDone(t, w.id)
	}
	return slices.Contains(t.Audience, AudienceAll) || slices.Contains(t.Audience, w.id)
}

// decide claims the task, over lapsed leases where there are, or leaves behind what it
// may not take. It says whether it may have taken a slot.
func (w *simWorker) decide(t *model.Task, free bool) bool {
	eff, now := ResolveOptions(t.Options), w.clock()
	base, lapsed := t, ""
	if c := Expire(t, eff, now, w.rng.Float64()); c != nil {
		for i := range t.WorkerStates {
			if Lapsed(&t.WorkerStates[i], now) {
				lapsed = t.WorkerStates[i].ExecID
			}
		}
		base = c
	}
	w.execs++
	exec := fmt.Sprintf("%s.%d", w.id, w.execs)
	claimed, no := (*model.Task)(nil), Refusal("no slot is free")
	if free {
		claimed, no = Claim(base, Claimant{WorkerID: w.id, ExecID: exec}, eff, now)
	}
	if claimed == nil {
		left := base
		if base == t && no.Stale() {
			if left = Repair(t, eff, now); left != nil {
				w.fail("%s is not as its executions say: it is %s, due %v", t.ID, t.Status, t.DueAt)
			}
		} else if base != t {
			left = Leave(base, now)
		}
		if left != nil && left != t {
			w.call(func() { w.write(t, left, eff, lapsed, now) }, func(bool) {})
		}
		return false
	}
	h := &hold{task: claimed, exec: exec, eff: eff}
	_, st := ExecutionOf(claimed, exec)
	h.trust = st.PingExpireTime
	w.held[exec] = h // its slot is taken from now on
	won := false
	w.call(func() { won = w.write(t, claimed, eff, lapsed, now) }, func(answered bool) {
		switch {
		case !answered:
			w.settleClaim(t, h)
		case won:
			w.won(h, lapsed != "")
		default:
			delete(w.held, exec)
		}
	})
	return true
}

// settleClaim finds out about a claim whose answer was lost: the fence, so that it
// cannot be done any more, a ping, and a look.
func (w *simWorker) settleClaim(before *model.Task, h *hold) {
	won := false
	w.call(func() {
		if cur := w.tasks[before.ID]; cur.Generation == before.Generation && cur.Rev == before.Rev {
			fence := *cur
			fence.Rev++
			w.tasks[cur.ID] = &fence
		}
		if c, err := ping(w.tasks[before.ID], h.exec, h.eff.Lease, w.clock()); err == nil {
			won = true
			w.tasks[before.ID] = c
		}
	}, func(answered bool) {
		switch {
		case !answered:
			w.settleClaim(before, h)
		case won:
			w.stats.Settled++
			w.won(h, false)
		default:
			delete(w.held, h.exec)
		}
	})
}

func (w *simWorker) won(h *hold, takeover bool) {
	h.running = true
	w.stats.Claims++
	if takeover {
		w.stats.Takeovers++
	}
	w.trace("%s runs %s of %s", w.id, h.exec, h.task.ID)
	if w.undecoded && len(h.task.Args.Value) > 0 && !w.calm {
		w.finish(h, "undecodable")
		return
	}
	w.watch(h)
	work := w.millis(1, 3000)
	if !w.calm && w.chance(20) {
		work = w.millis(1, 3*int(w.lease.Milliseconds()))
	}
	w.later(work, func() { w.returned(h) })
}

// returned is the end of a handler that nobody stopped.
func (w *simWorker) returned(h *hold) {
	if !h.running || h.ended {
		return
	}
	outcomes := []string{"ok", "ok", "ok", "ok", "error", "error", "panic", "fatal", "snooze", "release", "cancel", "park", "retry-after"}
	out := outcomes[w.rng.IntN(len(outcomes))]
	if w.calm {
		out = "ok"
	}
	w.finish(h, out)
}

func (w *simWorker) outcome(h *hold, out string) Outcome {
	switch out {
	case "ok":
		v, _ := codec.EncodeValue("result", h.exec, input.MaxResultBytes)
		return Success(v)
	case "snooze":
		return Failed(failkind.Released, out).After(w.millis(0, 20_000))
	case "release", "stopped":
		return Failed(failkind.Released, out)
	case "retry-after":
		return Failed(failkind.Error, out).After(w.millis(0, 20_000))
	case "cancel":
		return Outcome{Kind: failkind.Cancelled, Reason: out, CancelTask: true}
	case "undecodable":
		return Undecodable(h.task, out, time.Minute, w.clock())
	default:
		return Failed(out, out)
	}
}

// finish writes the end of an execution until it is answered, past the lease too.
func (w *simWorker) finish(h *hold, out string) {
	h.running, h.ended = false, true
	var seen *model.Task
	w.call(func() { seen = w.tasks[h.task.ID] }, func(answered bool) {
		if !answered {
			w.later(w.millis(10, 2000), func() { w.finish(h, out) })
			return
		}
		_, st := ExecutionOf(seen, h.exec)
		if seen.Generation == h.task.Generation && st != nil && slices.ContainsFunc(h.attempts, func(a model.WorkerState) bool {
			return a.SuccessTime.Equal(st.SuccessTime) && a.FailTime.Equal(st.FailTime) && a.FailKind == st.FailKind && a.Parked == st.Parked
		}) {
			w.applied(h, out, seen)
			return
		}
		now := w.clock()
		eff := h.eff
		if seen.Rev != h.task.Rev { // of several workers the newest claim counts for the task
			eff = EffectiveOf(seen, model.Options{})
		}
		var after *model.Task
		var err error
		if out == "park" {
			after, err = Park(seen, h.exec, now.Add(w.millis(1, 60_000)), Outcome{}, eff, now)
		} else {
			after, err = Finish(seen, h.exec, w.outcome(h, out), eff, now, w.rng.Float64())
		}
		if err != nil {
			w.stats.Fenced++
			w.trace("%s: the %s of %s is refused", w.id, out, h.exec)
			if seen.Generation == h.task.Generation && st != nil && !st.SuccessTime.IsZero() {
				w.fail("%s: the success of %s was refused and counts", h.task.ID, h.exec)
			}
			delete(w.held, h.exec)
			return
		}
		_, end := ExecutionOf(after, h.exec)
		h.attempts = append(h.attempts, *end)
		done := false
		w.call(func() { done = w.write(seen, after, eff, "", now) }, func(answered bool) {
			if answered && done {
				w.applied(h, out, after)
				return
			}
			w.later(w.millis(1, 500), func() { w.finish(h, out) })
		})
	})
}

// applied is what a worker does when it knows that its end counts.
func (w *simWorker) applied(h *hold, out string, t *model.Task) {
	w.trace("%s: the %s of %s counts, the task is %s", w.id, out, h.exec, t.Status)
	delete(w.held, h.exec)
	if out == "ok" {
		life := w.lifeOf(h.task)
		if !life.cleaned[h.exec] { // before its worker had the answer
			life.told[h.exec] = true
		}
		if len(life.told) > life.widest {
			w.fail("%s: %d successes were accepted in one life, %d were ever wanted", t.ID, len(life.told), life.widest)
		}
	}
	if out == "park" {
		w.stats.Parked++
		handle := input.HandleOf(t, h.exec)
		if w.chance(80) { // somebody outside completes it, or nobody does
			w.after(w.millis(1, 70_000), func() { w.complete(handle) })
		}
	}
}

// complete is an outside completion by handle.
func (s *sim) complete(h input.Handle) {
	t := s.tasks[h.TaskID]
	_, w := h.Execution(t)
	if w == nil {
		return
	}
	eff := ResolveOptions(t.Options)
	c, err := Finish(t, w.ExecID, Success(bson.RawValue{}), eff, s.now, 0)
	if err == nil {
		s.write(t, c, eff, "", s.now)
	}
}

func sortedKeys(m map[string]*hold) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
