package explain

import (
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// maxReason is how much of an error's text an explanation quotes.
const maxReason = 300

// executing explains a task that somebody holds.
func (r *report) executing() {
	t := r.Task
	open := lifecycle.OpenExecutions(t)
	lapsed := r.holds()
	switch {
	case lapsed == open:
		r.Summary = "It was being run, but the lease has lapsed."
		r.takeover()
	case lifecycle.Wanted(t) > 1:
		r.Summary = fmt.Sprintf("%d of the %d wanted workers hold it, %d have done it.", open, lifecycle.Wanted(t), lifecycle.Successes(t))
		r.next("It is done when %d different workers have succeeded.", lifecycle.Wanted(t))
		if lapsed > 0 {
			r.takeover()
		}
		if !t.DueAt.IsZero() {
			r.whoCould()
		}
	default:
		w := r.current()
		if w.Parked {
			r.Summary = fmt.Sprintf("Its handler has returned; a completion from outside is awaited until %s.", human.When(w.PingExpireTime, r.Now))
			r.next("Without one it counts as a timeout then.")
			break
		}
		r.Summary = fmt.Sprintf("The worker %s runs it since %s.", w.WorkerID, human.When(w.ClaimedAt, r.Now))
		r.next("The worker extends its lease every %v; if it stops, another one takes the task over once the lease has lapsed.", r.eff.PingInterval)
	}
	if p := t.Progress; p != nil {
		r.because("It said at %s: %.0f %% %s", human.When(p.At, r.Now), p.Percent, p.Message)
	}
	r.budget()
}

// holds lists the open executions and counts those whose lease has lapsed.
func (r *report) holds() (lapsed int) {
	for i := range r.Task.WorkerStates {
		w := &r.Task.WorkerStates[i]
		if !w.Open() {
			continue
		}
		state := "its lease runs until " + human.When(w.PingExpireTime, r.Now)
		if lifecycle.Lapsed(w, r.Now) {
			lapsed++
			state = "its lease lapsed " + human.When(w.PingExpireTime, r.Now)
		}
		if !w.Deadline.IsZero() {
			state += ", its deadline is " + human.When(w.Deadline, r.Now)
		}
		live := ""
		if !r.lives(w.WorkerID) {
			live = " (not heard of lately)"
		}
		r.because("%s%s holds it since %s, attempt %d%s; %s.", w.WorkerID, live, human.When(w.ClaimedAt, r.Now), w.Attempt, r.localRetries(w), state)
	}
	return lapsed
}

// localRetries describes how many retries inside the execution have begun; "" if none.
func (r *report) localRetries(w *model.WorkerState) string {
	if w.LocalRetries == 0 {
		return ""
	}
	most := lifecycle.EffectiveFor(r.Task, w, r.typeOptions()).Retry.Local.Count
	return fmt.Sprintf(", local retry %d of %d", w.LocalRetries, most)
}

func (r *report) current() *model.WorkerState {
	for i := range r.Task.WorkerStates {
		if w := &r.Task.WorkerStates[i]; w.Open() {
			return w
		}
	}
	return &model.WorkerState{}
}

func (r *report) lives(id string) bool {
	for _, w := range r.Facts.Workers {
		if w.ID == id {
			return true
		}
	}
	return false
}

// takeover says what becomes of a lapsed lease.
func (r *report) takeover() {
	t := r.Task
	after := lifecycle.Expire(t, r.eff, r.Now, 0.5)
	switch {
	case len(r.serving()) == 0:
		r.because("No live worker handles the type %s%s.", t.Type, r.othersHandle())
		r.next("The next worker for %s that starts takes it over. (The one that held it may still finish it before.)", t.Type)
	case after != nil && after.Status.Ended():
		r.next("The next scan of a live worker ends it as %s: its budget is spent.", after.Status)
	case r.PausedAll || r.PausedType:
		r.next("Claiming is paused: the next scan of a live worker ends the lapsed execution, and the task waits for the resume.")
	case len(r.takers(r.serving())) == 0:
		r.nobodyTakes(r.serving())
		r.next("The next scan of a live worker ends the lapsed execution.")
	default:
		r.next("The next scan of a live worker takes it over, in a moment; a late result of the old execution is refused then.")
		for _, w := range r.serving() {
			r.Report.Workers = append(r.Report.Workers, r.verdict(w))
		}
	}
}

// cancelling explains a task that somebody asked to cancel.
func (r *report) cancelling() {
	t := r.Task
	r.Summary = fmt.Sprintf("It is being cancelled since %s.", human.When(t.CancelRequestedAt, r.Now))
	r.remark()
	lapsed := r.holds()
	if lapsed > 0 {
		r.next("The lapsed execution is ended by the next scan of a live worker of the type %s.", t.Type)
	}
	if lifecycle.OpenExecutions(t) > lapsed {
		r.next("Its handler has been told; the task ends when the handler returns (as Success if it succeeds all the same), or when its lease lapses.")
	}
}

// ended explains a task on which nothing will run by itself.
func (r *report) ended() {
	t := r.Task
	ran := human.When(t.FinishedAt, r.Now)
	switch t.Status {
	case model.StatusSuccess, model.StatusCompleted:
		r.Summary = fmt.Sprintf("It succeeded at %s.", ran)
		for i := range t.WorkerStates {
			if w := &t.WorkerStates[i]; !w.SuccessTime.IsZero() {
				r.because("%s did it, attempt %d, in %v.", w.WorkerID, w.Attempt, w.SuccessTime.Sub(w.ClaimedAt).Round(time.Millisecond))
			}
		}
		r.history()
		r.next("The same key sent again changes nothing, unless the send says --existing restart-succeeded.")
	case model.StatusFailure:
		r.Summary = fmt.Sprintf("It failed for good at %s.", ran)
		r.lastEnd()
		r.spentBudget()
		r.next("To run it again: mscheduler task retry %s", human.TaskArg(t.ID))
	case model.StatusPending:
		r.Summary = fmt.Sprintf("Its budget was spent at %s, and a person must decide.", ran)
		r.lastEnd()
		r.spentBudget()
		r.next("To run it again: mscheduler task retry %s", human.TaskArg(t.ID))
		r.next("If it was done by hand: mscheduler task resolve %s --remark '...'", human.TaskArg(t.ID))
	case model.StatusManuallyProcessed:
		r.Summary = fmt.Sprintf("A person resolved it at %s.", ran)
		r.remark()
	default:
		r.Summary = fmt.Sprintf("It was cancelled at %s.", ran)
		r.remark()
		r.next("To run it after all: mscheduler task retry %s", human.TaskArg(t.ID))
	}
	r.callback()
	if !t.ArchiveAt.IsZero() {
		r.next("It stays here, and its key is taken, until %s.", human.When(t.ArchiveAt, r.Now))
	}
	if !t.ArchivedAt.IsZero() { // no command reaches it any more
		r.Next = nil
		r.next("It is in the history since %s. Its key is free: sent again, it is a new task.", human.When(t.ArchivedAt, r.Now))
	}
}

func (r *report) remark() {
	if r.Task.Remark != "" {
		r.because("The remark says: %s", r.Task.Remark)
	}
}

// lastEnd says how the newest execution that ended badly ended.
func (r *report) lastEnd() {
	var last *model.WorkerState
	for i := range r.Task.WorkerStates {
		if w := &r.Task.WorkerStates[i]; !w.FailTime.IsZero() && (last == nil || w.FailTime.After(last.FailTime)) {
			last = w
		}
	}
	if last != nil {
		r.because("Attempt %d%s on %s ended at %s: %s: %s", last.Attempt, r.localRetries(last), last.WorkerID, human.When(last.FailTime, r.Now), last.FailKind, human.OneLine(last.FailReason, maxReason))
	} else if r.Task.ErrorInfo != "" {
		r.because("The last error was: %s", human.OneLine(r.Task.ErrorInfo, maxReason))
	}
}

func (r *report) history() {
	t := r.Task
	if t.ErrorCount+t.LapseCount > 0 {
		r.because("Before that %d errors and %d lapses were counted.", t.ErrorCount, t.LapseCount)
	}
}

// budget says how much more may go wrong.
func (r *report) budget() {
	t := r.Task
	if t.ErrorCount > 0 {
		r.because("%s", r.errorsLeft())
	}
	if t.LapseCount > 0 {
		r.because("%d of %d lapses that it may have are used up.", t.LapseCount, r.eff.MaxLapses)
	}
	if _, changed := lifecycle.OptionsAtClaim(t); changed {
		r.because("Its options were changed while it ran. The change holds from its next claim on.")
	}
}

func (r *report) errorsLeft() string {
	return fmt.Sprintf("%d of %d retries that it may have are used up.", r.Task.ErrorCount, *r.eff.Retry.MaxErrors)
}

func (r *report) spentBudget() {
	t := r.Task
	for i := range t.WorkerStates {
		if t.WorkerStates[i].FailKind == model.FailFatal {
			r.because("The handler said that a retry is useless.")
			return
		}
	}
	r.because("It had %d errors and %d lapses.", t.ErrorCount, t.LapseCount)
}
