package explain

import (
	"slices"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// callback explains the state of an ended task's callback. The task does not move to the
// history before the delivery has ended.
func (r *report) callback() {
	t, d := r.Task, r.Delivery
	target, _ := lifecycle.CallbackOf(t, r.typeOptions())
	waits := t.Status != model.StatusPending && t.Status != model.StatusManuallyProcessed && t.ArchiveAt.IsZero() && t.ArchivedAt.IsZero()
	handedOver := !slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return e.Kind == lifecycle.OutcomeCallback })
	switch {
	case lifecycle.CallbackSuppressed(t):
		r.because("It has no callback: its handler, or the call that completed it, suppressed it.")
	case d == nil && !handedOver:
		r.because("The delivery task of its callback does not exist yet.")
		r.next("A process that delivers callbacks creates it within seconds. To check that one is alive: mscheduler doctor")
	case d == nil && t.Status == model.StatusCompleted:
		r.because("Its callback could not be delivered, and the delivery task has expired.")
		r.redeliver(target)
	case d == nil:
		return
	case d.Status == model.StatusManuallyProcessed:
		r.because("Its callback was marked as delivered by hand at %s%s.", human.When(d.FinishedAt, r.Now), behind(": ", d.Remark))
	case d.Status.Succeeded() && answer(d) == 0:
		r.because("Its callback was due at %s, but it was no longer configured.", human.When(d.FinishedAt, r.Now))
	case d.Status.Succeeded():
		r.because("Its callback was delivered at %s; the receiver answered %d.", human.When(d.FinishedAt, r.Now), answer(d))
	case d.Status == model.StatusCancelled:
		r.because("The delivery of its callback was cancelled at %s%s.", human.When(d.FinishedAt, r.Now), behind(": ", d.Remark))
		r.redeliver(target)
	case d.Status.Ended():
		r.because("Its callback could not be delivered. The delivery has been in status %s since %s%s.", d.Status, human.When(d.FinishedAt, r.Now), behind(": ", d.ErrorInfo))
		r.aboutDelivery()
		r.redeliver(target)
	default:
		r.because("Its callback is being delivered. Status of the delivery: %s%s%s.", d.Status, errorsOf(d), r.again(d))
		r.aboutDelivery()
	}
	if waits && (d == nil && !handedOver || d != nil && !d.Status.Ended()) {
		r.next("The task and its key are kept until the delivery has ended, and then for the task's retention.")
	}
}

func (r *report) aboutDelivery() {
	r.next("The delivery is a separate task. To explain it: mscheduler task explain %s", human.TaskArg(lifecycle.DeliveryID(r.Task)))
}

// redeliver explains how to deliver again, if the task still has a receiver.
func (r *report) redeliver(target *model.CallbackTarget) {
	if target != nil {
		r.next("To deliver it again: mscheduler task redeliver %s", human.TaskArg(r.Task.ID))
	}
}

func (r *report) again(d *model.Task) string {
	if d.DueAt.IsZero() {
		return ""
	}
	return ", next attempt " + human.When(d.DueAt, r.Now)
}

// answer is the HTTP status of the receiver's response; 0 = no receiver was called.
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
	return ", after " + human.Plural(d.ErrorCount, "error", "errors") + behind(", last error: ", d.ErrorInfo)
}

// behind joins a lead and a text; it returns "" if the text is empty.
func behind(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + human.OneLine(text, maxReason)
}
