package lifecycle

import (
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

// claimedWith returns the part of the options that an execution keeps.
func claimedWith(o *model.Options) *model.ClaimedOptions {
	return &model.ClaimedOptions{
		WorkerTimeout: o.WorkerTimeout, Retry: o.Retry, MaxLapses: o.MaxLapses, MaxErrorsPerWorker: o.MaxErrorsPerWorker,
		NeedManual: o.NeedManual, Retention: o.Retention, Callback: o.Callback,
	}
}

// changeOptions replaces the options of the task. Open executions keep the options of their
// claim. While none is open the change takes effect at once, also for executions that ended. typ is
// what the task's type says, see [EffectiveOf].
func changeOptions(t *model.Task, o, typ model.Options) {
	before, after := claimedWith(&t.Options), claimedWith(&o)
	changed, open := !codec.SameClaimed(before, after), OpenExecutions(t) > 0
	for i := range t.WorkerStates {
		switch w := &t.WorkerStates[i]; {
		case Open(w):
			if changed && w.Options == nil {
				w.Options = before
			}
			keepLease(t, w, o, typ)
		case changed && !open:
			w.Options = nil
		}
	}
	t.Options = o
}

// keepLease keeps the lease of the execution's claim where it followed from the ping interval and o would change it.
func keepLease(t *model.Task, w *model.WorkerState, o, typ model.Options) {
	changed := *t
	changed.Options = o
	was := EffectiveFor(t, w, typ).Lease
	if EffectiveFor(&changed, w, typ).Lease == was {
		return
	}
	at := optionsFor(t, w)
	w.Options = claimedWith(&at)
	w.Options.WorkerTimeout = was
}

// newest returns the execution that was claimed last; nil if there is none.
func newest(t *model.Task) (newest *model.WorkerState) {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; newest == nil || !w.ClaimedAt.Before(newest.ClaimedAt) {
			newest = w
		}
	}
	return newest
}

// optionsFor returns the task's own options that apply to the execution; nil = none.
func optionsFor(t *model.Task, w *model.WorkerState) model.Options {
	o := t.Options
	if w != nil && w.Options != nil {
		c := w.Options
		o.WorkerTimeout, o.Retry, o.MaxLapses, o.MaxErrorsPerWorker = c.WorkerTimeout, c.Retry, c.MaxLapses, c.MaxErrorsPerWorker
		o.NeedManual, o.Retention, o.Callback = c.NeedManual, c.Retention, c.Callback
	}
	return o
}

// OptionsAtClaim returns the task's own options that apply until its next claim. changed reports
// whether the document holds other options, which apply from then on.
func OptionsAtClaim(t *model.Task) (o model.Options, changed bool) {
	w := newest(t)
	return optionsFor(t, w), w != nil && w.Options != nil
}

// EffectiveOf returns the options that apply to the task until its next claim: its own at the
// newest claim, and below them those of type and handler at that claim. If these are empty, or
// the task has not been claimed, typ counts, the current options of its type.
func EffectiveOf(t *model.Task, typ model.Options) Effective { return EffectiveFor(t, newest(t), typ) }

// EffectiveFor returns the options that apply to one execution of the task, see
// [EffectiveOf]; nil = to its next claim.
func EffectiveFor(t *model.Task, w *model.WorkerState, typ model.Options) Effective {
	if t.Applied != nil {
		typ = *t.Applied
	}
	return ResolveOptions(optionsFor(t, w), typ)
}

// judgedBy returns the options that judge the end of the execution; nil = no execution. eff are
// the options that the caller knows to apply to the task.
func judgedBy(t *model.Task, w *model.WorkerState, eff Effective) Effective {
	if w == nil || w.Options == nil {
		return eff
	}
	return EffectiveFor(t, w, model.Options{})
}

// judged returns the options that judge the task as a whole: those of the newest claim.
func judged(t *model.Task, eff Effective) Effective { return judgedBy(t, newest(t), eff) }
