package claim

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/limits"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Claimer claims tasks for one worker:
//
//	candidates ─▶ admit (limits) ─▶ decide (pure) ─▶ write ─▶ settle (a lost answer) ─▶ won, held, lost
//
// It knows nothing of slots and queues. Callers find the candidates and run what was won.
type Claimer struct {
	Store    *store.Store
	Gate     *limits.Gate
	Log      zerolog.Logger
	WorkerID string
	Only     *lifecycle.Conditions // what the worker takes; nil = everything
	Pulled   bool                  // see [lifecycle.Claimant]
	Terms    Terms
	// Send carries claims out as [store.Tasks.Writes] does; nil = just so.
	Send func(context.Context, []store.Write, time.Duration) ([]store.Written, error)
	// Refused takes the tasks to leave out of the next queries.
	Refused *Refusals
	// Ended is called with tasks that a write ended which was no claim.
	Ended func(*model.Task)
	// Unsure bounds the questions about lost answers.
	Unsure context.Context
	// Report is called with the outcome of each of these questions.
	Report func(error)
	// BackOff makes the pauses between them.
	BackOff func() (pause func(context.Context))
}

// callTime bounds one call of the database.
const callTime = 20 * time.Second

// mostRefusals bounds how often a question is asked again after a refusal that this release does not know.
const mostRefusals = 5

// Bid is a try to claim some of the tasks that a worker has found.
type Bid struct {
	ExecID string        // of all executions that it wins
	Tasks  []*model.Task // each once: all claims of a bid have the same exec id
	Room   Room
	Most   int // how many it may win; 0 = any number
	// MayAsk chooses, in their order, the limited tasks to ask grants for; nil = all.
	MayAsk func(*model.Task) bool
	// Hand are permits to pass on, see [limits.Gate.Admit].
	Hand []lifecycle.Permit
	// Search is that of [store.Tasks.Writes].
	Search time.Duration
}

// Outcome is what became of a [Bid]. After an error it holds what is known all the same.
type Outcome struct {
	ExecID string // of the executions
	Won    []store.Write
	Stamp  store.Stamp // of the claims: their leases count from it
	// Held claims were not written, because they shared a command with a document that another
	// client holds. They may be written again, and their grants stay with them.
	Held []store.Write
	// MayArrive says that held claims may be on their way, because an answer was lost.
	MayArrive bool
	// HeldRepairs are repairs of which the same is true.
	HeldRepairs []store.Write
	Lost        int // another client changed the task first
	Unwritable  int // the server refuses the write
	Refused     int // the task is not for this worker now
	Grants      map[*model.Task]limits.Grant
	Unused      []limits.Grant // to return
	Missed      []*model.Task  // limited ones that got no grant
	Unasked     bool           // a limited task became claimable too late to ask for its grant
}

// Claims is how many claims got an answer.
func (o *Outcome) Claims() int { return len(o.Won) + o.Lost + o.Unwritable }

// Claim carries a bid out.
func (c *Claimer) Claim(ctx context.Context, b Bid) (out Outcome, err error) {
	out.ExecID = b.ExecID
	if err := c.sharpen(ctx, b.Tasks); err != nil {
		return out, err
	}
	tasks, err := c.admit(ctx, b, &out)
	if err != nil {
		return out, err
	}
	out.Stamp = c.Store.Clock.Stamp().After(b.Tasks...) // taken after the starts were reserved
	now := out.Stamp.Now
	by := lifecycle.Claimant{WorkerID: c.WorkerID, ExecID: b.ExecID, Only: c.Only, Pulled: c.Pulled}
	d := question{by: by, terms: c.Terms, room: b.Room, most: b.Most, limited: c.Gate.Limited, granted: out.Grants, now: now, behind: out.Stamp.Behind}.decide(tasks)
	for t, retry := range d.refused {
		c.Refused.Add(t.ID, now, retry)
	}
	out.Refused, out.Unasked = out.Refused+len(d.refused), d.unasked
	unused := maps.Clone(out.Grants)
	if d.wrong > 0 {
		c.Log.Warn().Int("tasks", d.wrong).Str("task_id", d.repairs[0].Before.ID).Msg("repairing derived fields that contradict the task")
	}
	if out.HeldRepairs, err = c.Repair(ctx, d.repairs, b.Search); err == nil && len(d.claims) > 0 {
		if err = c.Write(ctx, d.claims, b.Search, &out); err == nil {
			c.Gate.Claimed(out.Grants)
		}
		for _, w := range d.claims {
			delete(unused, w.Before)
		}
	}
	out.Unused = slices.AppendSeq(out.Unused, maps.Values(unused))
	return out, err
}

// sharpen reads the database's clock again if the last reading was too slow for the lease of one of the tasks.
// Without it this worker would claim and release the task again and again until the next reading.
// It also does after a sleep of the machine, which the estimate does not know of: the leases would be over already.
func (c *Claimer) sharpen(ctx context.Context, tasks []*model.Task) error {
	if err := c.Store.FreshClock(ctx); err != nil {
		return err
	}
	behind := c.Store.Clock.Error()
	if !vague(input.MinWorkerTimeout, behind) { // no lease is shorter
		return nil
	}
	longest := time.Duration(0)
	for _, t := range tasks {
		if eff, _ := c.Terms(t); eff != nil && vague(eff.Lease, behind) {
			longest = max(longest, eff.Lease)
		}
	}
	if longest == 0 {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, min(longest/2, callTime)) // a slower reading helps none of them
	defer cancel()
	err := c.Store.ReadClock(short)
	if short.Err() != nil && ctx.Err() == nil {
		return nil // they are left to others
	}
	return err
}

// admit asks for what the claims of limited tasks need. It returns the tasks to go on with: all
// but those that get nothing now.
func (c *Claimer) admit(ctx context.Context, b Bid, out *Outcome) (left []*model.Task, err error) {
	if !c.AnyLimited(b.Tasks) {
		return b.Tasks, nil
	}
	now := c.Store.Clock.Stamp().After(b.Tasks...).Now
	var ask []*model.Task
	for _, t := range b.Tasks {
		eff, _ := c.Terms(t)
		if eff == nil || !c.Gate.Limited(t) || !lifecycle.ConditionsMet(c.Only, t) || lifecycle.Claimable(t, c.WorkerID, *eff, now) != "" {
			left = append(left, t) // it is refused, or repaired, as any other
		} else if c.Store.ProbeLater(t.ID) {
			c.Refused.AddHeld(t.ID, now) // a grant would only be kept from others
			out.Refused++
		} else if b.MayAsk == nil || b.MayAsk(t) {
			ask = append(ask, t)
			left = append(left, t)
		} else {
			out.Missed = append(out.Missed, t)
		}
	}
	got, err := c.Gate.Admit(ctx, ask, b.ExecID, b.Hand)
	if err != nil {
		return nil, err
	}
	for t, until := range got.Later {
		c.Refused.Add(t.ID, now, until)
	}
	out.Refused += len(got.Later)
	without := map[*model.Task]bool{}
	for _, t := range ask {
		if _, granted := got.Granted[t]; granted {
			continue
		}
		without[t] = true
		if got.Later[t].IsZero() {
			out.Missed = append(out.Missed, t)
		}
	}
	out.Grants = got.Granted
	return slices.DeleteFunc(left, func(t *model.Task) bool { return without[t] }), nil
}

// AnyLimited reports whether a claim of any of the tasks needs a grant. It costs little where they
// are of few types.
func (c *Claimer) AnyLimited(tasks []*model.Task) bool {
	last, limited := "", false
	for _, t := range tasks {
		if t.Type != last {
			last, limited = t.Type, c.Gate.LimitsType(t.Type)
		}
		if limited || t.Options.LimitKey != "" {
			return true
		}
	}
	return false
}

// Repair writes repairs of derived fields, and carries out what follows the end of tasks that have
// expired. It returns those that another client holds.
func (c *Claimer) Repair(ctx context.Context, repairs []store.Write, search time.Duration) (held []store.Write, err error) {
	if len(repairs) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	written, err := c.Store.Tasks.Writes(ctx, repairs, search)
	for i, w := range written {
		switch {
		case w.Held:
			held = append(held, repairs[i])
		case w.Applied && repairs[i].After.Status.Ended():
			c.Ended(repairs[i].After)
		}
	}
	c.leaveOut(held)
	return held, err
}

// Write writes claims and adds what became of them to the outcome. After an error those that are
// not in the outcome may have been won: the sweeper finds out about their grants.
func (c *Claimer) Write(ctx context.Context, claims []store.Write, search time.Duration, out *Outcome) error {
	written, lost, err := c.write(ctx, claims, out.ExecID, search)
	out.MayArrive = out.MayArrive || lost
	before, won := out.Claims(), len(out.Won)
	for i, w := range written {
		claim := claims[i]
		switch {
		case w.Applied:
			out.Won = append(out.Won, claim)
			continue
		case w.Held:
			out.Held = append(out.Held, claim)
			continue
		case w.Unanswered:
			continue
		case w.Refused != nil:
			c.Unwritable(claim.Before, w.Refused)
			out.Unwritable++
		default:
			out.Lost++
		}
		if g, granted := out.Grants[claim.Before]; granted {
			out.Unused = append(out.Unused, g)
		}
	}
	c.leaveOut(out.Held)
	c.Store.Measure.ClaimBatch.Observe(len(claims))
	c.Store.Measure.Claimed(out.Claims()-before, len(out.Won)-won)
	return err
}

// Abandon is for claims that are held and will not be written again. The grants of those that have
// certainly not been written are for other tasks: they become unused. Those of the others are left
// to the sweeper.
func (c *Claimer) Abandon(ctx context.Context, out *Outcome) {
	var granted []store.Write
	for _, w := range out.Held {
		if _, ok := out.Grants[w.Before]; ok {
			granted = append(granted, w)
		}
	}
	if len(granted) == 0 || out.MayArrive {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	never, err := c.Store.Tasks.NeverWritten(ctx, granted)
	c.Report(err)
	for i, w := range granted {
		if never[i] {
			out.Unused = append(out.Unused, out.Grants[w.Before])
		}
	}
}

// write writes claims, and settles those without an answer: of several commands one may be refused,
// or its answer lost, while others have won. A refusal is returned, and what is known beside it.
func (c *Claimer) write(ctx context.Context, claims []store.Write, execID string, search time.Duration) (written []store.Written, lost bool, err error) {
	call, cancel := context.WithTimeout(ctx, callTime)
	send := c.Send
	if send == nil {
		send = c.Store.Tasks.Writes
	}
	written, err = send(store.For(call, store.Claiming), claims, search)
	cancel()
	if err == nil {
		return written, false, nil
	}
	// Also where the last command never reached the server: one before it may have.
	var unanswered []store.Write
	var of []int
	if written == nil {
		written = make([]store.Written, len(claims))
	}
	for i, w := range claims {
		if !written[i].Applied {
			written[i].Unanswered = true
			unanswered, of = append(unanswered, w), append(of, i)
		}
	}
	if len(unanswered) == 0 { // others shared the command, and the error is theirs
		return written, false, nil
	}
	settled, unsettled := c.Settle(unanswered, execID, err)
	for i, w := range settled {
		written[of[i]] = w
	}
	if store.Final(err) {
		unsettled = err
	}
	return written, true, unsettled
}

// Settle asks, until the server answers, which of the claims were won whose answer was lost with
// the error. To give up earlier would leave tasks that nobody knows to be held until their leases
// lapse. What it returns beside an error is that of [store.Tasks.SettleClaim].
func (c *Claimer) Settle(claims []store.Write, execID string, err error) (written []store.Written, _ error) {
	written, _, err = c.settle(claims, execID, err)
	return written, err
}

// settle also returns how often it has asked.
func (c *Claimer) settle(claims []store.Write, execID string, err error) (written []store.Written, tries int, _ error) {
	c.Report(err)
	if c.Unsure.Err() != nil {
		return nil, 0, err
	}
	err = c.insist(func(ctx context.Context) (err error) {
		tries++
		written, err = c.Store.Tasks.SettleClaim(ctx, claims, execID)
		return err
	})
	return written, tries, err
}

// insist repeats a question until the server answers it, or for as long as lost answers are asked
// about. It gives up when the server refuses the question: after the first fatal error, or after mostRefusals
// others.
func (c *Claimer) insist(ask func(context.Context) error) error {
	refusals := 0
	for pause := c.BackOff(); ; pause(c.Unsure) {
		call, cancel := context.WithTimeout(c.Unsure, callTime)
		err := ask(call)
		cancel()
		c.Report(err)
		if err == nil || c.Unsure.Err() != nil || store.Classify(err) == store.Fatal {
			return err
		}
		if store.Final(err) {
			refusals++
		}
		if refusals == mostRefusals {
			return err
		}
	}
}

// Unwritable notes a task that the server does not let anybody claim, because its document
// has no room left, say: it must not stand at the head of every fetch.
func (c *Claimer) Unwritable(t *model.Task, why error) {
	now := c.Store.Clock.Now()
	if c.Refused.Has(t.ID, now) {
		return // it has been said a moment ago
	}
	c.Refused.Add(t.ID, now, time.Time{})
	c.Log.Error().Err(why).Str("task_id", t.ID).Msg("the database refuses every write of this task; it cannot run")
}

// leaveOut leaves tasks that other clients hold out of the next queries.
func (c *Claimer) leaveOut(held []store.Write) {
	now := c.Store.Clock.Now()
	for _, w := range held {
		c.Refused.AddHeld(w.Before.ID, now)
	}
}

// NewExecID makes the id of an execution: a random UUID (version 4).
func NewExecID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
