package lifecycle

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// pingLoop extends the leases of all handlers that run.
func (w *simWorker) pingLoop() {
	for _, exec := range sortedKeys(w.held) {
		h := w.held[exec]
		if h.running || h.ended {
			w.pingOne(h)
		}
	}
	w.later(w.lease/3, w.pingLoop)
}

func (w *simWorker) pingOne(h *hold) {
	sent, lost := w.clock(), false
	w.call(func() {
		t := w.tasks[h.task.ID]
		if _, st := ExecutionOf(t, h.exec); t.Generation != h.task.Generation || st == nil || !Open(st) {
			lost = true
			return
		}
		if _, st := ExecutionOf(t, h.exec); !st.Parked {
			w.tasks[t.ID], _ = ping(t, h.exec, h.eff.Lease, sent)
		}
	}, func(answered bool) {
		if !answered {
			return
		}
		if lost {
			if _, st := ExecutionOf(w.tasks[h.task.ID], h.exec); h.running && (st == nil || !Open(st)) {
				w.finish(h, "ok") // the handler is told, and returns nil all the same
			}
			return
		}
		_, st := ExecutionOf(h.task, h.exec)
		h.trust = clock.Later(h.trust, Lease(st, h.eff.Lease, sent))
	})
}

// watch stops a handler whose lease is about to end, whose deadline has come, or whose
// task was cancelled or given to other workers.
func (w *simWorker) watch(h *hold) {
	if !h.running {
		return
	}
	_, st := ExecutionOf(h.task, h.exec)
	atDeadline := !st.Deadline.IsZero() && !h.trust.Before(st.Deadline)
	stop := ""
	switch now := w.clock(); {
	case atDeadline && !now.Before(st.Deadline):
		stop = "timeout"
	case !atDeadline && !now.Before(h.trust.Add(-h.eff.Lease/10)):
		stop = "stopped"
	case !w.cut():
		t := w.tasks[h.task.ID] // the control document told it to look
		if t.Generation == h.task.Generation && (!t.CancelRequestedAt.IsZero() || MustStop(t, w.id)) && w.chance(20) {
			stop = "stopped"
		}
	}
	if stop != "" {
		w.stats.Stopped++
		w.finish(h, stop)
		return
	}
	w.later(100*time.Millisecond, func() { w.watch(h) })
}
