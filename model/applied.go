package model

// A change of a task's options does not touch a running execution (seed 004). The options of
// its claim also judge its end: the retry and its delay, the budget, Pending or Failure, the
// callback, the retention. The change takes effect at the next claim. There are three exceptions.
// The worker filter takes effect at once (see [Task.MustStop]), and the ping interval at the next
// ping. The number of wanted workers does not belong to one execution.
//
// The task's document holds the current options. If they change while an execution is open, the
// entry of that execution keeps the options of its claim.

// ClaimedOptions are the task's options at the claim of an execution, as far as they judge it.
// Unlike [Options] they are stored even if they are empty.
type ClaimedOptions Options

// claimedWith returns the part of the options that an execution keeps.
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

// changeOptions replaces the options of the task. Open executions keep the options of their
// claim. While none is open the change takes effect at once, also for executions that ended.
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

// newest returns the execution that was claimed last; nil if there is none.
func (t *Task) newest() (newest *WorkerState) {
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; newest == nil || !w.ClaimedAt.Before(newest.ClaimedAt) {
			newest = w
		}
	}
	return newest
}

// optionsFor returns the task's own options that apply to the execution; nil = none.
func (t *Task) optionsFor(w *WorkerState) Options {
	o := t.Options
	if w != nil && w.Options != nil {
		c := w.Options
		o.WorkerTimeout, o.Retry, o.MaxLapses = c.WorkerTimeout, c.Retry, c.MaxLapses
		o.NeedManual, o.Retention, o.Callback = c.NeedManual, c.Retention, c.Callback
	}
	return o
}

// OptionsAtClaim returns the task's own options that apply until its next claim. changed reports
// whether the document holds other options, which apply from then on.
func (t *Task) OptionsAtClaim() (o Options, changed bool) {
	w := t.newest()
	return t.optionsFor(w), w != nil && w.Options != nil
}

// Effective returns the options that apply to the task until its next claim: its own at the
// newest claim, and below them those of type and handler at that claim. If these are empty, or
// the task has not been claimed, typ counts, the current options of its type.
func (t *Task) Effective(typ Options) Effective { return t.EffectiveFor(t.newest(), typ) }

// EffectiveFor returns the options that apply to one execution of the task, see
// [Task.Effective].
func (t *Task) EffectiveFor(w *WorkerState, typ Options) Effective {
	if t.Applied != nil {
		typ = *t.Applied
	}
	return ResolveOptions(t.optionsFor(w), typ)
}

// judgedBy returns the options that judge the end of the execution; nil = no execution. eff are
// the options that the caller knows to apply to the task.
func (t *Task) judgedBy(w *WorkerState, eff Effective) Effective {
	if w == nil || w.Options == nil {
		return eff
	}
	return t.EffectiveFor(w, Options{})
}

// judged returns the options that judge the task as a whole: those of the newest claim.
func (t *Task) judged(eff Effective) Effective { return t.judgedBy(t.newest(), eff) }
