package lifecycle

import (
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// Limits are what a type says about how many of its tasks run, and how many begin, over
// the whole fleet (design section 7). The rules are pure; internal/limits carries them out.

// audienceKey is in front of the limit_key of tasks that wait for their key.
const audienceKey = "#"

// KeyAudience is the audience of the tasks of a limit_key that wait for their turn: nobody
// looks for it, so a key that is full never stands before the others.
func KeyAudience(limitKey string) string { return audienceKey + limitKey }

// Keyed is what holds for the tasks of each limit_key: one at a time, unless the type says
// something else. t may be nil.
func Keyed(t *model.TaskType) model.KeyLimit {
	if t == nil || t.KeyLimit == nil {
		return model.KeyLimit{MaxRunning: 1}
	}
	k := *t.KeyLimit
	if k.MaxRunning == 0 && k.RateLimit == nil {
		k.MaxRunning = 1
	}
	return k
}

// Limited says whether the type limits its tasks as a whole. t may be nil.
func Limited(t *model.TaskType) bool { return t != nil && (t.MaxRunning > 0 || t.RateLimit != nil) }

// HeldBack says whether the task waits until its limit_key has room.
func HeldBack(t *model.Task) bool {
	return t.Options.LimitKey != "" && len(t.Audience) == 1 && t.Audience[0] == KeyAudience(t.Options.LimitKey)
}

// HoldBack takes a due task out of everybody's sight until [Admit]: its key is full. It
// returns nil for one that has no key, is held back already or is not to be claimed now.
func HoldBack(t *model.Task, now time.Time) *model.Task {
	if t.Options.LimitKey == "" || HeldBack(t) || t.DueAt.IsZero() || t.DueAt.After(now) {
		return nil
	}
	c := next(t, now)
	c.Audience = []string{KeyAudience(t.Options.LimitKey)}
	return c
}

// Admit gives a task that was held back its audience again, and wakes the workers. nil
// when it is not held back.
func Admit(t *model.Task, now time.Time) *model.Task {
	if !HeldBack(t) {
		return nil
	}
	c := next(t, now)
	c.Audience = audience(c)
	wake(c, now)
	return c
}

// audienceNow is the audience of a task that may have been held back: it stays so as long
// as it is due, by the same key. Its turn comes when the key has room.
func audienceNow(t *model.Task, now time.Time) []string {
	if HeldBack(t) && !t.DueAt.IsZero() && !t.DueAt.After(now) {
		return t.Audience
	}
	return audience(t)
}

// Permit lets one execution be open. It is taken before the claim, and frees when that
// execution has ended or can never begin.
type Permit struct {
	Name      string `bson:"_id"`
	Type      string `bson:"type"`
	Key       string `bson:"key"` // "" = one of the type
	PermitUse `bson:",inline"`
	// Next is prepared while the execution is open, and claimed by nobody before that has ended.
	// nil = nothing is prepared.
	Next   *PermitUse `bson:"next,omitempty"`
	At     time.Time  `bson:"at"`      // when it was taken
	LookAt time.Time  `bson:"look_at"` // when the sweeper is to look whether it is used
}

// PermitUse is an execution that a permit lets be open.
type PermitUse struct {
	TaskID     string `bson:"task"`
	Generation int64  `bson:"generation"` // of the task, as it was when the permit was taken
	Rev        int64  `bson:"rev"`        // the claim is guarded by it
	ExecID     string `bson:"exec_id"`    // of the claim
}

// UseOf is the use of a permit by an execution that claims the task as it was read.
func UseOf(t *model.Task, execID string) PermitUse {
	return PermitUse{TaskID: t.ID, Generation: t.Generation, Rev: t.Rev, ExecID: execID}
}

// Lets reports whether the permit lets that execution be open, now or next.
func (p *Permit) Lets(execID string) bool {
	return p.ExecID == execID || p.Next != nil && p.Next.ExecID == execID
}

// How long the sweeper leaves a permit alone: at first whoever took it has its claim on the
// way, and later its execution is long.
const (
	soonestLook = 5 * time.Second
	rarestLook  = time.Minute
)

// LookAgain is when to look at the permit next, which is taken still: in as long as it has
// been taken by now, within [soonestLook] and [rarestLook]. So what a crash leaves over is
// found in about the time that its execution took, and executions of hours cost little.
func (p *Permit) LookAgain(now time.Time) time.Time {
	return now.Add(min(max(now.Sub(p.At), soonestLook), rarestLook))
}

// PassTo is the permit after its execution has ended and before that of another task is
// claimed: the same name, and everything else as if it had been freed and taken at once.
func (p Permit) PassTo(t *model.Task, execID string, now time.Time) Permit {
	p.PermitUse, p.Next = UseOf(t, execID), nil
	p.At = now
	p.LookAt = p.LookAgain(now)
	return p
}

// Prepare is the permit of a running execution with the one that is to follow it: whoever
// prepares it claims the task only after the running one has ended.
func (p Permit) Prepare(running string, t *model.Task, execID string, now time.Time) Permit {
	if p.Next != nil && p.Next.ExecID == running {
		p.PermitUse = *p.Next // the one before it has ended
	}
	next := UseOf(t, execID)
	p.Next = &next
	p.At = now
	p.LookAt = p.LookAgain(now)
	return p
}

// PermitState is what a look at the task says of a permit.
type PermitState int

// The states of a permit.
const (
	PermitUsed  PermitState = iota // its execution is open
	PermitFree                     // its execution has ended, or will never begin
	PermitAhead                    // its claim may still arrive: raise the task's rev first
)

// State judges the permit by its tasks, which were read after the permit. Those that are not
// there are gone, and a permit is used while its task is nil, which cannot be read. Once free it is
// free for ever: an execution that ended is never open again, and a claim is guarded by a rev that only
// rises.
func (p *Permit) State(tasks map[string]*model.Task) PermitState {
	first := p.state(tasks)
	if p.Next == nil || first == PermitUsed {
		return first
	}
	if next := p.Next.state(tasks); first == PermitFree || next == PermitUsed {
		return next
	}
	return first
}

func (u *PermitUse) state(tasks map[string]*model.Task) PermitState {
	t, there := tasks[u.TaskID]
	switch {
	case !there:
		return PermitFree
	case t == nil: // nobody can say
		return PermitUsed
	}
	if _, w := ExecutionOf(t, u.ExecID); w != nil {
		if Open(w) {
			return PermitUsed
		}
		return PermitFree
	}
	if t.Generation > u.Generation || t.Rev > u.Rev {
		return PermitFree
	}
	return PermitAhead
}

// Fences are the tasks whose claims by the permit may still arrive, with a rev that no such claim
// can have seen: before and after.
func (p *Permit) Fences(tasks map[string]*model.Task, now time.Time) (fences [][2]*model.Task) {
	for _, u := range []*PermitUse{&p.PermitUse, p.Next} {
		if u == nil {
			continue
		}
		if u.state(tasks) == PermitAhead {
			t := tasks[u.TaskID]
			c := next(t, now)
			c.Rev = max(t.Rev, u.Rev) + 1
			fences = append(fences, [2]*model.Task{t, c})
		}
	}
	return fences
}

// EndedExecutions are the ids of those that were open before and are no longer.
func EndedExecutions(before, after *model.Task) (execIDs []string) {
	for i := range before.WorkerStates {
		w := &before.WorkerStates[i]
		if !Open(w) {
			continue
		}
		if _, a := ExecutionOf(after, w.ExecID); a == nil || !Open(a) {
			execIDs = append(execIDs, w.ExecID)
		}
	}
	return execIDs
}
