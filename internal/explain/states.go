package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// maxReason is how much of an error's text an explanation quotes.
const maxReason = 300

// expired explains a task that nobody started in time and that is not yet cancelled.
func (r *report) expired() {
	r.Summary = fmt.Sprintf("It expired at %s before a worker started it. The fleet cancels it within about a minute.", human.When(r.Task.Options.ExpiresAt, r.Now))
	if r.Sees == nil && !slices.ContainsFunc(r.Facts.Workers, func(w Worker) bool { return !w.Pulls }) {
		r.next("There is no live worker to cancel it: start one, of any type.")
	}
}

// expiry says by when a worker must have started the task.
func (r *report) expiry() {
	if t := r.Task; !t.Status.Ended() && t.ArchivedAt.IsZero() && !t.ExpireAt.IsZero() {
		r.next("If no worker has started it by %s, it is cancelled.", human.When(t.ExpireAt, r.Now))
	}
}

// executing explains a task that a worker holds.
func (r *report) executing() {
	t := r.Task
	open := lifecycle.OpenExecutions(t)
	lapsed := r.holds()
	switch {
	case lapsed == open:
		r.Summary = "A worker was running it, but its lease has lapsed."
		r.takeover()
	case lifecycle.Wanted(t) > 1:
		r.Summary = fmt.Sprintf("It needs %[2]d workers; running it: %[1]d, succeeded: %[3]d.", open, lifecycle.Wanted(t), lifecycle.Successes(t))
		r.next("It succeeds when %d different workers have succeeded.", lifecycle.Wanted(t))
		if lapsed > 0 {
			r.takeover()
		}
		if !t.DueAt.IsZero() {
			r.whoCould()
		}
	default:
		w := r.current()
		if w.Parked {
			r.Summary = fmt.Sprintf("It is parked: its handler has returned, and it waits for a completion until %s.", human.When(w.PingExpireTime, r.Now))
			r.next("If no completion arrives by then, the execution ends as a timeout.")
			break
		}
		r.Summary = fmt.Sprintf("The worker %s has been running it since %s.", w.WorkerID, human.When(w.ClaimedAt, r.Now))
		r.next("The worker extends its lease every %v. If it stops, the lease lapses and another worker takes the task over.", r.eff.PingInterval)
	}
	if p := t.Progress; p != nil {
		r.because("Its last progress report, at %s: %.0f %% %s", human.When(p.At, r.Now), p.Percent, p.Message)
	}
	r.budget()
}

// holds lists the open executions and counts those whose lease has lapsed.
func (r *report) holds() (lapsed int) {
	for i := range r.Task.WorkerStates {
		w := &r.Task.WorkerStates[i]
		if !lifecycle.Open(w) {
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
			live = " (no recent heartbeat)"
		}
		r.because("%s%s has held it since %s, attempt %d%s; %s.", w.WorkerID, live, human.When(w.ClaimedAt, r.Now), w.Attempt, r.localRetries(w), state)
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
		if w := &r.Task.WorkerStates[i]; lifecycle.Open(w) {
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

// takeover explains what happens to a lapsed lease.
func (r *report) takeover() {
	t := r.Task
	after := lifecycle.Expire(t, r.eff, r.Now, 0.5)
	switch {
	case len(r.serving()) == 0:
		r.because("No live worker handles the type %s%s.", t.Type, r.othersHandle())
		r.next("The next worker of type %s that starts takes it over. Until then the worker that held it may still finish it.", t.Type)
	case after != nil && after.Status.Ended():
		r.next("Its budget is spent: the next scan of a live worker ends it as %s.", after.Status)
	case r.PausedAll || r.PausedType:
		r.next("Claiming is paused: the next scan of a live worker ends the lapsed execution, and the task waits until claiming resumes.")
	case len(r.takers(r.serving())) == 0:
		r.noneTakes(r.serving())
		r.next("The next scan of a live worker ends the lapsed execution.")
	case !r.mayAnyRun(r.serving()):
		r.because("No live worker of its type (%d) may run it: the worker filter excludes them.", len(r.serving()))
		r.next("The next scan of a live worker ends the lapsed execution. Then the task waits until a worker that may run it starts, or until its options change.")
	case !r.mayAnyRun(r.takers(r.serving())):
		r.because("None of the live workers of its type (%d) may run it now.", len(r.serving()))
		r.next("The next scan of a live worker ends the lapsed execution. Then the task waits for a worker that may run it.")
		r.verdicts()
	default:
		r.next("The next scan of a live worker takes it over, usually within seconds. After that, a late result of the old execution is refused.")
		r.verdicts()
	}
}

func (r *report) verdicts() {
	for _, w := range r.serving() {
		r.Report.Workers = append(r.Report.Workers, r.verdict(w))
	}
}

// cancelling explains an executing task whose cancellation was requested.
func (r *report) cancelling() {
	t := r.Task
	r.Summary = fmt.Sprintf("Its cancellation was requested at %s.", human.When(t.CancelRequestedAt, r.Now))
	r.remark()
	lapsed := r.holds()
	if lapsed > 0 {
		r.next("The next scan of a live worker of the type %s ends the lapsed execution.", t.Type)
	}
	if lifecycle.OpenExecutions(t) > lapsed {
		r.next("Its handler's context is cancelled within two seconds. The task ends when the handler returns or its lease lapses; it is Success if the handler still succeeds.")
	}
}

// ended explains a task that no worker will run again by itself.
func (r *report) ended() {
	t := r.Task
	ran := human.When(t.FinishedAt, r.Now)
	switch t.Status {
	case model.StatusSuccess, model.StatusCompleted:
		r.Summary = fmt.Sprintf("It succeeded at %s.", ran)
		for i := range t.WorkerStates {
			if w := &t.WorkerStates[i]; !w.SuccessTime.IsZero() {
				r.because("%s completed it on attempt %d, in %v.", w.WorkerID, w.Attempt, w.SuccessTime.Sub(w.ClaimedAt).Round(time.Millisecond))
			}
		}
		r.history()
		r.next("Sending the key again changes nothing, except with --existing restart-succeeded.")
	case model.StatusFailure:
		r.Summary = fmt.Sprintf("It failed permanently at %s.", ran)
		r.lastEnd()
		r.spentBudget()
		r.unlessOfNode("To run it again: mscheduler task retry %s", human.TaskArg(t.ID))
	case model.StatusPending:
		r.Summary = fmt.Sprintf("Its budget was spent at %s. An operator must decide what happens next.", ran)
		r.lastEnd()
		r.spentBudget()
		r.unlessOfNode("To run it again: mscheduler task retry %s", human.TaskArg(t.ID))
		r.next("To mark it as done by hand: mscheduler task resolve %s --remark '...'", human.TaskArg(t.ID))
	case model.StatusManuallyProcessed:
		r.Summary = fmt.Sprintf("An operator resolved it at %s.", ran)
		r.remark()
	default:
		r.Summary = fmt.Sprintf("It was cancelled at %s.", ran)
		r.remark()
		r.unlessOfNode("To run it anyway: mscheduler task retry %s", human.TaskArg(t.ID))
	}
	r.callback()
	if !t.ArchiveAt.IsZero() {
		r.next("The task and its key are kept until %s.", human.When(t.ArchiveAt, r.Now))
	}
	if !t.ArchivedAt.IsZero() { // no command reaches it any more
		r.Next = nil
		r.next("It moved to the history at %s. Its key is free: sending it again creates a new task.", human.When(t.ArchivedAt, r.Now))
	}
}

func (r *report) remark() {
	if r.Task.Remark != "" {
		r.because("Remark: %s", r.Task.Remark)
	}
}

// lastEnd explains how the newest failed execution ended.
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
		r.because("Before that it had %s.", failures(t))
	}
}

// budget explains how many retries and lapses remain.
func (r *report) budget() {
	t := r.Task
	if t.ErrorCount > 0 {
		r.because("%s", r.errorsLeft())
	}
	if t.LapseCount > 0 {
		r.because("It has used %d of %d lapses.", t.LapseCount, r.eff.MaxLapses)
	}
	if _, changed := lifecycle.OptionsAtClaim(t); changed {
		r.because("Its options changed while it was running. The change takes effect at its next claim.")
	}
}

func (r *report) errorsLeft() string {
	return fmt.Sprintf("It has used %d of %d retries.", r.Task.ErrorCount, *r.eff.Retry.MaxErrors)
}

func (r *report) spentBudget() {
	t := r.Task
	for i := range t.WorkerStates {
		if failkind.Final(t.WorkerStates[i].FailKind) {
			r.because("The handler returned a fatal error, so it is not retried.")
			return
		}
	}
	r.because("It had %s.", failures(t))
}

// failures counts the errors and lapses of a task.
func failures(t *model.Task) string {
	return human.Plural(t.ErrorCount, "error", "errors") + " and " + human.Plural(t.LapseCount, "lapse", "lapses")
}
