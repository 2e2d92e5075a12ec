package tickplan

import (
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// The failure policy judges the last effective run of seed 003: the newest tick's run that
// was neither skipped nor is still SCHEDULED. While a run waits for a worker, the run before it
// decides about the next tick, which so has the same attempt.

// effective returns the run that the failure policy judges; nil for none.
func effective(r *schedule.Rule) *schedule.LastRun {
	if r.Last == nil || r.Last.Status != schedule.RunRunning {
		return r.Last
	}
	return r.LastEffective
}

// supersede keeps the judged run when another one becomes the last. It keeps a run that did not
// fail only while an earlier one may still end.
func (d *decision) supersede() {
	last := effective(d.Rule)
	if last != nil && !Failed(last.Status) && len(d.Active) == 0 {
		last = nil
	}
	d.LastEffective = last
}

// judge records the status of a run if the failure policy judges it from now on. active reports
// whether the rule knew it as active: the policy ignores a run that a person repeats later.
func (d *decision) judge(ref schedule.RunRef, s schedule.RunStatus, active bool) {
	before, last, known := effective(d.Rule), d.Last, d.LastEffective
	switch {
	case last == nil || ref.Manual:
		return
	case last.ID == ref.ID && s != schedule.RunRunning:
		last.Status, d.LastEffective = s, nil
	case last.Status != schedule.RunRunning:
		return // it has ended, and is newer
	case known != nil && known.ID == ref.ID:
		known.Status = s
	case active && (known == nil || ref.Nominal.After(known.Nominal)):
		d.LastEffective = &schedule.LastRun{ID: ref.ID, Nominal: ref.Nominal, Attempt: ref.Attempt, Status: s}
	}
	if after := effective(d.Rule); before == nil || before.ID != after.ID {
		d.FailSkips = false // it is about another run
	}
}

// Begun records which of the rule's active runs a worker has begun. It returns the rule itself
// if that changes nothing.
func Begun(r *schedule.Rule, runs map[string]bool) *schedule.Rule {
	d := decide(r, nil, r.DecidedTo)
	changed := false
	for _, a := range d.Active {
		if runs[a.ID] && Judged(d.Rule, a) {
			d.judge(a, schedule.RunRunning, true)
			changed = true
		}
	}
	if !changed {
		return r
	}
	return d.Rule
}

// Judged reports whether the failure policy would judge an active run once a worker has begun
// it, and whether that could make a difference.
func Judged(r *schedule.Rule, a schedule.RunRef) bool {
	if r.OnFailure != schedule.FailureRetry && r.OnFailure != schedule.FailureSkip || a.Manual || r.Last == nil || r.Last.Status != schedule.RunRunning {
		return false
	}
	last := effective(r)
	if last == nil || !Failed(last.Status) {
		return len(r.Active) > 1 && (last == nil || a.Nominal.After(last.Nominal)) // an earlier one may fail yet
	}
	return a.Nominal.After(last.Nominal)
}
