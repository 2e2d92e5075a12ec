package model

// A change of a task's options does not touch an execution that runs (seed 004). It goes on
// under the options of its claim, and so does the verdict on its end: the retry and its delay,
// the budget, Pending or Failure, the callback, the retention. The change holds from the next
// claim on. Exceptions: the worker filter holds at once (see [Task.MustStop]), the ping interval
// from the next ping, and the number of wanted workers, which is no matter of one execution.
//
// The task's document has the options as they are now. Only where they change while an
// execution is open does its entry keep the ones that it was claimed with.

// ClaimedOptions are the options of the task that an execution was claimed with, as far as
// they judge it. Unlike [Options] they are stored also when they say nothing.
type ClaimedOptions Options

// claimedWith is what an execution keeps of the options.
func claimedWith(o *Options) *ClaimedOptions {
	return &ClaimedOptions{
		WorkerTimeout: o.WorkerTimeout, Retry: o.Retry, MaxLapses: o.MaxLapses,
		NeedManual: o.NeedManual, Retention: o.Retention, Callback: o.Callback,
	}
}

func (c *ClaimedOptions) same(d *ClaimedOptions) bool {
	if c == nil || d == nil {
		return c == d
	}
	return (*Options)(c).same((*Options)(d))
}

// changeOptions gives the task other options. Open executions keep those of their claim.
// While none is open the change holds at once, also for the verdict on those that ended.
func (t *Task) changeOptions(o Options) {
	before, after := claimedWith(&t.Options), claimedWith(&o)
	open := t.OpenExecutions() > 0
	for i := range t.WorkerStates {
		switch w := &t.WorkerStates[i]; {
		case before.same(after):
		case !open:
			w.Options = nil
		case w.Open() && w.Options == nil:
			w.Options = before
		}
	}
	t.Options = o
}

// newest is the execution that was claimed last; nil when there is none.
func (t *Task) newest() (newest *WorkerState) {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; newest == nil || !w.ClaimedAt.Before(newest.ClaimedAt) {
			newest = w
		}
	}
	return newest
}

// optionsFor are the task's own options as they hold for the execution; nil = none.
func (t *Task) optionsFor(w *WorkerState) Options {
	o := t.Options
	if w != nil && w.Options != nil {
		c := w.Options
		o.WorkerTimeout, o.Retry, o.MaxLapses = c.WorkerTimeout, c.Retry, c.MaxLapses
		o.NeedManual, o.Retention, o.Callback = c.NeedManual, c.Retention, c.Callback
	}
	return o
}

// OptionsAtClaim are the task's own options as they hold until its next claim. changed says
// whether those of the document are others, which hold from then on.
func (t *Task) OptionsAtClaim() (o Options, changed bool) {
	w := t.newest()
	return t.optionsFor(w), w != nil && w.Options != nil
}

// Effective are the options that apply to the task until its next claim: its own as they
// were at the newest claim, and below them what type and handler said then. Where they said
// nothing, or it has not been claimed, typ counts, which is what its type says.
func (t *Task) Effective(typ Options) Effective { return t.EffectiveFor(t.newest(), typ) }

// EffectiveFor are the options that apply to one execution of the task, see
// [Task.Effective].
func (t *Task) EffectiveFor(w *WorkerState, typ Options) Effective {
	if t.Applied != nil {
		typ = *t.Applied
	}
	return ResolveOptions(t.optionsFor(w), typ)
}

// judgedBy are the options by which the end of the execution is judged, where eff is what
// the caller knows to apply to the task; nil = no execution.
func (t *Task) judgedBy(w *WorkerState, eff Effective) Effective {
	if w == nil || w.Options == nil {
		return eff
	}
	return t.EffectiveFor(w, Options{})
}

// judged are the options by which the task as a whole is judged: those of the newest claim.
func (t *Task) judged(eff Effective) Effective { return t.judgedBy(t.newest(), eff) }
