package model

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Diff is the smallest MongoDB update that turns the document before into after: what
// a rule decided, as one guarded write. Fields it does not know are never touched,
// executions are addressed by their index, and the array of executions is set whole
// only where none is open. It is empty when the rule changed nothing.
//
// Two tasks to which a rule did the same have equal diffs, and that is what makes a
// batch one statement.
func Diff(before, after *Task) bson.D {
	d := differ{}
	if before.Rev != after.Rev {
		d.inc = append(d.inc, bson.E{Key: "rev", Value: after.Rev - before.Rev})
	}
	if before.Generation != after.Generation {
		d.put("generation", after.Generation)
	}
	d.text("status", string(before.Status), string(after.Status))
	d.time("due_at", before.DueAt, after.DueAt)
	d.time("lapse_at", before.LapseAt, after.LapseAt)
	d.time("expire_at", before.ExpireAt, after.ExpireAt)
	d.states(before.WorkerStates, after.WorkerStates)
	d.number("attempt", before.Attempt, after.Attempt)
	d.number("error_count", before.ErrorCount, after.ErrorCount)
	d.number("lapse_count", before.LapseCount, after.LapseCount)
	d.text("error_info", before.ErrorInfo, after.ErrorInfo)
	d.value("result", before.Result, after.Result)
	d.time("finished_at", before.FinishedAt, after.FinishedAt)
	d.time("archive_at", before.ArchiveAt, after.ArchiveAt)
	d.time("outbox_at", before.OutboxAt, after.OutboxAt)
	d.outbox(before.Outbox, after.Outbox)
	if before.Applied != after.Applied {
		d.options("applied", before.Applied, after.Applied)
	}
	d.time("cancel_requested_at", before.CancelRequestedAt, after.CancelRequestedAt)
	d.time("undecodable_since", before.UndecodableSince, after.UndecodableSince)
	d.text("remark", before.Remark, after.Remark)
	d.time("wake_at", before.WakeAt, after.WakeAt)
	switch {
	case slices.Equal(before.Audience, after.Audience):
	case len(after.Audience) == 0:
		d.drop("audience")
	default:
		d.put("audience", after.Audience)
	}
	d.rare(before, after)
	if before.Rev != after.Rev { // also at the same time, so that equal decisions have equal updates
		d.put("updated_at", bson.NewDateTimeFromTime(after.UpdatedAt))
	}
	return d.update()
}

// rare are the fields that only a person, a new send or a new life changes.
func (d *differ) rare(before, after *Task) {
	d.time("created_at", before.CreatedAt, after.CreatedAt)
	d.time("start_time", before.StartTime, after.StartTime)
	if before.Priority != after.Priority {
		d.put("priority", after.Priority) // 0 is a priority, not an absence
	}
	d.text("creator", before.Creator, after.Creator)
	d.text("category", before.Category, after.Category)
	d.value("args", before.Args, after.Args)
	d.value("checkpoint", before.Checkpoint, after.Checkpoint)
	if before.Progress != nil && after.Progress == nil {
		d.drop("progress")
	}
	d.options("options", &before.Options, &after.Options)
	if after.Origin != nil && !reflect.DeepEqual(before.Origin, after.Origin) {
		d.put("origin", after.Origin)
	} else if before.Origin != nil && after.Origin == nil {
		d.drop("origin")
	}
}

func (d *differ) options(key string, before, after *Options) {
	switch {
	case reflect.DeepEqual(before, after):
	case after == nil || after.IsZero():
		d.drop(key)
	default:
		d.put(key, after)
	}
}

// outbox pushes what is new: entries are removed, one by one, by writes that do not raise
// the rev, and must not come back.
func (d *differ) outbox(before, after []OutboxEntry) {
	switch {
	case len(after) > len(before):
		d.push = append(d.push, bson.E{Key: "outbox", Value: bson.D{{Key: "$each", Value: after[len(before):]}}})
	case len(after) == 0 && len(before) > 0:
		d.drop("outbox")
	}
}

type differ struct{ set, unset, inc, push bson.D }

func (d *differ) put(key string, v any) { d.set = append(d.set, bson.E{Key: key, Value: v}) }
func (d *differ) drop(key string)       { d.unset = append(d.unset, bson.E{Key: key, Value: ""}) }

func (d *differ) time(key string, before, after time.Time) {
	switch {
	case before.Equal(after):
	case after.IsZero():
		d.drop(key)
	default:
		d.put(key, bson.NewDateTimeFromTime(after))
	}
}

func (d *differ) text(key, before, after string) {
	switch {
	case before == after:
	case after == "":
		d.drop(key)
	default:
		d.put(key, after)
	}
}

func (d *differ) number(key string, before, after int) {
	switch {
	case before == after:
	case after == 0:
		d.drop(key)
	default:
		d.put(key, after)
	}
}

func (d *differ) value(key string, before, after bson.RawValue) {
	switch {
	case before.Type == after.Type && bytes.Equal(before.Value, after.Value):
	case after.Type == 0:
		d.drop(key)
	default:
		d.put(key, after)
	}
}

func (d *differ) states(before, after []WorkerState) {
	switch {
	case len(before) == 0 && len(after) > 0, len(after) < len(before) && len(after) > 0:
		d.put("worker_states", after)
		return
	case len(before) > 0 && len(after) == 0:
		d.drop("worker_states")
		return
	}
	for i := range after {
		path := "worker_states." + strconv.Itoa(i)
		if i >= len(before) || before[i].ExecID != after[i].ExecID {
			d.put(path, after[i])
			continue
		}
		d.state(path+".", &before[i], &after[i])
	}
}

// state covers what may change while an execution stays the same one.
func (d *differ) state(path string, before, after *WorkerState) {
	d.time(path+"ping_expire_time", before.PingExpireTime, after.PingExpireTime)
	d.time(path+"success_time", before.SuccessTime, after.SuccessTime)
	d.time(path+"fail_time", before.FailTime, after.FailTime)
	d.text(path+"fail_kind", string(before.FailKind), string(after.FailKind))
	d.text(path+"fail_reason", before.FailReason, after.FailReason)
	d.time(path+"retry_at", before.RetryAt, after.RetryAt)
	d.value(path+"returns", before.Returns, after.Returns)
	switch {
	case before.Parked == after.Parked:
	case after.Parked:
		d.put(path+"parked", true)
	default:
		d.drop(path + "parked")
	}
}

func (d *differ) update() bson.D {
	var u bson.D
	if len(d.set) > 0 {
		u = append(u, bson.E{Key: "$set", Value: d.set})
	}
	if len(d.unset) > 0 {
		u = append(u, bson.E{Key: "$unset", Value: d.unset})
	}
	if len(d.inc) > 0 {
		u = append(u, bson.E{Key: "$inc", Value: d.inc})
	}
	if len(d.push) > 0 {
		u = append(u, bson.E{Key: "$push", Value: d.push})
	}
	return u
}
