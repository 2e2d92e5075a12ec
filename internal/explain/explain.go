package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Worker is what matters of a worker that lives.
type Worker struct {
	ID          string
	Types       []string
	Only        *lifecycle.Conditions // what it takes of them; nil = everything
	Concurrency int
	Running     int // at its last heartbeat
}

// Facts are what an explanation is made of.
type Facts struct {
	Task       *model.Task
	Now        time.Time          // the database's
	Workers    []Worker           // that live, of any type
	Type       *model.TaskType    // what is stored of the task's type; nil = nothing
	OfType     []lifecycle.Permit // that are taken, where the type has a max_running
	OfKey      []lifecycle.Permit // that are taken of the task's limit_key, if it has one
	Delivery   *model.Task        // of the callback of a task that has ended; nil = there is none
	PausedType bool
	PausedAll  bool
}

// Report is an explanation, a sentence a line.
type Report struct {
	// Summary is the one sentence that answers "why is it where it is?".
	Summary string `json:"summary"`
	// Because are the facts that it follows from.
	Because []string `json:"because"`
	// Next is what will happen, and what somebody could do.
	Next []string `json:"next"`
	// Workers says for each live worker of the type whether it may claim the task now,
	// or why not. Empty for a task that has ended.
	Workers []WorkerVerdict `json:"workers"`
}

// WorkerVerdict is what one worker may do with the task.
type WorkerVerdict struct {
	ID    string `json:"id"`
	May   bool   `json:"may_claim"`
	Words string `json:"reason"`
}

// report is a Report that is being written.
type report struct {
	Facts
	eff lifecycle.Effective
	Report
}

// Explain explains. The effective options are those of the task over what applied to its
// newest execution, or, as long as it has had none, over what its type says; what a handler
// sets in its own process is not known then.
func Explain(f Facts) Report {
	r := report{Facts: f, eff: lifecycle.EffectiveOf(f.Task, f.typeOptions()), Report: Report{Because: []string{}, Next: []string{}, Workers: []WorkerVerdict{}}}
	switch t := f.Task; {
	case !lifecycle.Known(t.Status):
		r.Summary = fmt.Sprintf("Its status %s is one that this release does not know.", t.Status)
		r.next("Ask a release that knows it.")
	case t.Status.Ended():
		r.ended()
	case !t.ArchivedAt.IsZero():
		r.Summary = fmt.Sprintf("It waited for its retry when a new life of its key began; this one is in the history since %s.", human.When(t.ArchivedAt, r.Now))
		r.lastEnd()
	case t.Status == model.StatusWait:
		r.Summary = "It is held: nobody may claim it until it is released."
		r.next("Release it: mscheduler task release %s", human.TaskArg(t.ID))
	case !t.CancelRequestedAt.IsZero():
		r.cancelling()
	case lifecycle.OpenExecutions(t) > 0:
		r.executing()
	default:
		r.waiting()
	}
	r.stale()
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

// waiting explains a task that nobody holds.
func (r *report) waiting() {
	t := r.Task
	r.lastEnd()
	due := t.DueAt
	switch {
	case due.IsZero():
		r.Summary = "Nobody may claim it, although its status is " + string(t.Status) + "."
	case due.After(r.Now) && t.Status == model.StatusError:
		r.Summary = fmt.Sprintf("It waits for its retry, due %s.", human.When(due, r.Now))
	case due.After(r.Now):
		r.Summary = fmt.Sprintf("It waits for its start time, %s.", human.When(due, r.Now))
	case lifecycle.HeldBack(t):
		r.Summary = fmt.Sprintf("It is due since %s and is held back: it waits for its turn among the tasks of its limit_key, %s.", human.When(due, r.Now), t.Options.LimitKey)
	default:
		r.Summary = fmt.Sprintf("It is due since %s and waits for a worker.", human.When(due, r.Now))
	}
	r.whoCould()
	r.budget()
}

// whoCould says who would claim the task once it is due.
func (r *report) whoCould() {
	t := r.Task
	serving := r.serving()
	named := t.Options.SpecificWorkerIDs
	switch {
	case r.PausedAll:
		r.because("Claiming is paused for all types.")
		r.next("Nobody claims it until: mscheduler resume --all")
		return
	case r.PausedType:
		r.because("Claiming is paused for the type %s.", t.Type)
		r.next("Nobody claims it until: mscheduler resume %s", t.Type)
		return
	case len(serving) == 0:
		r.because("No live worker handles the type %s%s.", t.Type, r.othersHandle())
		if t.Category != "" && (r.Type == nil || r.Type.Category != t.Category) {
			r.because("A handler of the category %s runs the types whose document says that category; the one of %s does not.", t.Category, t.Type)
			r.next("If such a handler shall run it: store the type with that category, by mscheduler type apply.")
		}
		r.next("Start a worker for %s; it finds the task by itself.", t.Type)
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
			if w.Running >= w.Concurrency {
				busy++
			}
		}
	}
	if t.DueAt.After(r.Now) {
		first = t.DueAt
	}
	switch {
	case len(takers) == 0:
		r.nobodyTakes(serving)
	case !first.IsZero():
		r.next("From %s on it may be claimed by %s.", human.When(first, r.Now), r.eligible(serving))
	case lifecycle.HeldBack(t):
		r.heldBack()
	case able == 0:
		r.because("None of the %d live workers of its type may claim it now.", len(serving))
		r.next("It waits until a worker that may run it is there, or its options change.")
	case r.typeFull():
	case busy == able:
		r.because("All workers that may claim it were busy at their last heartbeat.")
		r.next("The first of them with a free slot claims it, after what has a greater priority or is due longer.")
	default:
		r.next("It should be claimed any moment by %s.", r.eligible(serving))
	}
}

// eligible names those of the workers that the filter lets in.
func (r *report) eligible(serving []Worker) string {
	var ids []string
	for _, w := range r.takers(serving) {
		if !lifecycle.MustStop(r.Task, w.ID) {
			ids = append(ids, w.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "nobody who lives"
	case 1:
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
	no := lifecycle.Claimable(t, w.ID, r.eff, r.Now)
	switch {
	case !lifecycle.ConditionsMet(w.Only, t):
		return WorkerVerdict{ID: w.ID, Words: "not its: it takes only " + lifecycle.ConditionsText(w.Only)}
	case no == "" && lifecycle.HeldBack(t):
		return WorkerVerdict{ID: w.ID, Words: "not now: it waits for its limit_key"}
	case no == "":
		words := fmt.Sprintf("may claim it (%d of %d slots busy)", w.Running, w.Concurrency)
		return WorkerVerdict{ID: w.ID, May: true, Words: words}
	}
	return WorkerVerdict{ID: w.ID, Words: "not now: " + string(no)}
}

// takers are those whose conditions allow the task.
func (r *report) takers(serving []Worker) []Worker {
	return slices.DeleteFunc(slices.Clone(serving), func(w Worker) bool { return !lifecycle.ConditionsMet(w.Only, r.Task) })
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

func (r *report) othersHandle() string {
	seen := map[string]bool{}
	for _, w := range r.Facts.Workers {
		for _, t := range w.Types {
			seen[t] = true
		}
	}
	if len(seen) == 0 {
		return " (no worker lives at all)"
	}
	types := make([]string, 0, len(seen))
	for t := range seen {
		types = append(types, t)
	}
	slices.Sort(types)
	if len(types) > 10 {
		types = append(types[:10], "…")
	}
	return fmt.Sprintf(" (those that live handle %s)", strings.Join(types, ", "))
}

// stale says when the document contradicts itself.
func (r *report) stale() {
	if lifecycle.Repair(r.Task, r.eff, r.Now) == nil {
		return
	}
	r.because("Its derived fields do not say what its executions do: something else than mscheduler wrote it, or a lapse is being settled.")
	if !r.Task.Status.Ended() {
		r.next("The worker that finds it repairs it.")
	}
}

func names(ids []string) string {
	if len(ids) == 1 {
		return "the worker " + ids[0]
	}
	return "the workers " + strings.Join(ids, ", ")
}
