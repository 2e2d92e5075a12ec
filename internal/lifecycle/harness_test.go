package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// What the tests of this package share: a tiny applier of updates, and the invariants
// that hold after every rule.

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func marshal(v any) (bson.Raw, error) {
	var buf bytes.Buffer
	enc := bson.NewEncoder(bson.NewDocumentWriter(&buf))
	enc.SetRegistry(codec.Registry())
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// plain turns an encoded document into maps and slices, so that comparing is not about
// the order of fields.
func plain(v any) any {
	switch v := v.(type) {
	case bson.D:
		m := make(map[string]any, len(v))
		for _, e := range v {
			m[e.Key] = plain(e.Value)
		}
		return m
	case bson.A:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	default:
		return v
	}
}

func document(v any) (map[string]any, error) {
	raw, err := marshal(v)
	if err != nil {
		return nil, err
	}
	var d bson.D
	if err := bson.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	return plain(d).(map[string]any), nil
}

// apply does to an encoded document what MongoDB does: $set, $unset, $inc and $push by
// dotted paths, where a number addresses the element of an array that exists.
func apply(doc map[string]any, update bson.D) error {
	u, err := document(update)
	if err != nil {
		return err
	}
	for op, fields := range u {
		for path, v := range fields.(map[string]any) {
			var err error
			switch op {
			case "$set":
				_, err = assign(doc, strings.Split(path, "."), func(any) (any, bool) { return v, true })
			case "$unset":
				_, err = assign(doc, strings.Split(path, "."), func(any) (any, bool) { return nil, false })
			case "$inc":
				_, err = assign(doc, strings.Split(path, "."), func(old any) (any, bool) {
					n, _ := old.(int64)
					return n + v.(int64), true
				})
			case "$push":
				_, err = assign(doc, strings.Split(path, "."), func(old any) (any, bool) {
					list, _ := old.([]any)
					return append(slices.Clone(list), v.(map[string]any)["$each"].([]any)...), true
				})
			case "$pull":
				err = pullSteps(doc, path, v)
			default:
				err = errors.New("unexpected operator " + op)
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", op, path, err)
			}
		}
	}
	return nil
}

// pullSteps drops the steps of the workers that a $pull names, which is the only one there
// is. An array that it empties stays in a document of MongoDB, and reads as none.
func pullSteps(doc map[string]any, path string, condition any) error {
	workers := condition.(map[string]any)["worker_id"].(map[string]any)["$in"].([]any)
	list, _ := doc[path].([]any)
	kept := slices.DeleteFunc(slices.Clone(list), func(s any) bool {
		return slices.Contains(workers, s.(map[string]any)["worker_id"])
	})
	if doc[path] = kept; len(kept) == 0 {
		delete(doc, path)
	}
	if path != "steps" || len(kept) == len(list) {
		return errors.New("nothing to pull")
	}
	return nil
}

func assign(at any, path []string, change func(any) (any, bool)) (any, error) {
	switch at := at.(type) {
	case map[string]any:
		if len(path) == 1 {
			if v, keep := change(at[path[0]]); keep {
				at[path[0]] = v
			} else {
				delete(at, path[0])
			}
			return at, nil
		}
		next, ok := at[path[0]]
		if !ok {
			return nil, fmt.Errorf("%s is absent: MongoDB would make an object of it", path[0])
		}
		v, err := assign(next, path[1:], change)
		at[path[0]] = v
		return at, err
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i > len(at) {
			return nil, fmt.Errorf("no element %s in an array of %d", path[0], len(at))
		}
		if len(path) == 1 {
			v, keep := change(nil)
			if !keep {
				return nil, errors.New("unset of an element leaves a null")
			}
			if i == len(at) {
				return append(at, v), nil
			}
			at[i] = v
			return at, nil
		}
		if i == len(at) {
			return nil, fmt.Errorf("no element %s", path[0])
		}
		v, err := assign(at[i], path[1:], change)
		at[i] = v
		return at, err
	default:
		return nil, fmt.Errorf("%T has no fields", at)
	}
}

// diffOf is [codec.Diff], decoded.
func diffOf(before, after *model.Task) (update bson.D) {
	raw := codec.Diff(before, after)
	if raw == nil {
		return nil
	}
	if err := bson.Unmarshal(raw, &update); err != nil {
		panic(err) // it is not BSON
	}
	return update
}

// diffFault says in what Diff(before, after), applied to before, is not after; nil
// when it is sound.
func diffFault(before, after *model.Task) error {
	update := diffOf(before, after)
	got, err := document(before)
	if err != nil {
		return err
	}
	want, err := document(after)
	if err != nil {
		return err
	}
	if err := apply(got, update); err != nil {
		return err
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("the diff %v\nmakes of it %v\nand not     %v", update, got, want)
	}
	if OpenExecutions(before) > 0 {
		for _, op := range update {
			for _, e := range op.Value.(bson.D) {
				if e.Key == "worker_states" {
					return errors.New("the whole array of executions is replaced while one is open")
				}
			}
		}
	}
	return nil
}

// deepCopy shares nothing with t.
func deepCopy(t *model.Task) *model.Task {
	c := *t
	c.WorkerStates = slices.Clone(t.WorkerStates)
	for i := range c.WorkerStates {
		w := &c.WorkerStates[i]
		w.Returns.Value, w.Checkpoint.Value = bytes.Clone(w.Returns.Value), bytes.Clone(w.Checkpoint.Value)
	}
	c.Steps = slices.Clone(t.Steps)
	c.Audience = slices.Clone(t.Audience)
	c.Args.Value, c.Result.Value, c.Checkpoint.Value = bytes.Clone(t.Args.Value), bytes.Clone(t.Result.Value), bytes.Clone(t.Checkpoint.Value)
	o := &c.Options
	o.SpecificWorkerIDs = slices.Clone(o.SpecificWorkerIDs)
	o.MaxLapses, o.NeedManual = ptrCopy(o.MaxLapses), ptrCopy(o.NeedManual)
	if o.Retry = ptrCopy(o.Retry); o.Retry != nil {
		o.Retry.Sequence = slices.Clone(o.Retry.Sequence)
		o.Retry.MaxErrors, o.Retry.Local = ptrCopy(o.Retry.MaxErrors), ptrCopy(o.Retry.Local)
	}
	c.Progress = ptrCopy(t.Progress)
	return &c
}

func ptrCopy[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

// stateFault says what is wrong with a task that a rule has just returned.
func stateFault(t *model.Task, eff Effective, now time.Time) error {
	open, held := 0, map[string]int{}
	execs := map[string]bool{}
	var earliest time.Time
	waiting, bad := 0, 0
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if execs[w.ExecID] {
			return fmt.Errorf("the exec id %s is there twice", w.ExecID)
		}
		execs[w.ExecID] = true
		if w.FailTime.IsZero() {
			if held[w.WorkerID]++; held[w.WorkerID] > 1 {
				return fmt.Errorf("worker %s holds it, or has done it, twice", w.WorkerID)
			}
		} else {
			bad++
		}
		if !w.SuccessTime.IsZero() && !w.FailTime.IsZero() {
			return fmt.Errorf("execution %s both succeeded and failed", w.ExecID)
		}
		if w.FailTime.IsZero() != (w.FailKind == "") {
			return fmt.Errorf("execution %s has fail kind %q and fail time %v", w.ExecID, w.FailKind, w.FailTime)
		}
		if w.Parked && !Open(w) && w.FailKind != failkind.Timeout {
			return fmt.Errorf("execution %s is parked although it ended", w.ExecID)
		}
		if w.RetryAt.After(now) {
			waiting++
		}
		if Open(w) {
			open++
			if earliest.IsZero() || w.PingExpireTime.Before(earliest) {
				earliest = w.PingExpireTime
			}
			if !w.Parked && !w.Deadline.IsZero() && w.PingExpireTime.After(w.Deadline) {
				return fmt.Errorf("the lease of %s passes its deadline", w.ExecID)
			}
		}
	}
	if !t.LapseAt.Equal(earliest) {
		return fmt.Errorf("lapse_at is %v, the earliest lease %v", t.LapseAt, earliest)
	}
	if bad > input.MaxBadStates+input.MaxWorkers || len(t.WorkerStates) > input.MaxBadStates+2*input.MaxWorkers {
		return fmt.Errorf("%d executions are listed, %d of them bad", len(t.WorkerStates), bad)
	}
	if t.Audience != nil && len(t.Audience) == 0 && !t.DueAt.IsZero() {
		return errors.New("due, and nobody may claim it")
	}
	ended := t.Status.Ended()
	eff = judged(t, eff)
	told := ended && eff.callbackFor(t.Type, t.Status) != nil // it waits for its delivery
	switch {
	case !Known(t.Status):
		return nil
	case ended && open > 0:
		return fmt.Errorf("it is %s with %d open executions", t.Status, open)
	case ended && !t.DueAt.IsZero():
		return fmt.Errorf("it is %s and due", t.Status)
	case ended == t.FinishedAt.IsZero():
		return fmt.Errorf("it is %s with finished_at %v", t.Status, t.FinishedAt)
	case !told && Archivable(t.Status) == t.ArchiveAt.IsZero():
		return fmt.Errorf("it is %s with archive_at %v", t.Status, t.ArchiveAt)
	case !t.ArchiveAt.IsZero() && t.ArchiveAt.Before(t.FinishedAt.Add(time.Minute)):
		return fmt.Errorf("it is archived at %v, too soon after %v", t.ArchiveAt, t.FinishedAt)
	case len(t.Outbox) > 0 != !t.OutboxAt.IsZero():
		return fmt.Errorf("its outbox is %v with outbox_at %v", t.Outbox, t.OutboxAt)
	case len(t.Outbox) > 0 && !ended:
		return fmt.Errorf("it is %s, and %v is to follow", t.Status, t.Outbox)
	case !t.ExpireAt.IsZero() && (ended || t.Attempt > 0):
		return fmt.Errorf("it is %s after %d attempts, and expires at %v", t.Status, t.Attempt, t.ExpireAt)
	case (t.Status == model.StatusExecuting) != (open > 0):
		return fmt.Errorf("it is %s with %d open executions", t.Status, open)
	case t.Status == model.StatusSuccess && Successes(t) < Wanted(t):
		return fmt.Errorf("it is Success with %d of %d", Successes(t), Wanted(t))
	}
	return dueFault(t, eff, now)
}

// failures are the errors and lapses of each worker in one life, by how its executions ended and not by the counters
// in the document.
type failures map[string]failed

type failed struct{ errors, lapses int }

// wrote counts what a write within the life ended. If it reset failures, those of all workers count no more that neither
// held the task nor have done it.
func (f failures) wrote(before, after *model.Task) {
	reset, others := false, map[string]bool{}
	for i := range before.WorkerStates {
		b := &before.WorkerStates[i]
		_, a := ExecutionOf(after, b.ExecID)
		if b.FailTime.IsZero() && a != nil && a.FailKind != failkind.Cleaned {
			others[b.WorkerID] = true
		}
		switch {
		case a == nil || Open(a):
		case !Open(b):
			reset = reset || errorsIn(a) < errorsIn(b) || lapsesIn(a) < lapsesIn(b)
		default:
			of := f[b.WorkerID]
			f[b.WorkerID] = failed{of.errors + errorsIn(a) - errorsIn(b), of.lapses + lapsesIn(a) - lapsesIn(b)}
		}
	}
	maps.DeleteFunc(f, func(worker string, _ failed) bool { return reset && !others[worker] })
}

// count is that of all workers.
func (f failures) count() (sum failed) {
	for _, of := range f {
		sum.errors, sum.lapses = sum.errors+of.errors, sum.lapses+of.lapses
	}
	return sum
}

// dueFault compares due_at with what a worker that never saw the task and is in every
// filter would be told, now and later.
func dueFault(t *model.Task, eff Effective, now time.Time) error {
	c := deepCopy(t)
	c.Options.SpecificWorkerIDs = nil
	if c.Options.ExpiresAt.After(now) { // in a thousand years nobody may start it
		c.Options.ExpiresAt = time.Time{}
	}
	const stranger = "a worker that never saw it"
	ever := epoch.AddDate(1000, 0, 0)
	no := Claimable(c, stranger, eff, ever)
	if tooFewLeft(t, eff) { // of the workers that c does not name
		no = RefusedSpent
	}
	if (no == "") == t.DueAt.IsZero() {
		return fmt.Errorf("due_at is %v, and a stranger is told %q in a thousand years", t.DueAt, no)
	}
	if t.DueAt.IsZero() {
		return nil
	}
	at := clock.Later(t.DueAt, now)
	if no := Claimable(c, stranger, eff, at); no != "" {
		return fmt.Errorf("due at %v, when a stranger is told %q", t.DueAt, no)
	}
	if t.DueAt.After(now) {
		if no := Claimable(c, stranger, eff, t.DueAt.Add(-time.Millisecond)); no != RefusedNotDue {
			return fmt.Errorf("due at %v, and just before a stranger is told %q", t.DueAt, no)
		}
	}
	return nil
}

// ruleFault checks what a rule made of before: nothing, or one more rev, a generation
// that does not fall, and an update that says exactly that.
func ruleFault(before, after *model.Task) error {
	switch {
	case after == before:
		return nil
	case after.Rev != before.Rev+1:
		return fmt.Errorf("rev %d became %d", before.Rev, after.Rev)
	case after.Generation < before.Generation:
		return fmt.Errorf("generation %d became %d", before.Generation, after.Generation)
	case after.ID != before.ID || after.Type != before.Type || after.Key != before.Key || after.Tenant != before.Tenant:
		return errors.New("the identity changed")
	}
	if now, then := OpenExecutions(after)+Successes(after), OpenExecutions(before)+Successes(before); now > then && now > Wanted(after) {
		return fmt.Errorf("%d executions are open or successful, %d are wanted", now, Wanted(after))
	}
	return diffFault(before, after)
}

// ping does to a task what the store's ping does to its document. Only the ping of the
// one execution moves lapse_at: it may be early, never late.
func ping(t *model.Task, execID string, lease time.Duration, now time.Time) (*model.Task, error) {
	i, w := ExecutionOf(t, execID)
	if w == nil || !Open(w) {
		return nil, model.ErrFenced
	}
	c := *t
	c.WorkerStates = slices.Clone(t.WorkerStates)
	until := Lease(w, lease, now)
	c.WorkerStates[i].PingExpireTime = clock.Later(w.PingExpireTime, until)
	if Wanted(t) == 1 && OpenExecutions(t) == 1 {
		c.LapseAt = clock.Later(c.LapseAt, until)
	}
	return &c, nil
}

// saveStep does to a task what the store's saving of a step does to its document.
func saveStep(t *model.Task, execID, name string, now time.Time) (*model.Task, error) {
	_, w := ExecutionOf(t, execID)
	if w == nil || !Open(w) {
		return nil, model.ErrFenced
	}
	c := *t
	c.Steps = append(slices.Clone(t.Steps), model.Step{Name: name, WorkerID: w.WorkerID, At: now, Attempt: w.Attempt})
	return &c, nil
}
