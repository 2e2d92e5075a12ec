package codec

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// SameClaimed reports whether both are nil, or hold the same options.
func SameClaimed(c *model.ClaimedOptions, d *model.ClaimedOptions) bool {
	if c == nil || d == nil {
		return c == d
	}
	return sameOptions((*model.Options)(c), (*model.Options)(d))
}

// Diff is the smallest MongoDB update that turns the document before into after: what
// a rule decided, as one guarded write. Fields it does not know are never touched,
// executions are addressed by their index, and the array of executions is set whole
// only where none is open. It is nil when the rule changed nothing.
//
// Two tasks to which a rule did the same have equal diffs, and that is what makes a
// batch one statement.
func Diff(before, after *model.Task) bson.Raw { return AppendDiff(nil, before, after) }

// AppendDiff appends [Diff] to dst, and nothing when the rule changed nothing.
func AppendDiff(dst []byte, before, after *model.Task) []byte {
	d := differs.Get().(*differ) //nolint:forcetypeassert // made so
	defer differs.Put(d)
	d.set, d.unset, d.inc, d.push, d.pull, d.prefix = d.set[:0], d.unset[:0], d.inc[:0], d.push[:0], d.pull[:0], ""
	d.compare(before, after)
	if len(d.set)+len(d.unset)+len(d.inc)+len(d.push)+len(d.pull) == 0 {
		return dst
	}
	start, dst := bsoncore.AppendDocumentStart(dst)
	for _, part := range []struct {
		operator string
		fields   []byte
	}{{"$set", d.set}, {"$unset", d.unset}, {"$inc", d.inc}, {"$push", d.push}, {"$pull", d.pull}} {
		if len(part.fields) == 0 {
			continue
		}
		var at int32
		at, dst = bsoncore.AppendDocumentElementStart(dst, part.operator)
		dst = closed(append(dst, part.fields...), at)
	}
	return closed(dst, start)
}

// differ gathers the fields of an update, encoded. It is used again and again: a batch
// makes a thousand updates only to find that they are equal.
type differ struct {
	set, unset, inc, push, pull []byte
	prefix                      string // of the keys, within an execution
}

var differs = sync.Pool{New: func() any { return &differ{} }}

func (d *differ) compare(before, after *model.Task) {
	if before.Rev != after.Rev {
		d.inc = bsoncore.AppendInt64Element(d.inc, "rev", after.Rev-before.Rev)
	}
	if before.Generation != after.Generation {
		d.set = bsoncore.AppendInt64Element(d.set, "generation", after.Generation)
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
	d.options("applied", before.Applied, after.Applied)
	d.time("cancel_requested_at", before.CancelRequestedAt, after.CancelRequestedAt)
	d.time("undecodable_since", before.UndecodableSince, after.UndecodableSince)
	d.text("remark", before.Remark, after.Remark)
	d.time("wake_at", before.WakeAt, after.WakeAt)
	switch {
	case slices.Equal(before.Audience, after.Audience):
	case len(after.Audience) == 0:
		d.drop("audience")
	default:
		d.set = appendTexts(d.set, "audience", after.Audience)
	}
	d.rare(before, after)
	if before.Rev != after.Rev { // also at the same time, so that equal decisions have equal updates
		d.set = appendDate(d.set, "updated_at", after.UpdatedAt)
	}
}

// rare are the fields that only a person, a new send or a new life changes.
func (d *differ) rare(before, after *model.Task) {
	d.time("created_at", before.CreatedAt, after.CreatedAt)
	d.time("start_time", before.StartTime, after.StartTime)
	if before.Priority != after.Priority {
		d.set = appendInt(d.set, "priority", after.Priority) // 0 is a priority, not an absence
	}
	d.text("creator", before.Creator, after.Creator)
	d.text("category", before.Category, after.Category)
	d.value("args", before.Args, after.Args)
	d.value("checkpoint", before.Checkpoint, after.Checkpoint)
	d.steps(before, after)
	if before.Progress != nil && after.Progress == nil {
		d.drop("progress")
	}
	d.options("options", &before.Options, &after.Options)
	switch {
	case before.Origin == after.Origin || before.Origin != nil && after.Origin != nil && *before.Origin == *after.Origin:
	case after.Origin == nil:
		d.drop("origin")
	default:
		d.set = appendByDriver(d.set, "origin", after.Origin)
	}
}

// options are nil where a task has none.
func (d *differ) options(key string, before, after *model.Options) {
	switch {
	case before == after || before != nil && after != nil && sameOptions(before, after):
	case after == nil || after.IsZero():
		d.drop(key)
	default:
		d.set = appendOptions(d.set, key, after)
	}
}

// outbox pushes what is new: entries are removed, one by one, by writes that do not raise
// the rev, and must not come back.
func (d *differ) outbox(before, after []model.OutboxEntry) {
	switch {
	case len(after) > len(before):
		var doc, list int32
		doc, d.push = bsoncore.AppendDocumentElementStart(d.push, "outbox")
		list, d.push = bsoncore.AppendArrayElementStart(d.push, "$each")
		for i := range after[len(before):] {
			d.push = appendByDriver(d.push, Index(i), &after[len(before)+i])
		}
		d.push = closed(closed(d.push, list), doc)
	case len(after) == 0 && len(before) > 0:
		d.drop("outbox")
	}
}

// steps are only ever dropped by a rule. While an execution is open, which may save another
// at any time, they are dropped by the workers that did them: each of those has none left.
func (d *differ) steps(before, after *model.Task) {
	switch {
	case len(before.Steps) == len(after.Steps):
	case slices.ContainsFunc(before.WorkerStates, func(w model.WorkerState) bool { return w.Open() }):
		var gone []string
		for i := range before.Steps {
			w := before.Steps[i].WorkerID
			if !slices.Contains(gone, w) && !slices.ContainsFunc(after.Steps, func(s model.Step) bool { return s.WorkerID == w }) {
				gone = append(gone, w)
			}
		}
		var steps, worker int32
		steps, d.pull = bsoncore.AppendDocumentElementStart(d.pull, "steps")
		worker, d.pull = bsoncore.AppendDocumentElementStart(d.pull, "worker_id")
		d.pull = appendTexts(d.pull, "$in", gone)
		d.pull = closed(closed(d.pull, worker), steps)
	case len(after.Steps) == 0:
		d.drop("steps")
	default:
		d.set = appendList(d.set, "steps", after.Steps, appendStep)
	}
}

// head begins an element of $set.
func (d *differ) head(t bsoncore.Type, key string) {
	d.set = append(append(append(append(d.set, byte(t)), d.prefix...), key...), 0)
}

func (d *differ) drop(key string) {
	d.unset = append(append(append(append(d.unset, byte(bsoncore.TypeString)), d.prefix...), key...), 0)
	d.unset = bsoncore.AppendString(d.unset, "")
}

func (d *differ) time(key string, before, after time.Time) {
	switch {
	case before.Equal(after):
	case after.IsZero():
		d.drop(key)
	default:
		d.head(bsoncore.TypeDateTime, key)
		d.set = bsoncore.AppendDateTime(d.set, after.UnixMilli())
	}
}

func (d *differ) text(key, before, after string) {
	switch {
	case before == after:
	case after == "":
		d.drop(key)
	default:
		d.head(bsoncore.TypeString, key)
		d.set = bsoncore.AppendString(d.set, after)
	}
}

func (d *differ) flag(key string, before, after bool) {
	switch {
	case before == after:
	case after:
		d.head(bsoncore.TypeBoolean, key)
		d.set = bsoncore.AppendBoolean(d.set, true)
	default:
		d.drop(key)
	}
}

// number is for counters.
func (d *differ) number(key string, before, after int) {
	switch {
	case before == after:
	case after == 0:
		d.drop(key)
	default:
		d.set = appendInt(d.set, d.prefix+key, after)
	}
}

func (d *differ) value(key string, before, after bson.RawValue) {
	switch {
	case before.Type == after.Type && bytes.Equal(before.Value, after.Value):
	case after.Type == 0:
		d.drop(key)
	default:
		d.head(bsoncore.Type(after.Type), key)
		d.set = append(d.set, after.Value...)
	}
}

func (d *differ) states(before, after []model.WorkerState) {
	switch {
	case len(before) == 0 && len(after) > 0, len(after) < len(before) && len(after) > 0:
		d.set = appendList(d.set, "worker_states", after, appendState)
		return
	case len(before) > 0 && len(after) == 0:
		d.drop("worker_states")
		return
	}
	for i := range after {
		path := statePath(i)
		if i >= len(before) || before[i].ExecID != after[i].ExecID {
			d.set = appendState(d.set, path[:len(path)-1], &after[i])
			continue
		}
		d.prefix = path
		d.state(&before[i], &after[i])
		d.prefix = ""
	}
}

// state covers what may change while an execution stays the same one.
func (d *differ) state(before, after *model.WorkerState) {
	d.time("ping_expire_time", before.PingExpireTime, after.PingExpireTime)
	d.time("success_time", before.SuccessTime, after.SuccessTime)
	d.time("fail_time", before.FailTime, after.FailTime)
	d.text("fail_kind", string(before.FailKind), string(after.FailKind))
	d.text("fail_reason", before.FailReason, after.FailReason)
	d.time("retry_at", before.RetryAt, after.RetryAt)
	d.value("returns", before.Returns, after.Returns)
	d.value("checkpoint", before.Checkpoint, after.Checkpoint)
	d.flag("parked", before.Parked, after.Parked)
	d.flag("no_callback", before.NoCallback, after.NoCallback)
	d.flag("unstarted", before.Unstarted, after.Unstarted)
	d.number("local_retries", before.LocalRetries, after.LocalRetries)
	switch {
	case SameClaimed(before.Options, after.Options):
	case after.Options == nil:
		d.drop("options")
	default:
		d.set = appendOptions(d.set, d.prefix+"options", (*model.Options)(after.Options))
	}
}

// statePaths are the paths of the first executions, which is nearly always all of them.
var statePaths = func() (out [input.MaxWorkers + input.MaxBadStates]string) {
	for i := range out {
		out[i] = "worker_states." + Index(i) + "."
	}
	return out
}()

func statePath(i int) string {
	if i < len(statePaths) {
		return statePaths[i]
	}
	return "worker_states." + Index(i) + "."
}

// sameOptions says whether both are stored the same. A rule hands options on as they are, so
// mostly they even share what they point to.
func sameOptions(o *model.Options, p *model.Options) bool {
	shared := o.ConcurrentWorkerCount == p.ConcurrentWorkerCount && o.PingInterval == p.PingInterval &&
		o.WorkerTimeout == p.WorkerTimeout && o.ExecutionTimeout == p.ExecutionTimeout &&
		slices.Equal(o.SpecificWorkerIDs, p.SpecificWorkerIDs) &&
		o.Retry == p.Retry && o.MaxLapses == p.MaxLapses && o.MaxErrorsPerWorker == p.MaxErrorsPerWorker &&
		o.NeedManual == p.NeedManual && o.Retention == p.Retention && o.Callback == p.Callback &&
		o.ExpiresAt.Equal(p.ExpiresAt) && o.LimitKey == p.LimitKey && o.ClaimBy == p.ClaimBy
	return shared || bytes.Equal(appendOptions(nil, "", o), appendOptions(nil, "", p))
}
