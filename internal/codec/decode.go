package codec

import (
	"bytes"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// A TaskReader decodes the documents of a batch. Tasks of a batch have much in common, so
// their types, tenants, workers and audiences become the same strings; and a document is
// decoded without reflection, by the fields it has. What comes out is what the driver
// makes of the struct tags with [Registry], and a test compares the two.
//
// The zero value is ready. It is for one batch, by one goroutine: it remembers every name
// it has read.
type TaskReader struct {
	names     map[string]string
	audiences map[string][]string
	room      []byte // for values, which tasks share only where they are small
}

// Values of many tasks share pieces of memory of roomBytes. One of more than apartBytes
// gets its own: a task that is held for hours must not keep the arguments of others.
const (
	roomBytes  = 16 << 10
	apartBytes = 1 << 10
)

// Read decodes the document of a task. raw may be used again afterwards: nothing of it is
// kept. Fields that this release does not know are left out.
func (r *TaskReader) Read(raw bson.Raw) (*model.Task, error) {
	t := &model.Task{}
	if err := r.task(t, raw); err == nil {
		return t, nil
	}
	// Not as this project writes it: by hand, by a tool, or damaged. The driver knows all
	// forms of a number, and how to say what is wrong.
	t = &model.Task{}
	if err := decode(raw, t); err != nil {
		return nil, err
	}
	return t, nil
}

var registry = Registry()

// decode is what the driver makes of a document.
func decode(raw []byte, into any) error {
	dec := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	dec.SetRegistry(registry)
	return dec.Decode(into) //nolint:wrapcheck // the caller says what was read
}

func (r *TaskReader) task(t *model.Task, raw []byte) error {
	return fields(raw, func(f field) {
		switch string(f.key) {
		case "_id":
			t.ID = f.text()
		case "type":
			t.Type = r.name(f)
		case "key":
			t.Key = tailOf(t.ID, f)
		case "tenant":
			t.Tenant = r.name(f)
		case "category":
			t.Category = r.name(f)
		case "creator":
			t.Creator = r.name(f)
		case "generation":
			t.Generation = f.long()
		case "rev":
			t.Rev = f.long()
		case "priority":
			t.Priority = f.int()
		case "status":
			t.Status = model.Status(r.name(f))
		case "start_time":
			t.StartTime = f.time()
		case "due_at":
			t.DueAt = f.time()
		case "lapse_at":
			t.LapseAt = f.time()
		case "audience":
			t.Audience = r.audience(f)
		case "expire_at":
			t.ExpireAt = f.time()
		case "args":
			t.Args = r.value(f)
		case "options":
			r.options(&t.Options, f)
		case "applied":
			t.Applied = &model.Options{}
			r.options(t.Applied, f)
		case "worker_states":
			t.WorkerStates = list(f, r.state)
		case "created_at":
			t.CreatedAt = f.time()
		case "updated_at":
			t.UpdatedAt = f.time()
		default:
			r.rest(t, f)
		}
	})
}

// rest are the fields that a task has once something happened to it.
func (r *TaskReader) rest(t *model.Task, f field) {
	switch string(f.key) {
	case "origin":
		t.Origin = decoded[model.Origin](f)
	case "attempt":
		t.Attempt = f.int()
	case "error_count":
		t.ErrorCount = f.int()
	case "lapse_count":
		t.LapseCount = f.int()
	case "error_info":
		t.ErrorInfo = f.text()
	case "result":
		t.Result = r.value(f)
	case "cancel_requested_at":
		t.CancelRequestedAt = f.time()
	case "undecodable_since":
		t.UndecodableSince = f.time()
	case "progress":
		t.Progress = decoded[model.Progress](f)
	case "checkpoint":
		t.Checkpoint = r.value(f)
	case "steps":
		t.Steps = list(f, r.step)
	case "remark":
		t.Remark = f.text()
	case "outbox":
		t.Outbox = list(f, func(e *model.OutboxEntry, f field) { f.byDriver(e) })
	case "outbox_at":
		t.OutboxAt = f.time()
	case "archive_at":
		t.ArchiveAt = f.time()
	case "wake_at":
		t.WakeAt = f.time()
	case "finished_at":
		t.FinishedAt = f.time()
	case "archived_at":
		t.ArchivedAt = f.time()
	}
}

func (r *TaskReader) state(w *model.WorkerState, f field) {
	f.document(func(f field) { r.stateField(w, f) })
}

func (r *TaskReader) stateField(w *model.WorkerState, f field) {
	switch string(f.key) {
	case "exec_id":
		w.ExecID = r.name(f)
	case "worker_id":
		w.WorkerID = r.name(f)
	case "claimed_at":
		w.ClaimedAt = f.time()
	case "ping_expire_time":
		w.PingExpireTime = f.time()
	case "deadline":
		w.Deadline = f.time()
	case "attempt":
		w.Attempt = f.int()
	case "success_time":
		w.SuccessTime = f.time()
	case "fail_time":
		w.FailTime = f.time()
	case "fail_kind":
		w.FailKind = model.FailKind(r.name(f))
	case "fail_reason":
		w.FailReason = f.text()
	case "retry_at":
		w.RetryAt = f.time()
	case "returns":
		w.Returns = r.value(f)
	case "parked":
		w.Parked = f.bool()
	case "checkpoint":
		w.Checkpoint = r.value(f)
	case "no_callback":
		w.NoCallback = f.bool()
	case "unstarted":
		w.Unstarted = f.bool()
	case "local_retries":
		w.LocalRetries = f.int()
	case "options":
		w.Options = &model.ClaimedOptions{}
		r.options((*model.Options)(w.Options), f)
	}
}

func (r *TaskReader) step(s *model.Step, f field) {
	f.document(func(f field) {
		switch string(f.key) {
		case "name":
			s.Name = r.name(f)
		case "worker_id":
			s.WorkerID = r.name(f)
		case "value":
			s.Value = r.value(f)
		case "at":
			s.At = f.time()
		case "attempt":
			s.Attempt = f.int()
		}
	})
}

func (r *TaskReader) options(o *model.Options, f field) {
	f.document(func(f field) {
		switch string(f.key) {
		case "concurrent_worker_count":
			o.ConcurrentWorkerCount = f.int()
		case "ping_interval_ms":
			o.PingInterval = f.duration()
		case "worker_timeout_ms":
			o.WorkerTimeout = f.duration()
		case "execution_timeout_ms":
			o.ExecutionTimeout = f.duration()
		case "specific_worker_ids":
			o.SpecificWorkerIDs = r.texts(f)
		case "retry":
			o.Retry = retry(f)
		case "max_lapses":
			o.MaxLapses = new(f.int())
		case "max_errors_per_worker":
			o.MaxErrorsPerWorker = f.int()
		case "need_manual":
			o.NeedManual = new(f.bool())
		case "retention_ms":
			o.Retention = f.duration()
		case "callback":
			o.Callback = decoded[model.Callback](f)
		case "expires_at":
			o.ExpiresAt = f.time()
		case "limit_key":
			o.LimitKey = f.text()
		case "claim_by":
			o.ClaimBy = model.ClaimBy(r.name(f))
		}
	})
}

func retry(f field) *model.Retry {
	r := &model.Retry{}
	f.document(func(f field) {
		switch string(f.key) {
		case "strategy":
			r.Strategy = model.RetryStrategy(f.text())
		case "interval_ms":
			r.Interval = f.duration()
		case "sequence_ms":
			r.Sequence = list(f, func(d *time.Duration, f field) { *d = f.duration() })
		case "factor":
			r.Factor = f.float()
		case "max_interval_ms":
			r.MaxInterval = f.duration()
		case "jitter":
			r.Jitter = f.float()
		case "max_errors":
			r.MaxErrors = new(f.int())
		case "local":
			r.Local = &model.LocalRetry{}
			f.document(func(f field) {
				switch string(f.key) {
				case "count":
					r.Local.Count = f.int()
				case "interval_ms":
					r.Local.Interval = f.duration()
				}
			})
		}
	})
	return r
}

// name is a text that other tasks of the batch have, too.
func (r *TaskReader) name(f field) string {
	b := f.bytes()
	if s, known := r.names[string(b)]; known {
		return s
	}
	if r.names == nil {
		r.names = map[string]string{}
	}
	s := string(b)
	r.names[s] = s
	return s
}

// tailOf is a text that is mostly the end of the id, which then is not kept twice.
func tailOf(id string, f field) string {
	b := f.bytes()
	if n := len(id) - len(b); n >= 0 && id[n:] == string(b) {
		return id[n:]
	}
	return string(b)
}

// audience is the same slice for tasks with equal ones: the rules never change it in place.
func (r *TaskReader) audience(f field) []string {
	if known, ok := r.audiences[string(f.data)]; ok {
		return known
	}
	if r.audiences == nil {
		r.audiences = map[string][]string{}
	}
	list := r.texts(f)
	r.audiences[string(f.data)] = list
	return list
}

func (r *TaskReader) texts(f field) []string {
	return list(f, func(s *string, f field) { *s = r.name(f) })
}

// value is a copy of a value.
func (r *TaskReader) value(f field) bson.RawValue {
	n := len(f.data)
	if n > apartBytes {
		return bson.RawValue{Type: bson.Type(f.kind), Value: bytes.Clone(f.data)}
	}
	if len(r.room)+n > cap(r.room) {
		r.room = make([]byte, 0, roomBytes)
	}
	at := len(r.room)
	r.room = append(r.room, f.data...)
	return bson.RawValue{Type: bson.Type(f.kind), Value: r.room[at : at+n : at+n]}
}
