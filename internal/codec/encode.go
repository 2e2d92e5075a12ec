package codec

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/model"
)

// Every send, claim and end of a task writes one of these documents, thousands a second.
// The driver's codecs walk the types by reflection for each of them, which cost a third of
// a worker's processor time; so they are written out here. What comes out is what the
// driver makes of the struct tags with [Registry], and a test compares the two.

// AppendTask appends the task's document to dst: what is stored of it, and nothing that
// was not set.
func AppendTask(dst []byte, t *model.Task) []byte {
	start, dst := bsoncore.AppendDocumentStart(dst)
	dst = bsoncore.AppendStringElement(dst, "_id", t.ID)
	dst = bsoncore.AppendStringElement(dst, "type", t.Type)
	dst = bsoncore.AppendStringElement(dst, "key", t.Key)
	dst = appendText(dst, "tenant", t.Tenant)
	dst = appendText(dst, "category", t.Category)
	dst = appendText(dst, "creator", t.Creator)
	dst = bsoncore.AppendInt64Element(dst, "generation", t.Generation)
	dst = bsoncore.AppendInt64Element(dst, "rev", t.Rev)
	dst = appendInt(dst, "priority", t.Priority)
	dst = bsoncore.AppendStringElement(dst, "status", string(t.Status))
	dst = appendDate(dst, "start_time", t.StartTime)
	dst = appendTime(dst, "due_at", t.DueAt)
	dst = appendTime(dst, "lapse_at", t.LapseAt)
	dst = appendTexts(dst, "audience", t.Audience)
	dst = appendTime(dst, "expire_at", t.ExpireAt)
	dst = appendValue(dst, "args", t.Args)
	if !t.Options.IsZero() {
		dst = appendOptions(dst, "options", &t.Options)
	}
	if t.Applied != nil && !t.Applied.IsZero() {
		dst = appendOptions(dst, "applied", t.Applied)
	}
	if t.Origin != nil {
		dst = appendByDriver(dst, "origin", t.Origin)
	}
	dst = appendList(dst, "worker_states", t.WorkerStates, appendState)
	dst = appendCount(dst, "attempt", t.Attempt)
	dst = appendCount(dst, "error_count", t.ErrorCount)
	dst = appendCount(dst, "lapse_count", t.LapseCount)
	dst = appendText(dst, "error_info", t.ErrorInfo)
	dst = appendValue(dst, "result", t.Result)
	dst = appendTime(dst, "cancel_requested_at", t.CancelRequestedAt)
	dst = appendTime(dst, "undecodable_since", t.UndecodableSince)
	if t.Progress != nil {
		dst = appendByDriver(dst, "progress", t.Progress)
	}
	dst = appendValue(dst, "checkpoint", t.Checkpoint)
	dst = appendList(dst, "steps", t.Steps, appendStep)
	dst = appendText(dst, "remark", t.Remark)
	dst = appendList(dst, "outbox", t.Outbox, appendByDriver)
	dst = appendTime(dst, "outbox_at", t.OutboxAt)
	dst = appendTime(dst, "archive_at", t.ArchiveAt)
	dst = appendTime(dst, "wake_at", t.WakeAt)
	dst = appendDate(dst, "created_at", t.CreatedAt)
	dst = appendDate(dst, "updated_at", t.UpdatedAt)
	dst = appendTime(dst, "finished_at", t.FinishedAt)
	dst = appendTime(dst, "archived_at", t.ArchivedAt)
	return closed(dst, start)
}

func appendState(dst []byte, key string, w *model.WorkerState) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, key)
	dst = bsoncore.AppendStringElement(dst, "exec_id", w.ExecID)
	dst = bsoncore.AppendStringElement(dst, "worker_id", w.WorkerID)
	dst = appendDate(dst, "claimed_at", w.ClaimedAt)
	dst = appendDate(dst, "ping_expire_time", w.PingExpireTime)
	dst = appendTime(dst, "deadline", w.Deadline)
	dst = appendInt(dst, "attempt", w.Attempt)
	dst = appendTime(dst, "success_time", w.SuccessTime)
	dst = appendTime(dst, "fail_time", w.FailTime)
	dst = appendText(dst, "fail_kind", string(w.FailKind))
	dst = appendText(dst, "fail_reason", w.FailReason)
	dst = appendTime(dst, "retry_at", w.RetryAt)
	dst = appendValue(dst, "returns", w.Returns)
	if w.Parked {
		dst = bsoncore.AppendBooleanElement(dst, "parked", true)
	}
	dst = appendValue(dst, "checkpoint", w.Checkpoint)
	if w.NoCallback {
		dst = bsoncore.AppendBooleanElement(dst, "no_callback", true)
	}
	if w.Unstarted {
		dst = bsoncore.AppendBooleanElement(dst, "unstarted", true)
	}
	dst = appendCount(dst, "local_retries", w.LocalRetries)
	if w.Options != nil {
		dst = appendOptions(dst, "options", (*model.Options)(w.Options))
	}
	return closed(dst, start)
}

func appendStep(dst []byte, key string, s *model.Step) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, key)
	return closed(appendStepFields(s, dst), start)
}

// AppendStep appends the document of a step to dst.
func AppendStep(dst []byte, s *model.Step) []byte {
	start, dst := bsoncore.AppendDocumentStart(dst)
	return closed(appendStepFields(s, dst), start)
}

func appendStepFields(s *model.Step, dst []byte) []byte {
	dst = bsoncore.AppendStringElement(dst, "name", s.Name)
	dst = bsoncore.AppendStringElement(dst, "worker_id", s.WorkerID)
	dst = appendValue(dst, "value", s.Value)
	dst = appendDate(dst, "at", s.At)
	return appendInt(dst, "attempt", s.Attempt)
}

func appendOptions(dst []byte, key string, o *model.Options) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, key)
	dst = appendCount(dst, "concurrent_worker_count", o.ConcurrentWorkerCount)
	dst = appendDuration(dst, "ping_interval_ms", o.PingInterval)
	dst = appendDuration(dst, "worker_timeout_ms", o.WorkerTimeout)
	dst = appendDuration(dst, "execution_timeout_ms", o.ExecutionTimeout)
	dst = appendTexts(dst, "specific_worker_ids", o.SpecificWorkerIDs)
	if o.Retry != nil {
		dst = appendRetry(dst, "retry", o.Retry)
	}
	if o.MaxLapses != nil {
		dst = appendInt(dst, "max_lapses", *o.MaxLapses)
	}
	dst = appendCount(dst, "max_errors_per_worker", o.MaxErrorsPerWorker)
	if o.NeedManual != nil {
		dst = bsoncore.AppendBooleanElement(dst, "need_manual", *o.NeedManual)
	}
	dst = appendDuration(dst, "retention_ms", o.Retention)
	if o.Callback != nil {
		dst = appendByDriver(dst, "callback", o.Callback)
	}
	dst = appendTime(dst, "expires_at", o.ExpiresAt)
	dst = appendText(dst, "limit_key", o.LimitKey)
	dst = appendText(dst, "claim_by", string(o.ClaimBy))
	return closed(dst, start)
}

func appendRetry(dst []byte, key string, r *model.Retry) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, key)
	dst = appendText(dst, "strategy", string(r.Strategy))
	dst = appendDuration(dst, "interval_ms", r.Interval)
	dst = appendList(dst, "sequence_ms", r.Sequence, func(dst []byte, key string, d *time.Duration) []byte {
		return bsoncore.AppendInt64Element(dst, key, d.Milliseconds())
	})
	dst = appendFloat(dst, "factor", r.Factor)
	dst = appendDuration(dst, "max_interval_ms", r.MaxInterval)
	dst = appendFloat(dst, "jitter", r.Jitter)
	if r.MaxErrors != nil {
		dst = appendInt(dst, "max_errors", *r.MaxErrors)
	}
	if r.Local != nil {
		var at int32
		at, dst = bsoncore.AppendDocumentElementStart(dst, "local")
		dst = appendCount(dst, "count", r.Local.Count)
		dst = appendDuration(dst, "interval_ms", r.Local.Interval)
		dst = closed(dst, at)
	}
	return closed(dst, start)
}

// appendByDriver is for what few tasks have.
func appendByDriver[T any](dst []byte, key string, v *T) []byte {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(registry)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("encoding %s: %v", key, err)) // plain structs of texts, numbers and times always encode
	}
	return bsoncore.AppendDocumentElement(dst, key, buf.Bytes())
}

// closed ends the document or array that began at start. It cannot fail: start is where
// one began.
func closed(dst []byte, start int32) []byte {
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}

func appendText(dst []byte, key, s string) []byte {
	if s == "" {
		return dst
	}
	return bsoncore.AppendStringElement(dst, key, s)
}

func appendTexts(dst []byte, key string, list []string) []byte {
	return appendList(dst, key, list, func(dst []byte, key string, s *string) []byte {
		return bsoncore.AppendStringElement(dst, key, *s)
	})
}

// appendList is for arrays, which are left out while they are empty.
func appendList[T any](dst []byte, key string, list []T, element func(dst []byte, key string, e *T) []byte) []byte {
	if len(list) == 0 {
		return dst
	}
	start, dst := bsoncore.AppendArrayElementStart(dst, key)
	for i := range list {
		dst = element(dst, Index(i), &list[i])
	}
	return closed(dst, start)
}

// appendDate is for times that are always there, appendTime for those that are left out
// while they say nothing.
func appendDate(dst []byte, key string, t time.Time) []byte {
	return bsoncore.AppendDateTimeElement(dst, key, t.UnixMilli())
}

func appendTime(dst []byte, key string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	return appendDate(dst, key, t)
}

// appendInt is as short as the driver makes an int.
func appendInt(dst []byte, key string, n int) []byte {
	if n >= math.MinInt32 && n <= math.MaxInt32 {
		return bsoncore.AppendInt32Element(dst, key, int32(n))
	}
	return bsoncore.AppendInt64Element(dst, key, int64(n))
}

func appendCount(dst []byte, key string, n int) []byte {
	if n == 0 {
		return dst
	}
	return appendInt(dst, key, n)
}

func appendFloat(dst []byte, key string, x float64) []byte {
	if x == 0 {
		return dst
	}
	return bsoncore.AppendDoubleElement(dst, key, x)
}

func appendDuration(dst []byte, key string, d time.Duration) []byte {
	if d == 0 {
		return dst
	}
	return bsoncore.AppendInt64Element(dst, key, d.Milliseconds())
}

func appendValue(dst []byte, key string, v bson.RawValue) []byte {
	if v.Type == 0 {
		return dst
	}
	return bsoncore.AppendValueElement(dst, key, bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
}
