package explain

import (
	"slices"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// callback says how far the callback of a task that has ended is. Until its delivery has
// ended the task does not move to the history.
func (r *report) callback() {
	t, d := r.Task, r.Delivery
	target, _ := lifecycle.CallbackOf(t, r.typeOptions())
	waits := t.Status != model.StatusPending && t.Status != model.StatusManuallyProcessed && t.ArchiveAt.IsZero() && t.ArchivedAt.IsZero()
	handedOver := !slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return e.Kind == lifecycle.OutcomeCallback })
	switch {
	case lifecycle.CallbackSuppressed(t):
		r.because("Nobody is told of it: its handler, or who completed it, said so.")
	case d == nil && !handedOver:
		r.because("Its callback is not handed over to a delivery yet.")
		r.next("A process that delivers callbacks does that within seconds; mscheduler doctor says whether one lives.")
	case d == nil && t.Status == model.StatusCompleted:
		r.because("Its callback could not be delivered, and the delivery is not kept any more.")
		r.redeliver(target)
	case d == nil:
		return
	case d.Status == model.StatusManuallyProcessed:
		r.because("A person said at %s that its callback is delivered%s.", human.When(d.FinishedAt, r.Now), behind(": ", d.Remark))
	case d.Status.Succeeded() && answer(d) == 0:
		r.because("Its callback was due at %s, and nobody was to be told any more.", human.When(d.FinishedAt, r.Now))
	case d.Status.Succeeded():
		r.because("Its callback was delivered at %s; the receiver answered %d.", human.When(d.FinishedAt, r.Now), answer(d))
	case d.Status == model.StatusCancelled:
		r.because("The delivery of its callback was cancelled at %s%s.", human.When(d.FinishedAt, r.Now), behind(": ", d.Remark))
		r.redeliver(target)
	case d.Status.Ended():
		r.because("Its callback could not be delivered; the delivery is %s since %s%s.", d.Status, human.When(d.FinishedAt, r.Now), behind(": ", d.ErrorInfo))
		r.aboutDelivery()
		r.redeliver(target)
	default:
		r.because("Its callback is being delivered: the delivery is %s%s%s.", d.Status, errorsOf(d), r.again(d))
		r.aboutDelivery()
	}
	if waits && (d == nil && !handedOver || d != nil && !d.Status.Ended()) {
		r.next("It stays here, and its key is taken, until that delivery has ended, and from then on for its retention.")
	}
}

func (r *report) aboutDelivery() {
	r.next("The delivery is a task of its own: mscheduler task explain %s", human.TaskArg(lifecycle.DeliveryID(r.Task)))
}

// redeliver says how to try again, where there still is somebody to be told.
func (r *report) redeliver(target *model.CallbackTarget) {
	if target != nil {
		r.next("To have it delivered once more: mscheduler task redeliver %s", human.TaskArg(r.Task.ID))
	}
}

func (r *report) again(d *model.Task) string {
	if d.DueAt.IsZero() {
		return ""
	}
	return ", tried next " + human.When(d.DueAt, r.Now)
}

// answer is the HTTP status with which the receiver took the callback; 0 = nobody was called.
func answer(d *model.Task) int {
	var a struct{ Status int }
	if codec.DecodeValue(d.Result, &a) != nil {
		return 0
	}
	return a.Status
}

func errorsOf(d *model.Task) string {
	if d.ErrorCount == 0 {
		return ""
	}
	return ", after " + human.Plural(d.ErrorCount, "error", "errors") + behind(", the last: ", d.ErrorInfo)
}

// behind is a text with what leads to it; nothing without one.
func behind(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + human.OneLine(text, maxReason)
}
