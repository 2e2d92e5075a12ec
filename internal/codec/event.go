package codec

import (
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// EventKinds lists all kinds in the order of a task's life.
var EventKinds = []model.EventKind{
	model.EventSent, model.EventClaimed, model.EventTakenOver, model.EventProgress, model.EventParked, model.EventReleased,
	model.EventFailed, model.EventSucceeded, model.EventCancelling, model.EventChanged, model.EventEnded,
}

// Change is what a change stream tells of one write.
type Change struct {
	TaskID   string
	Inserted bson.Raw  // the document, of an insert
	Updated  bson.Raw  // of an update: the fields it set, by their paths
	At       time.Time // of the write, where its fields name no better time
}

// EventOf is the event that a write is; ok is false for one that tells nobody anything:
// pings, checkpoints, steps, outcomes that were carried out, fences, repaired leases.
// Fields of unusual form are as good as absent.
func EventOf(c Change) (e model.TaskEvent, ok bool) {
	e = model.TaskEvent{TaskID: c.TaskID, At: c.At}
	tenant, typ, key, err := input.ParseTaskID(c.TaskID)
	if err != nil {
		return model.TaskEvent{}, false // not a task of ours
	}
	e.Tenant, e.Type, e.Key = tenant, typ, key
	if c.Inserted != nil {
		return e, inserted(&e, c.Inserted)
	}
	var w written
	for f := fieldsOf(c.Updated); f.next(); {
		w.read(&f)
	}
	if !w.time().IsZero() {
		e.At = w.time()
	}
	e.Rev = w.rev
	switch {
	case w.rev == 0 && w.progress == nil:
		return model.TaskEvent{}, false
	case w.rev == 0:
		e.Kind, e.Status, e.Progress, e.At = model.EventProgress, model.StatusExecuting, w.progress, w.progress.At
		return e, true
	}
	decided(&e, &w)
	return e, e.Kind != ""
}

// inserted is the event of a first life.
func inserted(e *model.TaskEvent, doc bson.Raw) bool {
	t, err := new(TaskReader).Read(doc)
	if err != nil {
		return false
	}
	e.Kind, e.Status, e.At, e.Rev, e.Generation = model.EventSent, t.Status, t.CreatedAt, t.Rev, t.Generation
	if t.Status.Ended() {
		e.Kind, e.Reason = model.EventEnded, t.Remark
	}
	return true
}

// decided is the event of a write by a rule.
func decided(e *model.TaskEvent, w *written) {
	if w.generation != 0 && w.status == "" && !w.finishedAt.IsZero() {
		w.status = model.StatusCancelled // a new life ended at once as the last one did: it had expired
	}
	e.Status, e.Generation, e.FailKind = w.status, w.generation, w.failKind
	e.Reason = w.failReason
	if e.Reason == "" {
		e.Reason = w.remark
	}
	switch {
	case w.status.Ended():
		e.Kind = model.EventEnded
	case w.generation != 0:
		e.Kind = model.EventSent
	case w.began != nil:
		e.Kind, e.Status = model.EventClaimed, model.StatusExecuting
		e.WorkerID, e.ExecID, e.Attempt = w.began.WorkerID, w.began.ExecID, w.began.Attempt
		if w.counted || w.failKind != "" { // which no claim does by itself
			e.Kind = model.EventTakenOver
		}
	case w.cancelling:
		e.Kind = model.EventCancelling
		running(e)
	case w.failKind == failkind.Cleaned: // nothing ended
		e.Kind, e.FailKind, e.Reason = model.EventChanged, "", ""
	case w.failKind == failkind.Released || w.failKind == failkind.Undecodable:
		e.Kind = model.EventReleased
		running(e)
	case w.failKind != "":
		e.Kind = model.EventFailed
		running(e)
	case !w.succeeded.IsZero():
		e.Kind = model.EventSucceeded
		running(e)
	case w.parked:
		e.Kind = model.EventParked
		running(e)
	case w.status == model.StatusNew: // from Wait: within a life an execution leads there only by the ends above
		e.Kind = model.EventReleased
	case w.other:
		e.Kind = model.EventChanged
	}
}

// running fills in the status of a task of which an execution was open, where the write
// left it as it was.
func running(e *model.TaskEvent) {
	if e.Status == "" {
		e.Status = model.StatusExecuting
	}
}

// written is what the fields that a write set say together.
type written struct {
	rev, generation               int64
	status                        model.Status
	updatedAt, finishedAt, wakeAt time.Time
	failedAt, succeeded           time.Time
	began                         *model.WorkerState // a new execution
	failKind                      string
	failReason, remark            string
	parked, cancelling            bool
	counted                       bool // an error or a lapse
	other                         bool // something else than rev and leases
	progress                      *model.Progress
}

// time is that of the write, if a field tells. What was written twice in one millisecond
// does not say updated_at again.
func (w *written) time() time.Time {
	for _, t := range []time.Time{w.updatedAt, w.finishedAt, w.failedAt, w.succeeded, w.wakeAt} {
		if !t.IsZero() {
			return t
		}
	}
	if w.began != nil {
		return w.began.ClaimedAt
	}
	return time.Time{}
}

func (w *written) read(f *field) {
	path := string(f.key)
	if state, ok := strings.CutPrefix(path, "worker_states"); ok {
		w.other = true
		w.readState(state, f)
		return
	}
	switch path {
	case "rev":
		w.rev = f.long()
		return
	case "updated_at":
		w.updatedAt = f.time()
		return
	case "lapse_at":
		return
	case "generation":
		w.generation = f.long()
	case "status":
		w.status = model.Status(f.text())
	case "finished_at":
		w.finishedAt = f.time()
	case "wake_at":
		w.wakeAt = f.time()
	case "remark":
		w.remark = f.text()
	case "cancel_requested_at":
		w.cancelling = true
	case "error_count", "lapse_count":
		w.counted = true
	case "progress":
		w.progress = decoded[model.Progress](f)
	}
	w.other = true
}

// readState reads what was set of the executions: all of them, one, or a field of one.
func (w *written) readState(path string, f *field) {
	if path == "" {
		w.readStates(f)
		return
	}
	index, name, inside := strings.Cut(path[1:], ".")
	if _, err := strconv.Atoi(index); err != nil {
		return
	}
	if !inside {
		w.state(*decoded[model.WorkerState](f))
		return
	}
	switch name {
	case "fail_time":
		w.failedAt = f.time()
	case "success_time":
		w.succeeded = f.time()
	case "fail_kind":
		if w.failKind == "" || w.failKind == failkind.Cleaned { // the first that ended, of several
			w.failKind, w.failReason = f.text(), ""
		}
	case "fail_reason":
		if w.failReason == "" {
			w.failReason = f.text()
		}
	case "parked":
		w.parked = f.bool()
	}
}

// readStates takes from the whole array what is newest in it: that is what the write did.
func (w *written) readStates(f *field) {
	if !f.is(bsoncore.TypeArray) {
		return
	}
	var all []model.WorkerState
	var newest time.Time
	e := fieldsOf(f.data)
	for e.next() {
		all = append(all, *decoded[model.WorkerState](&e))
	}
	f.err = e.err
	for i := range all {
		newest = clock.Later(newest, changedAt(&all[i]))
	}
	for _, st := range all {
		if changedAt(&st).Equal(newest) {
			w.state(st)
		}
	}
}

func changedAt(w *model.WorkerState) time.Time {
	return clock.Later(clock.Later(w.ClaimedAt, w.FailTime), w.SuccessTime)
}

func (w *written) state(st model.WorkerState) {
	switch {
	case st.ExecID == "":
	case !st.FailTime.IsZero():
		w.failedAt, w.failKind, w.failReason = st.FailTime, st.FailKind, st.FailReason
	case !st.SuccessTime.IsZero():
		w.succeeded = st.SuccessTime
	default:
		w.began = &st
	}
}
