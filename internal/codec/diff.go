package codec

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// SameClaimed reports whether both are nil, or hold the same options.
func SameClaimed(c *model.ClaimedOptions, d *model.ClaimedOptions) bool {
	return c == d || c != nil && d != nil && optionsPlan.same(unsafe.Pointer(c), unsafe.Pointer(d))
}

// Diff is the smallest MongoDB update that turns the document before into after: what
// a rule decided, as one guarded write. Executions are addressed by their index, and the array
// of executions is set whole only where none is open. It is nil when the rule changed nothing.
//
// Fields of the document that it does not know are never touched. A value that is set whole, such as options,
// loses the fields in it that this release does not know.
//
// Two tasks to which a rule did the same have equal diffs, and that is what makes a
// batch one statement.
func Diff(before, after *model.Task) bson.Raw { return AppendDiff(nil, before, after) }

// AppendDiff appends [Diff] to dst, and nothing when the rule changed nothing.
func AppendDiff(dst []byte, before, after *model.Task) []byte {
	d := differs.Get().(*differ) //nolint:forcetypeassert // made so
	defer differs.Put(d)
	d.set, d.unset, d.inc, d.push, d.pull = d.set[:0], d.unset[:0], d.inc[:0], d.push[:0], d.pull[:0]
	d.task(before, after)
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

// Changes are the fields that a MongoDB update sets, and those that it takes away, to turn the document before
// into after, both pointers to structs of one type; nil = there are none.
func Changes(before, after any) (set, unset bson.Raw, err error) {
	p, was := planFor(before)
	_, is := planFor(after)
	if p == nil {
		return nil, nil, fmt.Errorf("the struct tags of %T", before)
	}
	d := differs.Get().(*differ) //nolint:forcetypeassert // made so
	defer differs.Put(d)
	d.set, d.unset = d.set[:0], d.unset[:0]
	if !d.fields(p, "", was, is) {
		_, err := writeByDriver(after)
		return nil, nil, cmp.Or(err, fmt.Errorf("a field of %T cannot be stored", after))
	}
	for fields, out := range map[*[]byte]*bson.Raw{&d.set: &set, &d.unset: &unset} {
		if len(*fields) > 0 {
			start, doc := bsoncore.AppendDocumentStart(make([]byte, 0, len(*fields)+5))
			*out = closed(append(doc, *fields...), start)
		}
	}
	return set, unset, nil
}

// differ gathers the fields of an update, encoded. It is used again and again: a batch
// makes a thousand updates only to find that they are equal.
type differ struct{ set, unset, inc, push, pull []byte }

var differs = sync.Pool{New: func() any { return &differ{} }}

// Fields of a task that an update does not just set, or unset where they say nothing.
var (
	plainPlan = slices.DeleteFunc(slices.Clone(taskPlan), func(c column) bool {
		return slices.Contains([]string{"rev", "updated_at", "worker_states", "outbox", "steps"}, c.key)
	})
	statesColumn = taskPlan.column("worker_states")
	stepsColumn  = taskPlan.column("steps")
	eachColumn   = column{start: "\x00$each\x00", kind: kindList, of: taskPlan.column("outbox").of}
)

func (d *differ) task(before, after *model.Task) {
	d.fields(plainPlan, "", unsafe.Pointer(before), unsafe.Pointer(after))
	if before.Rev != after.Rev { // also at the same time, so that equal decisions have equal updates
		d.inc = bsoncore.AppendInt64Element(d.inc, "rev", after.Rev-before.Rev)
		d.set = bsoncore.AppendDateTimeElement(d.set, "updated_at", after.UpdatedAt.UnixMilli())
	}
	d.states(before.WorkerStates, after.WorkerStates)
	d.outbox(before.Outbox, after.Outbox)
	d.steps(before, after)
}

// fields compares two structs field by field. prefix is in front of their keys. ok is false where something
// cannot be stored.
func (d *differ) fields(p plan, prefix string, before, after unsafe.Pointer) (ok bool) {
	for i := range p {
		c := &p[i]
		b, a := unsafe.Add(before, c.offset), unsafe.Add(after, c.offset)
		switch {
		case equal(b, a, c.size), c.same(b, a):
		case c.optional && c.empty(a) && c.empty(b):
		case c.optional && c.empty(a):
			d.unset = bsoncore.AppendString(c.head(d.unset, bsoncore.TypeString, prefix), "")
		default:
			set := c.append(d.set, prefix, a)
			if set == nil {
				return false
			}
			d.set = set
		}
	}
	return true
}

func (d *differ) drop(key string) { d.unset = bsoncore.AppendStringElement(d.unset, key, "") }

// outbox pushes what is new: entries are removed, one by one, by writes that do not raise
// the rev, and must not come back.
func (d *differ) outbox(before, after []model.OutboxEntry) {
	switch {
	case len(after) > len(before):
		start, push := bsoncore.AppendDocumentElementStart(d.push, "outbox")
		fresh := after[len(before):]
		d.push = closed(eachColumn.append(push, "", unsafe.Pointer(&fresh)), start)
	case len(after) == 0 && len(before) > 0:
		d.drop("outbox")
	}
}

// steps are only ever dropped by a rule. While an execution is open, which may save another
// at any time, they are dropped by the workers that did them: each of those has none left.
func (d *differ) steps(before, after *model.Task) {
	switch {
	case len(before.Steps) == len(after.Steps):
	case slices.ContainsFunc(before.WorkerStates, func(w model.WorkerState) bool { return w.SuccessTime.IsZero() && w.FailTime.IsZero() }):
		var gone []string
		for i := range before.Steps {
			w := before.Steps[i].WorkerID
			if !slices.Contains(gone, w) && !slices.ContainsFunc(after.Steps, func(s model.Step) bool { return s.WorkerID == w }) {
				gone = append(gone, w)
			}
		}
		theirs, _ := bson.Marshal(bson.D{{Key: "worker_id", Value: bson.D{{Key: "$in", Value: gone}}}}) // texts always encode
		d.pull = bsoncore.AppendDocumentElement(d.pull, "steps", theirs)
	case len(after.Steps) == 0:
		d.drop("steps")
	default:
		d.set = stepsColumn.append(d.set, "", unsafe.Pointer(&after.Steps))
	}
}

func (d *differ) states(before, after []model.WorkerState) {
	switch {
	case len(after) > 0 && (len(before) == 0 || len(after) < len(before)):
		d.set = statesColumn.append(d.set, "", unsafe.Pointer(&after))
		return
	case len(before) > 0 && len(after) == 0:
		d.drop("worker_states")
		return
	}
	for i := range after {
		path, state := statePath(i), unsafe.Pointer(&after[i])
		if i < len(before) && before[i].ExecID == after[i].ExecID {
			d.fields(statesColumn.of.fields, path, unsafe.Pointer(&before[i]), state)
		} else {
			d.set = statesColumn.of.append(d.set, path[:len(path)-1], state)
		}
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
