package tickplan

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// run is the record of a run, but for what became of it.
func (d *decision) run(ref schedule.RunRef) *schedule.Run {
	r := &schedule.Run{
		ID: ref.ID, RuleID: d.ID, RuleName: d.Name, Tenant: d.Tenant,
		Nominal: ref.Nominal, Attempt: ref.Attempt, Manual: ref.Manual, Rev: d.Rev, At: d.now,
		StartedAt: ref.Started, DeleteAt: d.now.Add(cmp.Or(d.RunRetention, DefaultRunRetention)),
	}
	if !ref.Manual {
		r.Late = max(cmp.Or(ref.Started, d.now).Sub(ref.Nominal), 0).Milliseconds()
	}
	return r
}

// RunOf returns a run that the rule's document tells of: its record and its task may not be stored yet. nil = the
// document does not tell of it.
func RunOf(r *schedule.Rule, id string) *schedule.Run {
	for _, p := range slices.Backward(r.Planned) { // the last decision counts
		if p.Record != nil && p.Record.ID == id {
			return new(*p.Record)
		}
	}
	d := &decision{Rule: r}
	for _, ref := range r.Active {
		if ref.ID == id {
			return d.unrecorded(ref, schedule.RunScheduled)
		}
	}
	for _, ref := range r.Queued {
		if ref.ID == id {
			return d.unrecorded(ref, schedule.RunQueued)
		}
	}
	return nil
}

func (d *decision) unrecorded(ref schedule.RunRef, s schedule.RunStatus) *schedule.Run {
	run := d.run(ref)
	run.Status, run.At, run.Rev, run.DeleteAt = s, ref.Started, 0, time.Time{}
	if ref.TaskType != "" {
		run.TaskID = d.taskID(ref)
	}
	return run
}

// record notes what became of a run that had been started or queued.
func (d *decision) record(ref schedule.RunRef, s schedule.RunStatus, info string) {
	run := d.run(ref)
	run.Status, run.Error, run.EndedAt = s, info, d.now
	if ref.TaskType != "" {
		run.TaskID = d.taskID(ref)
	}
	d.keep(run)
}

func (d *decision) keep(run *schedule.Run) { d.keepWith(run, nil) }

// keepWith plans a record, as the rule's log wants it, and the task that belongs to it. A
// record that this decision has planned already is replaced: the span of skips grows, a run
// that was to wait starts after all.
func (d *decision) keepWith(run *schedule.Run, task *model.Task) {
	run = logged(d.Log, run)
	if run != nil {
		for i := len(d.Planned) - d.n; i < len(d.Planned); i++ {
			if p := &d.Planned[i]; p.Record != nil && p.Record.ID == run.ID && p.Task == nil {
				p.Record, p.Task = run, task
				return
			}
		}
	}
	if run != nil || task != nil {
		d.plan(schedule.Planned{Record: run, Task: task})
	}
}

// logged is the record that the rule's log keeps (seed 000); nil for none.
func logged(l schedule.RunLog, run *schedule.Run) *schedule.Run {
	switch {
	case l == schedule.LogNone:
		return nil
	case l == schedule.LogTrigger && run.Status != schedule.RunSkipped:
		if run.Status == schedule.RunCanceled && run.TaskID == "" {
			return run // while it waited: it never was triggered
		}
		if run.Status != schedule.RunScheduled {
			return nil // only that it was triggered, which is a success
		}
		run.Status, run.EndedAt = schedule.RunSuccess, run.At
	}
	return run
}

func (d *decision) plan(p schedule.Planned) {
	p.ID = strconv.FormatInt(d.Rev, 10) + "." + strconv.Itoa(d.n)
	d.n++
	d.Planned = append(d.Planned, p)
	if d.PlannedAt.IsZero() {
		d.PlannedAt = d.now // what has waited longest is what counts
	}
}
