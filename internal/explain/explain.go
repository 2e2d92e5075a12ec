package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Worker is a live worker.
type Worker struct {
	ID          string
	Types       []string
	Only        *lifecycle.Conditions // restrict the tasks that it takes; nil = takes every task
	Concurrency int
	Running     int  // at its last heartbeat
	Draining    bool // it claims nothing more
	Resumes     bool // it drains, and is asked to claim again
	Pulls       bool // it says nothing of its slots
}

// Facts are the inputs of an explanation.
type Facts struct {
	Task       *model.Task
	Now        time.Time          // the database's
	Workers    []Worker           // all live workers, of any type
	Type       *model.TaskType    // the stored settings of the task's type; nil = none
	OfType     []lifecycle.Permit // the permits in use, if the type has a max_running
	OfKey      []lifecycle.Permit // the permits in use of the task's limit_key, if it has one
	Delivery   *model.Task        // delivers the callback of an ended task; nil = there is none
	PausedType bool
	PausedAll  bool
	// Sees says whose tasks the reader may see; nil = everybody's. A reader who sees only some tenants is
	// told neither of other tenants' tasks nor which workers there are.
	Sees func(tenant string) bool
}

// taskName is the id of a task, if the reader may see it.
func (f *Facts) taskName(id string) string {
	if tenant, _, _ := strings.Cut(id, "/"); f.Sees != nil && !f.Sees(tenant) {
		return "a task of another tenant"
	}
	return id
}

// Report is an explanation, a sentence a line.
type Report struct {
	// Summary answers "why is the task in this state?" in one sentence.
	Summary string `json:"summary"`
	// Because lists the facts behind the summary.
	Because []string `json:"because"`
	// Next lists what happens next, and what an operator can do.
	Next []string `json:"next"`
	// Workers states for each live worker of the type whether it may claim the task now,
	// or why not. It is empty for an ended task, and for a reader who sees only some tenants.
	Workers []WorkerVerdict `json:"workers"`
}

// WorkerVerdict states whether one worker may claim the task.
type WorkerVerdict struct {
	ID    string `json:"id"`
	May   bool   `json:"may_claim"`
	Words string `json:"reason"`
}

// report is a Report under construction.
type report struct {
	Facts
	eff lifecycle.Effective
	Report
}

// Explain explains why a task is in its state. A task's own options override those that
// applied to its newest execution. Before its first execution they override those of its
// type; options that a handler sets in its own process are unknown then.
func Explain(f Facts) Report {
	r := report{Facts: f, eff: lifecycle.EffectiveOf(f.Task, f.typeOptions()), Report: Report{Because: []string{}, Next: []string{}, Workers: []WorkerVerdict{}}}
	switch t := f.Task; {
	case !lifecycle.Known(t.Status):
		r.Summary = fmt.Sprintf("This release does not know its status %s.", t.Status)
		r.next("Use a newer release of mscheduler.")
	case t.Status.Ended():
		r.ended()
	case !t.ArchivedAt.IsZero():
		r.Summary = fmt.Sprintf("It was waiting for its retry when its key was restarted. This life moved to the history at %s.", human.When(t.ArchivedAt, r.Now))
		r.lastEnd()
	case lifecycle.Expired(t, r.Now):
		r.expired()
		return r.forReader()
	case t.Status == model.StatusWait:
		r.Summary = "It is held: no worker claims it until it is released."
		r.unlessOfNode("To release it: mscheduler task release %s", human.TaskArg(t.ID))
	case !t.CancelRequestedAt.IsZero():
		r.cancelling()
	case lifecycle.OpenExecutions(t) > 0:
		r.executing()
	default:
		r.waiting()
	}
	r.expiry()
	r.stale()
	return r.forReader()
}

// forReader is the report without what its reader may not see.
func (r *report) forReader() Report {
	if r.Sees != nil {
		r.Report.Workers = []WorkerVerdict{}
	}
	return r.Report
}

func (f *Facts) typeOptions() model.Options {
	if f.Type == nil {
		return model.Options{}
	}
	return f.Type.Options
}

func (r *report) because(format string, args ...any) {
	r.Because = append(r.Because, fmt.Sprintf(format, args...))
}

func (r *report) next(format string, args ...any) {
	r.Next = append(r.Next, fmt.Sprintf(format, args...))
}

// waiting explains a task that no worker holds.
func (r *report) waiting() {
	t := r.Task
	r.lastEnd()
	due := t.DueAt
	switch {
	case due.IsZero():
		r.Summary = "No worker may claim it, although its status is " + string(t.Status) + "."
	case due.After(r.Now) && t.Status == model.StatusError:
		r.Summary = fmt.Sprintf("It is waiting for its retry, due %s.", human.When(due, r.Now))
	case due.After(r.Now):
		r.Summary = fmt.Sprintf("It is waiting for its start time, %s.", human.When(due, r.Now))
	case lifecycle.HeldBack(t):
		r.Summary = fmt.Sprintf("It has been due since %s. The limit of its limit_key, %s, holds it back until its turn.", human.When(due, r.Now), t.Options.LimitKey)
	default:
		r.Summary = fmt.Sprintf("It has been due since %s and is waiting for a worker.", human.When(due, r.Now))
	}
	r.whoCould()
	r.undecoded()
	r.budget()
}

// whoCould explains which workers may claim the task once it is due.
func (r *report) whoCould() {
	t := r.Task
	serving := r.serving()
	named := t.Options.SpecificWorkerIDs
	switch {
	case r.PausedAll:
		r.because("Claiming is paused for all types.")
		r.next("To resume claiming: mscheduler resume --all")
		return
	case r.PausedType:
		r.because("Claiming is paused for the type %s.", t.Type)
		r.next("To resume claiming: mscheduler resume %s", t.Type)
		return
	case len(serving) == 0:
		r.because("No live worker handles the type %s%s.", t.Type, r.othersHandle())
		if t.Category != "" && (r.Type == nil || r.Type.Category != t.Category) {
			r.because("A handler of the category %s serves the types with that category in their settings; the type %s has another or none.", t.Category, t.Type)
			r.next("To let such a handler run it, set the type's category with: mscheduler type apply")
		}
		if len(named) > 0 {
			r.because("Only %s may claim it.", names(named))
		}
		r.next("Start a worker that %s. It finds the task by itself.", r.needed())
		return
	}
	if len(named) > 0 {
		r.because("Only %s may run it.", names(named))
	}
	takers := r.takers(serving)
	able, first := 0, time.Time{}
	busy := 0
	for _, w := range serving {
		v := r.verdict(w)
		r.Report.Workers = append(r.Report.Workers, v)
		if v.May {
			able++
			if !w.Pulls && w.Running >= w.Concurrency {
				busy++
			}
		}
	}
	if t.DueAt.After(r.Now) {
		first = t.DueAt
	}
	switch {
	case len(takers) == 0:
		r.noneTakes(serving)
	case !first.IsZero():
		r.next("From %s it may be claimed by %s.", human.When(first, r.Now), r.eligible(serving))
	case lifecycle.HeldBack(t):
		r.heldBack()
	case able == 0:
		r.because("No live worker of its type (%d) may claim it now.", len(serving))
		if at := r.ownRetry(takers); !at.IsZero() {
			r.next("From %s a worker that has tried it may claim it again.", human.When(at, r.Now))
		} else {
			r.next("It waits until a worker that may run it starts, or until its options change.")
		}
	case r.typeFull():
	case busy == able:
		r.because("All workers that may claim it were busy at their last heartbeat.")
		r.next("The first of them with a free slot claims it, after tasks that have a higher priority or were due earlier.")
	default:
		r.next("It should be claimed within seconds by %s.", r.eligible(serving))
	}
}

// ownRetry is when the first of workers that have tried the task may try it again; zero = none of them waits for that.
func (r *report) ownRetry(takers []Worker) (first time.Time) {
	for _, w := range takers {
		at := lifecycle.RetryOf(r.Task, w.ID)
		if r.refusal(r.Task, w) == lifecycle.RefusedOwnRetry && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// undecoded explains how a task ends that no worker has understood so far.
func (r *report) undecoded() {
	if since := r.Task.UndecodableSince; !since.IsZero() {
		r.because("Workers have tried it since %s. None of them could decode it. That uses no retry.", human.When(since, r.Now))
		grace, unless := lifecycle.DecodeGrace, ", unless the worker has another DecodeGrace"
		if r.Task.Type == input.CallbackType {
			grace, unless = lifecycle.DecodeGraceOfSecrets, ""
		}
		r.next("Each worker tries it again within two minutes. From %s on, such a try ends it as Failure%s.", human.When(since.Add(grace), r.Now), unless)
	}
}

// mayAnyRun reports whether the filter lets in one of the workers.
func (r *report) mayAnyRun(workers []Worker) bool {
	return slices.ContainsFunc(workers, func(w Worker) bool { return !lifecycle.MustStop(r.Task, w.ID) })
}

// eligible names those of the workers that the filter lets in.
func (r *report) eligible(serving []Worker) string {
	var ids []string
	for _, w := range r.takers(serving) {
		if !lifecycle.MustStop(r.Task, w.ID) {
			ids = append(ids, w.ID)
		}
	}
	switch {
	case len(ids) == 0:
		return "no live worker"
	case r.Sees != nil:
		return "a live worker"
	case len(ids) == 1:
		return "the worker " + ids[0]
	default:
		return fmt.Sprintf("any of %d live workers", len(ids))
	}
}

// verdict asks the rule that the worker itself asks.
func (r *report) verdict(w Worker) WorkerVerdict {
	t := r.Task
	if e := lifecycle.Expire(t, r.eff, r.Now, 0.5); e != nil {
		t = e // as the worker would, before it claims
	}
	no := r.refusal(t, w)
	switch {
	case w.Resumes:
		return WorkerVerdict{ID: w.ID, Words: "not now: it was drained, and learns at its next heartbeat that it is resumed, within 30s"}
	case w.Draining:
		return WorkerVerdict{ID: w.ID, Words: "no: it is being drained"}
	case !lifecycle.ConditionsMet(w.Only, t):
		return WorkerVerdict{ID: w.ID, Words: "no: it takes only " + lifecycle.ConditionsText(w.Only)}
	case no == "" && lifecycle.HeldBack(t):
		return WorkerVerdict{ID: w.ID, Words: "not now: the task waits for its limit_key"}
	case no == "" && w.Pulls:
		return WorkerVerdict{ID: w.ID, May: true, Words: "may claim it with its next fetch"}
	case no == "":
		words := fmt.Sprintf("may claim it (%d of %d slots busy)", w.Running, w.Concurrency)
		return WorkerVerdict{ID: w.ID, May: true, Words: words}
	}
	return WorkerVerdict{ID: w.ID, Words: "not now: " + string(no)}
}

// refusal is why the worker may not claim the task, by the options of the next claim.
func (r *report) refusal(t *model.Task, w Worker) lifecycle.Refusal {
	return lifecycle.Claimable(t, w.ID, lifecycle.EffectiveFor(t, nil, r.typeOptions()), r.Now)
}

// takers are those whose conditions allow the task, and that still claim.
func (r *report) takers(serving []Worker) []Worker {
	return slices.DeleteFunc(slices.Clone(serving), func(w Worker) bool { return w.Draining || !lifecycle.ConditionsMet(w.Only, r.Task) })
}

func (r *report) serving() []Worker {
	var out []Worker
	for _, w := range r.Facts.Workers {
		if slices.Contains(w.Types, r.Task.Type) {
			out = append(out, w)
		}
	}
	return out
}

// unlessOfNode says what a person can do, unless the task's flow alone decides about it.
func (r *report) unlessOfNode(format string, args ...any) {
	if t := r.Task; t.Type == input.NodeType && t.Origin != nil {
		format, args = "Its flow decides about it: mscheduler flow explain %s %s", []any{human.FlowArg(t.Origin.ID), t.Origin.Node}
	}
	r.next(format, args...)
}

// needed says what a worker must do to serve the task's type.
func (r *report) needed() string {
	needed := "handles " + r.Task.Type
	if start := human.WorkFor(r.Task.Type); start != "" {
		needed += ": " + start
	}
	return needed
}

func (r *report) othersHandle() string {
	if r.Sees != nil {
		return ""
	}
	seen := map[string]bool{}
	for _, w := range r.Facts.Workers {
		for _, t := range w.Types {
			seen[t] = true
		}
	}
	if len(seen) == 0 {
		return " (there is no live worker)"
	}
	types := make([]string, 0, len(seen))
	for t := range seen {
		types = append(types, t)
	}
	slices.Sort(types)
	if len(types) > 10 {
		types = append(types[:10], "…")
	}
	return fmt.Sprintf(" (live workers handle %s)", strings.Join(types, ", "))
}

// stale reports a document that contradicts itself.
func (r *report) stale() {
	if lifecycle.Repair(r.Task, r.eff, r.Now) == nil {
		return
	}
	r.because("Its derived fields contradict its executions: another program changed the document, or a lapse is being settled.")
	if !r.Task.Status.Ended() {
		r.next("The next worker that reads it repairs it.")
	}
}

func names(ids []string) string {
	if len(ids) == 1 {
		return "the worker " + ids[0]
	}
	return "the workers " + strings.Join(ids, ", ")
}
