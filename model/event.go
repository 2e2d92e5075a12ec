package model

import (
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// EventKind says what happened to a task.
type EventKind string

// The kinds of events. The fields that matter to a kind are named beside it.
const (
	EventSent       EventKind = "sent"       // a life began, the first or a new one: Generation
	EventClaimed    EventKind = "claimed"    // an execution began: WorkerID, ExecID, Attempt
	EventTakenOver  EventKind = "taken_over" // as claimed, over a lapsed lease, whose end FailKind and Reason tell
	EventProgress   EventKind = "progress"   // a handler said how far it is: Progress
	EventParked     EventKind = "parked"     // the handler returned, a completion from outside is awaited
	EventReleased   EventKind = "released"   // an execution was given back without cost: FailKind; or a held task was let go
	EventFailed     EventKind = "failed"     // an execution ended badly, and the task goes on: FailKind, Reason
	EventSucceeded  EventKind = "succeeded"  // one of several wanted workers succeeded, and the task goes on
	EventCancelling EventKind = "cancelling" // its end was asked for while it runs: Reason is the remark
	EventChanged    EventKind = "changed"    // anything else that was decided, such as new options or an earlier retry
	EventEnded      EventKind = "ended"      // the task has a last status: Status, FailKind, Reason
)

// EventKinds lists all kinds in the order of a task's life.
var EventKinds = []EventKind{
	EventSent, EventClaimed, EventTakenOver, EventProgress, EventParked, EventReleased,
	EventFailed, EventSucceeded, EventCancelling, EventChanged, EventEnded,
}

// TaskEvent is one write to one task, as far as the write itself tells: what else there is
// to know of the task, whoever needs it reads. A write that does several things is one
// event: the end before everything, a new life before all but the end, a claim before the
// lapse that made it possible.
//
// A life may end twice: Completed is followed by Success when the callback is delivered,
// Pending by ManuallyProcessed.
type TaskEvent struct {
	Kind   EventKind `json:"kind"`
	TaskID string    `json:"task_id"`
	Tenant string    `json:"tenant,omitempty"` // "" = none
	Type   string    `json:"type"`
	Key    string    `json:"key"`
	At     time.Time `json:"at"`               // the store's clock
	Rev    int64     `json:"rev,omitempty"`    // of the task afterwards; 0 for progress
	Status Status    `json:"status,omitempty"` // of the task afterwards; "" where the write does not tell

	Generation int64     `json:"generation,omitempty"` // where a life began
	WorkerID   string    `json:"worker_id,omitempty"`
	ExecID     string    `json:"exec_id,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	FailKind   FailKind  `json:"fail_kind,omitempty"` // how an execution ended badly in this write
	Reason     string    `json:"reason,omitempty"`    // its reason, or the remark of who changed the task
	Progress   *Progress `json:"progress,omitempty"`
	// Token is the place in the stream right after this event: a subscription that resumes
	// there gets what came later.
	Token string `json:"token,omitempty"`
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
func EventOf(c Change) (e TaskEvent, ok bool) {
	e = TaskEvent{TaskID: c.TaskID, At: c.At}
	tenant, typ, key, err := ParseTaskID(c.TaskID)
	if err != nil {
		return TaskEvent{}, false // not a task of ours
	}
	e.Tenant, e.Type, e.Key = tenant, typ, key
	if c.Inserted != nil {
		return e, e.inserted(c.Inserted)
	}
	var w written
	_ = fields(c.Updated, w.read)
	if !w.time().IsZero() {
		e.At = w.time()
	}
	e.Rev = w.rev
	switch {
	case w.rev == 0 && w.progress == nil:
		return TaskEvent{}, false
	case w.rev == 0:
		e.Kind, e.Status, e.Progress, e.At = EventProgress, StatusExecuting, w.progress, w.progress.At
		return e, true
	}
	e.decided(&w)
	return e, e.Kind != ""
}

// inserted is the event of a first life.
func (e *TaskEvent) inserted(doc bson.Raw) bool {
	t, err := new(TaskReader).Read(doc)
	if err != nil {
		return false
	}
	e.Kind, e.Status, e.At, e.Rev, e.Generation = EventSent, t.Status, t.CreatedAt, t.Rev, t.Generation
	if t.Status.Ended() {
		e.Kind, e.Reason = EventEnded, t.Remark
	}
	return true
}

// decided is the event of a write by a rule.
func (e *TaskEvent) decided(w *written) {
	if w.generation != 0 && w.status == "" && !w.finishedAt.IsZero() {
		w.status = StatusCancelled // a new life ended at once as the last one did: it had expired
	}
	e.Status, e.Generation, e.FailKind = w.status, w.generation, w.failKind
	e.Reason = w.failReason
	if e.Reason == "" {
		e.Reason = w.remark
	}
	switch {
	case w.status.Ended():
		e.Kind = EventEnded
	case w.generation != 0:
		e.Kind = EventSent
	case w.began != nil:
		e.Kind, e.Status = EventClaimed, StatusExecuting
		e.WorkerID, e.ExecID, e.Attempt = w.began.WorkerID, w.began.ExecID, w.began.Attempt
		if w.counted || w.failKind != "" { // which no claim does by itself
			e.Kind = EventTakenOver
		}
	case w.cancelling:
		e.Kind = EventCancelling
		e.running()
	case w.failKind == FailCleaned: // nothing ended
		e.Kind, e.FailKind, e.Reason = EventChanged, "", ""
	case w.failKind == FailReleased || w.failKind == FailUndecodable:
		e.Kind = EventReleased
		e.running()
	case w.failKind != "":
		e.Kind = EventFailed
		e.running()
	case !w.succeeded.IsZero():
		e.Kind = EventSucceeded
		e.running()
	case w.parked:
		e.Kind = EventParked
		e.running()
	case w.status == StatusNew: // from Wait: within a life an execution leads there only by the ends above
		e.Kind = EventReleased
	case w.other:
		e.Kind = EventChanged
	}
}

// running fills in the status of a task of which an execution was open, where the write
// left it as it was.
func (e *TaskEvent) running() {
	if e.Status == "" {
		e.Status = StatusExecuting
	}
}

// written is what the fields that a write set say together.
type written struct {
	rev, generation               int64
	status                        Status
	updatedAt, finishedAt, wakeAt time.Time
	failedAt, succeeded           time.Time
	began                         *WorkerState // a new execution
	failKind                      FailKind
	failReason, remark            string
	parked, cancelling            bool
	counted                       bool // an error or a lapse
	other                         bool // something else than rev and leases
	progress                      *Progress
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

func (w *written) read(f field) {
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
		w.status = Status(f.text())
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
		w.progress = decoded[Progress](f)
	}
	w.other = true
}

// readState reads what was set of the executions: all of them, one, or a field of one.
func (w *written) readState(path string, f field) {
	if path == "" {
		w.readStates(f)
		return
	}
	index, name, inside := strings.Cut(path[1:], ".")
	if _, err := strconv.Atoi(index); err != nil {
		return
	}
	if !inside {
		w.state(*decoded[WorkerState](f))
		return
	}
	switch name {
	case "fail_time":
		w.failedAt = f.time()
	case "success_time":
		w.succeeded = f.time()
	case "fail_kind":
		if w.failKind == "" { // the first, of several
			w.failKind = FailKind(f.text())
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
func (w *written) readStates(f field) {
	all := list(f, func(st *WorkerState, f field) { f.byDriver(st) })
	var newest time.Time
	for i := range all {
		newest = later(newest, all[i].changedAt())
	}
	for _, st := range all {
		if st.changedAt().Equal(newest) {
			w.state(st)
		}
	}
}

func (w *WorkerState) changedAt() time.Time {
	return later(later(w.ClaimedAt, w.FailTime), w.SuccessTime)
}

func (w *written) state(st WorkerState) {
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
